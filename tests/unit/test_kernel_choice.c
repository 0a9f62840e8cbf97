/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernel_choice.c - which kernel is chosen, and why. */
#include "support/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

static const char *const dtype_names[] = { [RA_F32] = "f32", [RA_BF16] = "bf16", [RA_F16] = "f16" };

/* By its name a kernel is given for the dtypes that it takes, and refused for the others in a
 * sentence that names both; nothing is written then. */
static void kernels_are_chosen_by_name(void **state)
{
    (void)state;
    unsetenv("RINGATTN_KERNEL");
    for (int i = 0; ra__kernel_at(i); i++)
        for (int t = 0; t < RA__COUNT(job_dtypes); t++) {
            const struct ra__kernel *kernel = ra__kernel_at(i), *got = NULL;
            ra_status status = ra__kernel_choose(kernel->name, job_dtypes[t], RA__MANY_ROWS, &got);
            bool takes = ra__kernel_takes(kernel, job_dtypes[t]), good = kernel->usable() && takes;
            char not_it[32];
            snprintf(not_it, sizeof not_it, ", not %s", dtype_names[job_dtypes[t]]);
            assert_int_equal(status, good ? RA_OK : RA_ERR_UNSUPPORTED);
            assert_ptr_equal(got, good ? kernel : NULL);
            if (!good) assert_non_null(strstr(ra_last_error(), kernel->name));
            if (!kernel->usable()) assert_non_null(strstr(ra_last_error(), kernel->needs));
            else if (!takes) assert_non_null(strstr(ra_last_error(), not_it));
        }
    assert_null(ra__kernel_at(-1));
}

/* The last usable one that is not slow here and takes the dtype; for few rows, that can take all
 * heads at once, and for one row also rounds no weights, or else the first. */
static const struct ra__kernel *expected_kernel(ra_dtype dtype, enum ra__query_rows rows)
{
    const struct ra__kernel *last = NULL;
    for (int i = 0; ra__kernel_at(i); i++) {
        const struct ra__kernel *kernel = ra__kernel_at(i);
        bool slow = kernel->slow && kernel->slow(), fits = i == 0;
        if (rows == RA__MANY_ROWS) fits = true;
        else if (kernel->wide && (rows == RA__FEW_ROWS || kernel->weights == RA_F32)) fits = true;
        if (kernel->usable() && !slow && fits && ra__kernel_takes(kernel, dtype)) last = kernel;
    }
    return last;
}

/* That is what `why` and `chosen` say. */
static void kernels_are_chosen_by_dtype(void **state)
{
    (void)state;
    unsetenv("RINGATTN_KERNEL");
    for (int t = 0; t < RA__COUNT(job_dtypes); t++) {
        const struct ra__kernel *got = NULL;
        for (enum ra__query_rows rows = RA__MANY_ROWS; rows <= RA__ONE_ROW; rows++) {
            assert_ok(ra__kernel_choose(NULL, job_dtypes[t], rows, &got));
            assert_ptr_equal(got, expected_kernel(job_dtypes[t], rows));
            assert_true(ra__kernel_chosen(got));
        }
        assert_ok(ra__kernel_choose(NULL, job_dtypes[t], RA__MANY_ROWS, &got));
        const char *why = ra__kernel_why(got), *names = strstr(why, " for ");
        assert_non_null(strstr(why, "the fastest one this CPU can run"));
        if (names) assert_non_null(strstr(names, dtype_names[job_dtypes[t]]));
    }
    for (int i = 0; ra__kernel_at(i); i++) {
        const struct ra__kernel *kernel = ra__kernel_at(i);
        const char *why = ra__kernel_why(kernel);
        bool fastest = strncmp(why, "the fastest one", 15) == 0;
        assert_true(fastest == ra__kernel_chosen(kernel));
        if (!kernel->usable()) assert_non_null(strstr(why, kernel->needs));
        else if (!fastest) assert_non_null(strstr(why, " is faster"));
    }
}

static void kernels_are_chosen_by_the_environment(void **state)
{
    (void)state;
    const struct ra__kernel *got = NULL;
    setenv("RINGATTN_KERNEL", "scalar", 1);
    for (int t = 0; t < RA__COUNT(job_dtypes); t++) {
        assert_ok(ra__kernel_choose(NULL, job_dtypes[t], RA__MANY_ROWS, &got));
        assert_string_equal(got->name, "scalar");
    }
    assert_string_equal(ra__kernel_why(got), "RINGATTN_KERNEL names it");
    assert_true(ra__kernel_chosen(got));
    for (int i = 0; ra__kernel_at(i); i++) {
        const struct ra__kernel *kernel = ra__kernel_at(i);
        for (int t = 0; t < RA__COUNT(job_dtypes); t++) {
            bool good = kernel->usable() && ra__kernel_takes(kernel, job_dtypes[t]);
            setenv("RINGATTN_KERNEL", "scalar", 1);
            if (good)
                assert_ok(ra__kernel_choose(kernel->name, job_dtypes[t], RA__MANY_ROWS, &got));
            if (good) assert_ptr_equal(got, kernel); /* a name comes first */
            setenv("RINGATTN_KERNEL", kernel->name, 1);
            assert_int_equal(ra__kernel_choose(NULL, job_dtypes[t], RA__MANY_ROWS, &got),
                             good ? RA_OK : RA_ERR_UNSUPPORTED);
        }
    }
    setenv("RINGATTN_KERNEL", "abacus", 1);
    got = NULL;
    assert_fails(RA_ERR_ARGUMENT, "abacus", ra__kernel_choose(NULL, RA_F32, RA__MANY_ROWS, &got));
    assert_non_null(strstr(ra_last_error(), "scalar"));
    assert_null(got);
    for (int i = 0; ra__kernel_at(i); i++) assert_false(ra__kernel_chosen(ra__kernel_at(i)));
    unsetenv("RINGATTN_KERNEL");
}

int main(void)
{
    job_find_kinds();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_chosen_by_name),
        cmocka_unit_test(kernels_are_chosen_by_dtype),
        cmocka_unit_test(kernels_are_chosen_by_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
