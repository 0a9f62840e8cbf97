/* SPDX-License-Identifier: Apache-2.0 */
/* test_sm90.cc - the lab's check of all Hopper kernels, on an emulated GPU: in bf16 with what is
 * asynchronous as late as it may be; then dim 64 with all of it in random order. An argument selects
 * a dim. */
#define main launches
#include "../../bench/lab/launches.cu"
#undef main

int main(int count, char **arguments)
{
    char name[] = "sm90", few[] = "few", small[] = "64";
    char *all[] = { name, few, count > 1 ? arguments[1] : nullptr };
    char *random[] = { name, few, small };
    setenv("RINGATTN_EMULATED_SM", "90", 1);
    unsetenv("RINGATTN_EMULATED_SEED");
    const int failed = launches(count > 1 ? 3 : 2, all);
    setenv("RINGATTN_EMULATED_SEED", "1", 1);
    return launches(3, random) | failed;
}
