/* SPDX-License-Identifier: Apache-2.0 */
/* gather.cu - GATHER: pieces that are copied, converted, cleared or added, all pieces of a step in
 * one launch. A block of threads takes some tokens of a piece. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/steps.h"

namespace
{

enum { THREADS = 256 };

/* One end of a piece in bytes: see backend/cpu/gather.c. */
struct end {
    char *data; /* NULL: nothing to be moved */
    int64_t batch, token, head;
    int dtype;
};

__device__ int bytes_of(int dtype) { return dtype == RA__CUDA_F32 ? 4 : 2; }

__device__ end find_end(const ra__cuda_gather &gather, const ra__cuda_piece &piece,
                        const ra__cuda_end &at)
{
    const ra__cuda_place &place = gather.places[gather.place_of[at.buffer]];
    end e;
    if (place.message) {
        e.dtype = piece.message;
        e.token = (int64_t)piece.width * bytes_of(e.dtype);
        e.head = e.token * piece.tokens;
        e.batch = e.head * piece.heads;
        e.data = place.data + at.token;
        return e;
    }
    const int64_t element = bytes_of(place.dtype);
    e.dtype = place.dtype;
    e.batch = place.batch * element;
    e.token = place.token * at.step * element;
    e.head = place.head * element;
    e.data = place.data ? place.data +
                              (at.token * place.token + at.head * place.head + at.number) * element
                        : nullptr;
    return e;
}

__device__ void narrow(int dtype, char *to, float x)
{
    if (dtype == RA__CUDA_BF16) *(__nv_bfloat16 *)to = __float2bfloat16_rn(x);
    else *(__half *)to = __float2half_rn(x);
}

/* Numbers of a head that are moved at once: 16 bytes of what is read, where everything is aligned
 * to them, and what is written to as many numbers. */
__device__ int lanes_of(const ra__cuda_piece &piece, const end &to, const end &from)
{
    const int lanes = 16 / bytes_of(from.dtype), written = lanes * bytes_of(to.dtype);
    const int64_t out = (int64_t)to.data | to.batch | to.token | to.head;
    const int64_t in = (int64_t)from.data | from.batch | from.token | from.head;
    return piece.width % lanes || out % written || in % 16 ? 1 : lanes;
}

__device__ uint32_t narrow2(int dtype, float low, float high)
{
    union {
        __nv_bfloat162 bf16;
        __half2 f16;
        uint32_t bits;
    } two = { __floats2bfloat162_rn(low, high) };
    if (dtype != RA__CUDA_BF16) two.f16 = __floats2half2_rn(low, high);
    return two.bits;
}

/* 16 bytes of what is read, or as many zeros. */
__device__ void move_lanes(const ra__cuda_piece &piece, const end &to, const end &from, char *out,
                           const char *in)
{
    if (!in) *(int4 *)out = make_int4(0, 0, 0, 0);
    else if (piece.add) {
        const float4 x = *(const float4 *)in;
        float4 sum = *(const float4 *)out;
        sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
        *(float4 *)out = sum;
    } else if (to.dtype != from.dtype) {
        const float4 x = *(const float4 *)in;
        *(uint2 *)out = make_uint2(narrow2(to.dtype, x.x, x.y), narrow2(to.dtype, x.z, x.w));
    } else *(int4 *)out = *(const int4 *)in;
}

__device__ void move_one(const ra__cuda_piece &piece, const end &to, const end &from, char *out,
                         const char *in)
{
    if (!in && to.dtype == RA__CUDA_F32) *(float *)out = 0.0f;
    else if (!in) *(uint16_t *)out = 0;
    else if (piece.add) *(float *)out += *(const float *)in;
    else if (to.dtype != from.dtype) narrow(to.dtype, out, *(const float *)in);
    else if (to.dtype == RA__CUDA_F32) *(float *)out = *(const float *)in;
    else *(uint16_t *)out = *(const uint16_t *)in;
}

/* Tokens [first, first + tokens) of a piece, of all batch items: heads side by side, since most
 * buffers have them so. An item has few numbers, so that 32 bits count them. */
__device__ void move(const ra__cuda_gather &gather, const ra__cuda_piece &piece, int64_t first,
                     int tokens)
{
    const bool clears = piece.from.buffer < 0;
    const end to = find_end(gather, piece, piece.to);
    const end from = clears ? to : find_end(gather, piece, piece.from);
    if (!to.data || !from.data) return;
    const int lanes = lanes_of(piece, to, from);
    const unsigned per_head = (unsigned)(piece.width / lanes), heads = (unsigned)piece.heads;
    const unsigned all = (unsigned)(gather.batch * tokens) * heads * per_head;
    for (unsigned i = threadIdx.x; i < all; i += THREADS) {
        const unsigned number = i % per_head * lanes, row = i / per_head;
        const unsigned head = row % heads, rest = row / heads;
        const int64_t token = first + rest % tokens, batch = rest / tokens;
        char *out = to.data + batch * to.batch + token * to.token + head * to.head +
                    number * bytes_of(to.dtype);
        const char *in = from.data + batch * from.batch + token * from.token + head * from.head +
                         number * bytes_of(from.dtype);
        if (lanes > 1) move_lanes(piece, to, from, out, clears ? nullptr : in);
        else move_one(piece, to, from, out, clears ? nullptr : in);
    }
}

__device__ const ra__cuda_piece &find_piece(const ra__cuda_gather &gather, int64_t item)
{
    int low = 0, high = gather.piece_count;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (gather.pieces[middle].first_item <= item) low = middle;
        else high = middle;
    }
    return gather.pieces[low];
}

__global__ void __launch_bounds__(THREADS) gather_kernel(const ra__cuda_gather gather)
{
    const int64_t item = blockIdx.x;
    const ra__cuda_piece &piece = find_piece(gather, item);
    const int64_t first = (item - piece.first_item) * piece.tokens_per_item;
    const int64_t left = piece.tokens - first;
    const int tokens = (int)(left < piece.tokens_per_item ? left : piece.tokens_per_item);
    if (piece.width > 0) {
        move(gather, piece, first, tokens);
        return;
    }
    /* Bytes of a message, as they are: both ends are messages. */
    char *out = gather.places[gather.place_of[piece.to.buffer]].data + piece.to.token + first;
    const char *in = gather.places[gather.place_of[piece.from.buffer]].data + piece.from.token +
                     first;
    for (int i = threadIdx.x; i < tokens; i += THREADS) out[i] = in[i];
}

__global__ void __launch_bounds__(THREADS) narrow_kernel(const ra__cuda_narrow args)
{
    const int64_t all = args.tokens * args.heads * args.width;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t row = i / args.width;
        const float *from = args.from + row / args.heads * args.token +
                            row % args.heads * args.head;
        narrow(args.dtype, args.to + i * bytes_of(args.dtype), from[i % args.width]);
    }
}

} // namespace

int ra__cuda_narrow_launch(const struct ra__cuda_narrow *args, void *stream)
{
    const int64_t blocks = (args->tokens * args->heads * args->width + THREADS - 1) / THREADS;
    return ra::launch_blocks(narrow_kernel, blocks < 4096 ? blocks : 4096, THREADS, stream, *args);
}

int ra__cuda_gather_launch(const struct ra__cuda_gather *gather, void *stream)
{
    return ra::launch_blocks(gather_kernel, gather->items, THREADS, stream, *gather);
}
