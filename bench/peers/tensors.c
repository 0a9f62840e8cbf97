/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.c - writes the tensors that all peers read: the same normally distributed numbers as f32,
 * f16 and bf16.
 *
 *   usage: tensors FOLDER TOKENS HEADS DIM
 *
 * q.f32.npy, q.f16.npy, q.bf16.npy and so on for k, v and dout, each [position, head, dim]. NumPy
 * has no bf16: these files hold the bits as 16-bit unsigned integers. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 128 }; /* bytes before the data, as the readers know */

/* A multiplicative generator (Vigna's xorshift64*), good enough for test data. */
static uint32_t draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (uint32_t)((*state * 0x2545f4914f6cdd1dull) >> 32);
}

/* Two normal numbers of variance 1 (Box and Muller). */
static void draw_normal(uint64_t *state, float *pair)
{
    float radius = sqrtf(-2.0f * logf(((float)(draw(state) >> 8) + 1.0f) / 16777216.0f));
    float angle = 6.2831853f * (float)(draw(state) >> 8) / 16777216.0f;
    pair[0] = radius * cosf(angle);
    pair[1] = radius * sinf(angle);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Half a unit of the last place kept, and ties to even; no NaN and nothing near overflow comes
 * here. */
static uint16_t to_bf16(float x)
{
    uint32_t bits = bits_of(x);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static uint16_t to_f16(float x)
{
    uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
    uint32_t bits = bits_of(fabsf(x));
    if (bits < 0x38800000) return sign | (uint16_t)lrintf(ldexpf(fabsf(x), 24)); /* subnormal */
    bits -= 0x38000000; /* exponent bias 127 to 15 */
    return sign | (uint16_t)((bits + 0xfff + ((bits >> 13) & 1)) >> 13);
}

struct tensor {
    const char *folder, *name;
    long long tokens;
    int heads, dim;
};

static bool write_npy(const struct tensor *t, const char *dtype, const char *code, const void *data,
                      size_t bytes)
{
    char path[4096], header[HEADER + 1];
    snprintf(path, sizeof path, "%s/%s.%s.npy", t->folder, t->name, dtype);
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    int used = snprintf(
        header, sizeof header,
        "\x93NUMPY\x01%c%c%c{'descr': '<%s', 'fortran_order': False, 'shape': (%lld, "
        "%d, %d)}",
        0, HEADER - 10, 0, code, t->tokens, t->heads, t->dim);
    memset(header + used, ' ', (size_t)(HEADER - used));
    header[HEADER - 1] = '\n';
    bool good = fwrite(header, HEADER, 1, file) == 1 && fwrite(data, bytes, 1, file) == 1;
    return !fclose(file) && good;
}

static bool write_tensor(const struct tensor *t, uint64_t seed)
{
    size_t count = (size_t)t->tokens * (size_t)t->heads * (size_t)t->dim;
    float *data = malloc((count + 1) * sizeof *data); /* numbers come in pairs */
    uint16_t *half = malloc(count * sizeof *half);
    bool good = data && half;
    for (size_t i = 0; good && i < count; i += 2) draw_normal(&seed, data + i);
    good = good && write_npy(t, "f32", "f4", data, count * sizeof *data);
    for (size_t i = 0; good && i < count; i++) half[i] = to_f16(data[i]);
    good = good && write_npy(t, "f16", "f2", half, count * sizeof *half);
    for (size_t i = 0; good && i < count; i++) half[i] = to_bf16(data[i]);
    good = good && write_npy(t, "bf16", "u2", half, count * sizeof *half);
    free(data);
    free(half);
    return good;
}

int main(int argc, char **argv)
{
    static const char *const names[] = { "q", "k", "v", "dout" };
    if (argc != 5) {
        fprintf(stderr, "usage: tensors FOLDER TOKENS HEADS DIM\n");
        return 2;
    }
    struct tensor tensor = { argv[1], NULL, atoll(argv[2]), atoi(argv[3]), atoi(argv[4]) };
    if (tensor.tokens < 1 || tensor.heads < 1 || tensor.dim < 1) {
        fprintf(stderr, "tensors: sizes must be at least 1\n");
        return 2;
    }
    for (int i = 0; i < 4; i++) {
        tensor.name = names[i];
        if (write_tensor(&tensor, 0x9e3779b97f4a7c15ull * (uint64_t)(i + 1))) continue;
        fprintf(stderr, "tensors: %s cannot be written to %s\n", names[i], argv[1]);
        return 1;
    }
    return 0;
}
