/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_map.cc - tensor maps: made by the driver's function, read by the copy engine. */
#include "tensor_map.h"

#include <string.h>

#include <memory>
#include <vector>

#include "internal.h"
#include "races.h"

namespace emulated
{

constexpr int WIPED_BYTE = 0xFF; /* NaN */

static bool fits(const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                 const void *base)
{
    bool good = (uintptr_t)base % 16 == 0 && box[0] * 2 <= 128;
    for (int i = 0; i < 5; i++)
        good &= dims[i] > 0 && dims[i] <= (1ull << 32) && box[i] > 0 && box[i] <= 256;
    for (int i = 0; i < 4; i++) good &= strides[i] % 16 == 0 && strides[i] < (1ull << 40);
    return good;
}

CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType, cuuint32_t rank, void *base,
                      const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                      const cuuint32_t *steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    if (rank != 5 || swizzle != CU_TENSOR_MAP_SWIZZLE_128B || !fits(dims, strides, box, base))
        return CUDA_ERROR_INVALID_VALUE;
    map->base = static_cast<const char *>(base);
    for (int i = 0; i < 5; i++) {
        if (steps[i] != 1) return CUDA_ERROR_INVALID_VALUE;
        map->dims[i] = (uint32_t)dims[i];
        map->box[i] = box[i];
        map->strides[i] = i ? strides[i - 1] : 2;
    }
    return CUDA_SUCCESS;
}

/* 128 bytes of a row of the box, or zeros where the tensor has none. */
static void copy_row(char *to, const CUtensorMap *map, const int (&at)[5])
{
    const size_t bytes = map->box[0] * 2;
    const char *from = map->base;
    memset(to, 0, bytes);
    for (int i = 0; i < 5; i++) {
        if (at[i] < 0 || (uint32_t)at[i] >= map->dims[i]) return;
        from += (uint64_t)at[i] * map->strides[i];
    }
    const uint32_t left = map->dims[0] - (uint32_t)at[0];
    race_access(from, left * 2 < bytes ? left * 2 : bytes, ACCESS_READ | ACCESS_ASYNC);
    memcpy(to, from, left * 2 < bytes ? left * 2 : bytes);
}

static size_t box_rows(const CUtensorMap *map)
{
    return (size_t)map->box[1] * map->box[2] * map->box[3] * map->box[4];
}

/* Row number `row` of the box to shared memory; its 16-byte pieces change places. */
static void store_row(int rank, uint32_t to, const char *row)
{
    const uint32_t turn = to >> 7 & 7;
    char *at = static_cast<char *>(shared_pointer_of(rank, to, 128));
    race_access(at, 128, ACCESS_WRITE | ACCESS_ASYNC);
    for (uint32_t piece = 0; piece < 8; piece++)
        memcpy(at + 16 * (piece ^ turn), row + 16 * piece, 16);
}

static void copy_box(int rank, uint32_t to, const CUtensorMap *map, const int (&at)[5])
{
    char row[128];
    for (size_t i = 0; i < box_rows(map); i++) {
        size_t left = i;
        int here[5] = { at[0] };
        for (int d = 1; d < 5; d++) {
            here[d] = at[d] + (int)(left % map->box[d]);
            left /= map->box[d];
        }
        copy_row(row, map, here);
        store_row(rank, to + (uint32_t)i * 128, row);
    }
}

/* A copy into shared memory is issued: what is there is gone from now on. */
static race_handle wipe(int rank, uint32_t to, size_t bytes, uint32_t barrier)
{
    const race_handle operation = race_issue(point(POINT_PHASE, (uint64_t)rank, barrier));
    void *place = shared_pointer_of(rank, to, bytes);
    race_enter(operation);
    race_access(place, bytes, ACCESS_WRITE | ACCESS_ASYNC);
    race_leave();
    memset(place, WIPED_BYTE, bytes);
    return operation;
}

void copy_tensor(uint32_t to, const CUtensorMap *map, uint32_t barrier, const int (&at)[5],
                 uint32_t ranks)
{
    const race_place here(__builtin_return_address(0));
    const size_t bytes = box_rows(map) * 128;
    if (to % 128 || map->box[0] != 64) fail("a box of a tensor map to %u", (unsigned)to);
    const CUtensorMap copied = *map;
    struct coordinates {
        int at[5];
    } start;
    memcpy(start.at, at, sizeof start.at);
    for (int rank = 0; ranks >> rank; rank++) {
        if (!(ranks >> rank & 1)) continue;
        const race_handle operation = wipe(rank, to, bytes, barrier);
        const auto write = [=] {
            race_enter(operation);
            copy_box(rank, to, &copied, start.at);
            mbarrier_complete(rank, barrier, (int)bytes);
            race_leave();
        };
        engine_post({ nullptr, write, false });
    }
}

void copy_stretch(uint32_t to, const void *from, int bytes, uint32_t barrier)
{
    const race_place here(__builtin_return_address(0));
    if (to % 16 || (uintptr_t)from % 16 || bytes % 16)
        fail("a bulk copy of %d bytes from %p to %u: misaligned", bytes, from, (unsigned)to);
    const int rank = cluster_rank();
    const race_handle operation = wipe(rank, to, (size_t)bytes, barrier);
    const auto write = [=] {
        void *place = shared_pointer_of(rank, to, (size_t)bytes);
        race_enter(operation);
        race_access(from, (size_t)bytes, ACCESS_READ | ACCESS_ASYNC);
        race_access(place, (size_t)bytes, ACCESS_WRITE | ACCESS_ASYNC);
        memcpy(place, from, (size_t)bytes);
        mbarrier_complete(rank, barrier, bytes);
        race_leave();
    };
    engine_post({ nullptr, write, false });
}

void copy_out(float *to, uint32_t from, int bytes, bool add)
{
    const race_place here(__builtin_return_address(0));
    if (from % 16 || (uintptr_t)to % 16 || bytes % 16)
        fail("a bulk copy of %d bytes from %u to %p: misaligned", bytes, (unsigned)from,
             (void *)to);
    const int rank = cluster_rank();
    const auto numbers = std::make_shared<std::vector<float>>((size_t)bytes / sizeof(float));
    const uint64_t is_read = point(POINT_READ, (uint64_t)fiber_slot());
    const uint64_t is_written = point(POINT_WRITTEN, (uint64_t)fiber_slot());
    const race_handle reading = race_issue(is_read), writing = race_issue(is_written);
    const auto read = [=] {
        const void *place = shared_pointer_of(rank, from, (size_t)bytes);
        race_enter(reading);
        race_access(place, (size_t)bytes, ACCESS_READ | ACCESS_ASYNC);
        race_release(is_read);
        race_leave();
        memcpy(numbers->data(), place, (size_t)bytes);
    };
    const auto write = [=] {
        race_enter(writing);
        race_access(to, (size_t)bytes, ACCESS_WRITE | ACCESS_ASYNC | (add ? ACCESS_ATOMIC : 0));
        race_release(is_written);
        race_leave();
        for (size_t i = 0; i < numbers->size(); i++) to[i] = (add ? to[i] : 0) + (*numbers)[i];
    };
    engine_post({ read, write, true });
}

} // namespace emulated
