/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_parts.c - names of statuses, the version, the lists of parts, and whose error sentence
 * it is. */
#include "support/desk.h"
#include "support/walk.h"

static void statuses_have_names_and_texts(void **state)
{
    (void)state;
#define CHECK(name, value, text)                                                                   \
    assert_int_equal(name, value);                                                                 \
    assert_string_equal(ra_status_name(name), #name);                                              \
    assert_string_equal(ra_status_text(name), text);
    RA_STATUS_LIST(CHECK)
#undef CHECK
    assert_string_equal(ra_status_name((ra_status)-1), "unknown status");
    assert_string_equal(ra_status_text((ra_status)12), "unknown status");
    assert_string_equal(ra_status_name((ra_status)12345), "unknown status");
}

static void the_version_is_that_of_the_header(void **state)
{
    (void)state;
    char want[32];
    snprintf(want, sizeof want, "%d.%d.%d", RA_VERSION_MAJOR, RA_VERSION_MINOR, RA_VERSION_PATCH);
    assert_string_equal(ra_version(), want);
}

static void every_kind_of_part_has_rows(void **state)
{
    (void)state;
    static const char *const kinds[] = { "kernel", "device",    "transport", "pattern",
                                         "order",  "partition", "strategy" };
    for (int k = 0; k < TEST_COUNT(kinds); k++) {
        ra_part part;
        int rows = 0, chosen = 0;
        for (; walk_part(kinds[k], rows, &part); rows++) {
            assert_true(part.name && *part.name && part.summary && *part.summary);
            assert_true(part.why && *part.why && part.samples && *part.samples);
            assert_true(part.usable == 0 || part.usable == 1);
            assert_true(!part.chosen || part.usable);
            chosen += part.chosen;
            assert_true((k == 0) == (part.dtypes != 0)); /* kernels take some, others do not ask */
        }
        assert_true(rows > 0);
        assert_true(k == 0 ? chosen >= 1 : chosen == 1);
        assert_fails(RA_ERR_ARGUMENT, "there is no row", ra_part_at(kinds[k], rows, &part));
        assert_fails(RA_ERR_ARGUMENT, "there is no row -1", ra_part_at(kinds[k], -1, &part));
    }
}

/* Of the kernels that take a dtype, the one that is chosen for it computes its plans and states. */
static void kernels_take_the_dtypes_they_say(void **state)
{
    (void)state;
    static const char *const names[] = { "f32", "bf16", "f16" };
    for (int t = 0; t < TEST_COUNT(names); t++) {
        ra_part kernel;
        ra_problem problem = desk_problem();
        ra_plan_options options = ra_plan_options_default();
        ra_plan *plan;
        ra_state *made;
        problem.dtype = (ra_dtype)t;
        assert_ok(ra_plan_create(NULL, &problem, &options, &plan));
        bool known = false;
        for (int k = 0; walk_usable("kernel", k, &kernel); k++) {
            char sentence[64];
            options.kernel = kernel.name;
            if (!strcmp(ra_plan_kernel(plan), kernel.name))
                known = kernel.chosen && kernel.dtypes >> t & 1;
            if (kernel.dtypes >> t & 1) continue;
            snprintf(sentence, sizeof sentence, "'%s' supports ", kernel.name);
            assert_fails(RA_ERR_UNSUPPORTED, sentence,
                         ra_plan_create(NULL, &problem, &options, &plan));
            snprintf(sentence, sizeof sentence, ", not %s", names[t]);
            assert_fails(RA_ERR_UNSUPPORTED, sentence,
                         ra_state_create(&problem, kernel.name, &made));
        }
        assert_true(known);
        ra_plan_destroy(plan);
    }
}

static ra_dtype first_dtype(const ra_part *kernel)
{
    int dtype = 0;
    while (!(kernel->dtypes >> dtype & 1)) dtype++;
    return (ra_dtype)dtype;
}

static void names_of_parts_are_what_options_take(void **state)
{
    (void)state;
    ra_part kernel, strategy, partition;
    ra_problem problem = desk_problem();
    for (int k = 0; walk_usable("kernel", k, &kernel); k++)
        for (int s = 0; walk_usable("strategy", s, &strategy); s++)
            for (int p = 0; walk_usable("partition", p, &partition); p++) {
                ra_plan *plan;
                ra_plan_options options = ra_plan_options_default();
                problem.dtype = first_dtype(&kernel);
                options.kernel = kernel.name;
                options.strategy = strategy.name;
                options.partition = partition.name;
                options.ranks = 3;
                assert_ok(ra_plan_create(NULL, &problem, &options, &plan));
                assert_string_equal(ra_plan_kernel(plan), kernel.name);
                ra_plan_destroy(plan);
            }
}

/* What a device says of itself is what a plan on it gets. */
static void devices_say_what_they_do(void **state)
{
    (void)state;
    ra_device device = ra_device_default();
    int count = 0;
    for (; ra_device_at(count, &device) == RA_OK; count++) {
        ra_problem problem = desk_problem();
        ra_plan_options options = ra_plan_options_default();
        ra_plan *plan;
        assert_true(*device.device && device.dtype_why && *device.dtype_why);
        if (!device.kernel) continue;
        problem.dtype = device.dtype;
        problem.dim = problem.value_dim = 64;
        options.device = device.device;
        options.backward = 1;
        assert_ok(ra_plan_create(NULL, &problem, &options, &plan));
        assert_string_equal(ra_plan_kernel(plan), device.kernel);
        ra_plan_destroy(plan);
    }
    assert_true(count > 0);
    assert_fails(RA_ERR_ARGUMENT, "there is no row", ra_device_at(count, &device));
    assert_ok(ra_device_at(0, &device));
    assert_string_equal(device.device, "cpu");
    assert_int_equal(device.dtype, RA_F32);
    assert_int_equal(device.capability, 0);
}

/* Those of the default device come first in the list of all. */
static void kernels_of_a_device_are_listed(void **state)
{
    (void)state;
    ra_part one = ra_part_default(), all = ra_part_default();
    int count = 0;
    for (; ra_device_kernel_at("cpu", count, &one) == RA_OK; count++) {
        assert_ok(ra_part_at("kernel", count, &all));
        assert_string_equal(one.name, all.name);
        assert_int_equal(one.usable, all.usable);
        assert_int_equal(one.chosen, all.chosen);
        assert_ok(ra_device_kernel_at(NULL, count, &all));
        assert_string_equal(one.name, all.name);
    }
    assert_true(count > 0);
    assert_fails(RA_ERR_ARGUMENT, "there is no kernel", ra_device_kernel_at("cpu", count, &one));
    assert_fails(RA_ERR_ARGUMENT, "there is no cpu:1", ra_device_kernel_at("cpu:1", 0, &one));
}

static void wrong_devices_are_refused(void **state)
{
    (void)state;
    ra_device device = ra_device_default();
    ra_part part = ra_part_default();
    assert_fails(RA_ERR_ARGUMENT, "there is no row -1", ra_device_at(-1, &device));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_device_at(0, NULL));
    assert_fails(RA_ERR_ARGUMENT, "\"abacus\"", ra_device_kernel_at("abacus", 0, &part));
    assert_fails(RA_ERR_ARGUMENT, "there is no kernel -1", ra_device_kernel_at(NULL, -1, &part));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_device_kernel_at(NULL, 0, NULL));
    device.size = 0;
    assert_fails(RA_ERR_ARGUMENT, "size is not set", ra_device_at(0, &device));
    device.size = offsetof(ra_device, name); /* an older caller: the rest stays as it is */
    strcpy(device.name, "mine");
    assert_ok(ra_device_at(0, &device));
    assert_string_equal(device.device, "cpu");
    assert_string_equal(device.name, "mine");
}

