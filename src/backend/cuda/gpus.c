/* SPDX-License-Identifier: Apache-2.0 */
/* gpus.c - the GPUs there are: what each is, and in which dtype it computes best. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"

static const char bf16_why[] = "tensor cores from Ampere on take bf16, which has the range of f32";
static const char f16_why[] = "half the bytes of f32, and Volta and Turing have no bf16";
static const char f32_why[] =
    "Pascal has no tensor cores, and most of it runs f16 at 1/64 of the rate of f32";

/* By the least compute capability, newest first. */
static const struct architecture {
    int sm;
    const char *name;
    ra_dtype dtype;
    const char *dtype_why;
} architectures[] = {
    { 130, "newer than Blackwell", RA_BF16, bf16_why },
    { 100, "Blackwell", RA_BF16, bf16_why },
    { 90, "Hopper", RA_BF16, bf16_why },
    { 89, "Ada Lovelace", RA_BF16, bf16_why },
    { 80, "Ampere", RA_BF16, bf16_why },
    { 75, "Turing", RA_F16, f16_why },
    { 70, "Volta", RA_F16, f16_why },
    { 60, "Pascal", RA_F32, f32_why },
    { 0, "older than Pascal", RA_F32, "there is no kernel for it" },
};

static const struct architecture *architecture_of(int sm)
{
    const struct architecture *row = architectures;
    while (row->sm > sm) row++;
    return row;
}

bool ra__cuda_device_at(int number, struct ra__device_facts *out)
{
    struct ra__cuda_facts facts;
    if (number < 0 || ra__cuda_facts_of(number, &facts) != RA_OK) return false;
    const struct architecture *row = architecture_of(facts.sm);
    *out = (struct ra__device_facts){ .architecture = row->name,
                                      .capability = facts.sm,
                                      .memory = (size_t)facts.memory,
                                      .dtype = row->dtype,
                                      .dtype_why = row->dtype_why };
    snprintf(out->name, sizeof out->name, "%s", facts.name);
    return true;
}

/* "cuda:0 NVIDIA H200, cuda:1 NVIDIA H200" */
static void list_names(int count, char *text, size_t room)
{
    struct ra__cuda_facts facts;
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(text);
        const bool known = ra__cuda_facts_of(i, &facts) == RA_OK;
        snprintf(text + used, room - used, "%scuda:%d %s", i ? ", " : "", i,
                 known ? facts.name : "cannot be used");
    }
}

const char *ra__cuda_about(void)
{
    static char text[900];
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    text[0] = 0;
    if (error == cudaSuccess && count > 0) {
        list_names(count, text, sizeof text);
        return text;
    }
    cudaGetLastError();
    snprintf(text, sizeof text, "no GPU can be used: %s%s", cudaGetErrorString(error),
             error == cudaErrorInsufficientDriver ? "; install NVIDIA's driver, or a newer one"
                                                  : "");
    return text;
}
