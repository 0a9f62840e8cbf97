/* SPDX-License-Identifier: Apache-2.0 */
/* png.c - grey pictures as .png and .pgm.
 *
 * A PNG is a signature and chunks (length, name, bytes, CRC-32); the pixels are one zlib stream,
 * here of stored blocks, over lines that each start with the byte 0 (no filter), followed by an
 * Adler-32. */
#include "png.h"

#define STORED_MOST 65535u /* bytes of a stored block */

static void put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

/* A chunk being written; its length is known before. */
struct chunk {
    FILE *stream;
    uint32_t table[256];
    uint32_t crc;
};

static void fill_table(struct chunk *chunk)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
        chunk->table[i] = c;
    }
}

static void chunk_put(struct chunk *chunk, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        chunk->crc = chunk->table[(chunk->crc ^ bytes[i]) & 255] ^ chunk->crc >> 8;
    fwrite(bytes, 1, count, chunk->stream);
}

static void chunk_open(struct chunk *chunk, const char name[4], uint32_t length)
{
    unsigned char head[4];
    put_u32(head, length);
    fwrite(head, 1, sizeof head, chunk->stream);
    chunk->crc = UINT32_MAX;
    chunk_put(chunk, (const unsigned char *)name, 4);
}

static void chunk_close(struct chunk *chunk)
{
    unsigned char tail[4];
    put_u32(tail, chunk->crc ^ UINT32_MAX);
    fwrite(tail, 1, sizeof tail, chunk->stream);
}

/* ---- Pixels as a zlib stream ----------------------------------------------------------------- */

struct stored {
    struct chunk *chunk;
    uint64_t left;  /* bytes of the whole stream that are still to come */
    uint32_t block; /* of them in the open block */
    uint32_t a, b;  /* Adler-32 */
};

static void stored_put(struct stored *s, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count;) {
        if (!s->block) { /* a block starts: is it the last, its length, and that inverted */
            s->block = s->left < STORED_MOST ? (uint32_t)s->left : STORED_MOST;
            uint32_t n = s->block, not_n = ~n;
            const unsigned char head[5] = { s->left == n, (unsigned char)n, (unsigned char)(n >> 8),
                                            (unsigned char)not_n, (unsigned char)(not_n >> 8) };
            chunk_put(s->chunk, head, sizeof head);
        }
        size_t part = count - i < s->block ? count - i : s->block;
        chunk_put(s->chunk, bytes + i, part);
        for (size_t j = i; j < i + part; j++) {
            s->a = (s->a + bytes[j]) % 65521u;
            s->b = (s->b + s->a) % 65521u;
        }
        s->block -= (uint32_t)part;
        s->left -= part;
        i += part;
    }
}

static void put_pixels(struct chunk *chunk, const struct picture *p)
{
    static const unsigned char start[2] = { 0x78, 0x01 }, no_filter = 0;
    uint64_t bytes = (uint64_t)p->height * (p->width + 1u);
    uint64_t blocks = (bytes + STORED_MOST - 1) / STORED_MOST;
    struct stored stored = { .chunk = chunk, .left = bytes, .a = 1 };
    unsigned char end[4];
    chunk_open(chunk, "IDAT", (uint32_t)(sizeof start + 5 * blocks + bytes + sizeof end));
    chunk_put(chunk, start, sizeof start);
    for (uint32_t y = 0; y < p->height; y++) {
        stored_put(&stored, &no_filter, 1);
        stored_put(&stored, p->pixels + (size_t)y * p->width, p->width);
    }
    put_u32(end, stored.b << 16 | stored.a);
    chunk_put(chunk, end, sizeof end);
    chunk_close(chunk);
}

void png_write(FILE *stream, const struct picture *p)
{
    static const unsigned char signature[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    unsigned char header[13] = { [8] = 8 }; /* 8 bits of grey, deflate, no interlace */
    struct chunk chunk = { .stream = stream };
    fill_table(&chunk);
    put_u32(header, p->width);
    put_u32(header + 4, p->height);
    fwrite(signature, 1, sizeof signature, stream);
    chunk_open(&chunk, "IHDR", sizeof header);
    chunk_put(&chunk, header, sizeof header);
    chunk_close(&chunk);
    put_pixels(&chunk, p);
    chunk_open(&chunk, "IEND", 0);
    chunk_close(&chunk);
}

void pgm_write(FILE *stream, const struct picture *p)
{
    fprintf(stream, "P5\n%u %u\n255\n", p->width, p->height);
    fwrite(p->pixels, 1, (size_t)p->width * p->height, stream);
}