static void wrong_parts_are_refused(void **state)
{
    (void)state;
    ra_part part = ra_part_default();
    assert_fails(RA_ERR_ARGUMENT, "\"colour\" is not a kind of part",
                 ra_part_at("colour", 0, &part));
    assert_fails(RA_ERR_ARGUMENT, "is not a kind of part", ra_part_at(NULL, 0, &part));
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_part_at("kernel", 0, NULL));
    part.size = 0;
    assert_fails(RA_ERR_ARGUMENT, "size is not set", ra_part_at("kernel", 0, &part));
    assert_null(part.name);
}

static void errors_belong_to_their_thread(void **state)
{
    (void)state;
    assert_fails(RA_ERR_ARGUMENT, "NULL argument", ra_pattern_parse(NULL, NULL));
    char before[256];
    snprintf(before, sizeof before, "%s", ra_last_error());
    ra_pattern *pattern;
    assert_ok(ra_pattern_full(&pattern)); /* success leaves the old sentence */
    ra_pattern_destroy(pattern);
    assert_string_equal(ra_last_error(), before);
    assert_int_equal(ra_transport_error(RA_ERR_PEER, "the cable"), RA_ERR_PEER);
    assert_string_equal(ra_last_error(), "the cable");
    assert_int_equal(ra_transport_error(RA_ERR_PEER, NULL), RA_ERR_PEER);
    assert_string_equal(ra_last_error(), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_names_and_texts),
        cmocka_unit_test(the_version_is_that_of_the_header),
        cmocka_unit_test(every_kind_of_part_has_rows),
        cmocka_unit_test(kernels_take_the_dtypes_they_say),
        cmocka_unit_test(names_of_parts_are_what_options_take),
        cmocka_unit_test(devices_say_what_they_do),
        cmocka_unit_test(kernels_of_a_device_are_listed),
        cmocka_unit_test(wrong_devices_are_refused),
        cmocka_unit_test(wrong_parts_are_refused),
        cmocka_unit_test(errors_belong_to_their_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
