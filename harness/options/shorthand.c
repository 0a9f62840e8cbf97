/* SPDX-License-Identifier: Apache-2.0 */
/* shorthand.c - flags that stand for others. */
#include "shorthand.h"

#include <stdlib.h>
#include <string.h>

#include "harness/text/number.h"
#include "harness/problem/system.h"
#include "harness/text/text.h"

static int count_words(const char *list)
{
    int count = 1;
    for (; *list; list++) count += *list == ',';
    return count;
}

/* "2048,4096" and "1,2" to "dilated:2048/1,4096/2". */
static int write_branches(const char *lengths, const char *rates, struct string *pattern)
{
    char *copies[2] = { strdup(lengths), strdup(rates) }, *rest[2] = { copies[0], copies[1] };
    int status = copies[0] && copies[1] ? EXIT_PASS : fault("out of memory");
    string_add(pattern, "dilated:");
    for (const char *comma = ""; !status && rest[0]; comma = ",") {
        int64_t length, rate;
        status = number_whole("--segment-lengths", strsep(&rest[0], ","), 1, INT64_MAX, &length);
        if (!status)
            status = number_whole("--dilation-rates", strsep(&rest[1], ","), 1, INT64_MAX, &rate);
        if (!status) string_add(pattern, "%s%lld/%lld", comma, (long long)length, (long long)rate);
    }
    free(copies[0]);
    free(copies[1]);
    return status;
}

static int expand_segments(struct options *o)
{
    const char *lengths = o->segment_lengths, *rates = o->dilation_rates;
    struct string pattern = { .lost = false };
    if (!lengths && !rates) return EXIT_PASS;
    if (!lengths || !rates)
        return refuse("%s needs %s beside it", lengths ? "--segment-lengths" : "--dilation-rates",
                      lengths ? "--dilation-rates" : "--segment-lengths");
    if (flags_given(o, "--pattern"))
        return refuse("--segment-lengths is another way to write --pattern dilated:...; leave one "
                      "of them out");
    if (count_words(lengths) != count_words(rates))
        return refuse("--segment-lengths has %d numbers and --dilation-rates %d; each branch needs "
                      "one of both",
                      count_words(lengths), count_words(rates));
    int status = write_branches(lengths, rates, &pattern);
    if (!status && pattern.lost) status = fault("out of memory");
    if (!status) status = trial_set(&o->trial, "pattern", "--segment-lengths", pattern.s);
    string_free(&pattern);
    return status;
}

static int expand_system(struct options *o)
{
    bool given[SYSTEM_FIELDS];
    if (!o->trial.system) return EXIT_PASS;
    for (int i = 0; i < SYSTEM_FIELDS; i++) {
        char flag[32];
        snprintf(flag, sizeof flag, "--%s", system_keys[i]);
        given[i] = flags_given(o, flag);
        if (!strcmp(system_keys[i], "pattern")) given[i] = given[i] || o->segment_lengths;
    }
    return system_apply(&o->trial, given);
}

int shorthand_expand(struct options *options)
{
    int status = expand_segments(options);
    return status ? status : expand_system(options);
}
