/* flags.c - one table of flags that feeds parsing and help of every verb. */
#include "flags.h"

#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "text.h"

enum kind {
    SETS_TRIAL,  /* a field of the trial, by its key in problem strings */
    SETS_TEXT,   /* a const char * of the options */
    SETS_BYTES,  /* an int64_t, 512M */
    SETS_WHOLE,  /* an int64_t */
    SETS_TIME,   /* a double, seconds */
    SETS_SWITCH, /* a bool of the options */
    SETS_BACKWARD,
    SETS_NOTHING, /* accepted: it asks for what is always so */
    IS_LATER      /* refused by name: it belongs to a later version */
};

enum group { PROBLEM, DATA, MACHINE, OUTPUT, LATER, GROUPS };
static const char *const group_titles[GROUPS] = {
    "Problem", "Data", "Ranks and machine", "Output", "Not in this version",
};

#define ALL (VERB_RUN | VERB_VERIFY | VERB_PLAN | VERB_INFO | VERB_DEMO)
#define SIZED (VERB_RUN | VERB_PLAN)
#define TRIAL(verbs_, group_, name_, argument_, key_, help_)                                       \
    {                                                                                              \
        .name = name_, .argument = argument_, .help = help_, .group = group_, .verbs = verbs_,     \
        .kind = SETS_TRIAL, .key = key_                                                            \
    }
#define SET(verbs_, group_, name_, argument_, kind_, field_, help_)                                \
    {                                                                                              \
        .name = name_, .argument = argument_, .help = help_, .group = group_, .verbs = verbs_,     \
        .kind = kind_, .offset = offsetof(struct options, field_)                                  \
    }
#define OTHER(verbs_, group_, name_, argument_, kind_, help_)                                      \
    {                                                                                              \
        .name = name_, .argument = argument_, .help = help_, .group = group_, .verbs = verbs_,     \
        .kind = kind_                                                                              \
    }

static const struct flag {
    const char *name;
    const char *argument; /* NULL: a switch */
    const char *help;
    enum group group;
    unsigned verbs;
    enum kind kind;
    const char *key; /* of SETS_TRIAL */
    size_t offset;   /* of the others */
} flags[] = {
    TRIAL(SIZED, PROBLEM, "--pattern", "TEXT", "pattern",
          "who sees whom: full, causal, window:L[,R], prefix:N, each with ;causal and "
          ";docs=0,a,...,n (full)"),
    TRIAL(SIZED, PROBLEM, "--tokens", "N", "n", "queries, of synthetic data (4096)"),
    TRIAL(SIZED, PROBLEM, "--kv-tokens", "N", "nk", "keys, where they differ from the queries"),
    TRIAL(SIZED, PROBLEM, "--heads", "N", "h", "query heads (8)"),
    TRIAL(SIZED, PROBLEM, "--kv-heads", "N", "hk", "KV heads; divides the query heads"),
    TRIAL(SIZED, PROBLEM, "--dim", "N", "d", "numbers per head of Q and K (64)"),
    TRIAL(SIZED, PROBLEM, "--value-dim", "N", "dv", "numbers per head of V, where they differ"),
    TRIAL(SIZED, PROBLEM, "--batch", "N", "b", "sequences (1)"),
    TRIAL(SIZED, PROBLEM, "--dtype", "NAME", "dtype",
          "auto, f32, bf16 or f16; auto: as the files, or f32 for synthetic data on a CPU"),
    TRIAL(SIZED, PROBLEM, "--scale", "X", "scale", "factor of q.k (1/sqrt(dim))"),
    TRIAL(SIZED, PROBLEM, "--order", "NAME", "order", "order of the positions: sequential"),
    OTHER(SIZED, PROBLEM, "--backward", NULL, SETS_BACKWARD,
          "gradients too; with files it needs --dout"),
    TRIAL(VERB_RUN, DATA, "--seed", "N", "seed", "of synthetic data (0)"),
    SET(VERB_RUN, DATA, "--q", "FILE", SETS_TEXT, q,
        "queries, .npy of f32 or f16 [batch, position, head, dim]; 3-D means batch 1"),
    SET(VERB_RUN, DATA, "--k", "FILE", SETS_TEXT, k, "keys"),
    SET(VERB_RUN, DATA, "--v", "FILE", SETS_TEXT, v, "values"),
    SET(VERB_RUN, DATA, "--dout", "FILE", SETS_TEXT, dout,
        "gradient of the output, shaped like it"),
    SET(VERB_RUN, DATA, "--dlse", "FILE", SETS_TEXT, dlse,
        "gradient through the LSE, f32 [batch, position, head]"),
    SET(VERB_RUN, DATA, "--out", "FILE", SETS_TEXT, out, "write the output, f32"),
    SET(VERB_RUN, DATA, "--lse", "FILE", SETS_TEXT, lse,
        "write the LSE, f32 [batch, position, head]"),
    SET(VERB_RUN, DATA, "--dq", "FILE", SETS_TEXT, dq, "write the gradient of the queries, f32"),
    SET(VERB_RUN, DATA, "--dk", "FILE", SETS_TEXT, dk, "write the gradient of the keys, f32"),
    SET(VERB_RUN, DATA, "--dv", "FILE", SETS_TEXT, dv, "write the gradient of the values, f32"),
    TRIAL(SIZED, MACHINE, "--ring", "P", "ring", "ranks (1)"),
    TRIAL(SIZED, MACHINE, "--ring-size", "P", "ring", "the same as --ring"),
    TRIAL(SIZED, MACHINE, "--strategy", "NAME", "strategy",
          "how K and V reach the queries: ring or allgather (ring)"),
    TRIAL(
        SIZED, MACHINE, "--partition", "NAME", "partition",
        "who owns which positions: contiguous, zigzag or striped, each with ;perdoc (contiguous)"),
    TRIAL(SIZED, MACHINE, "--transport", "NAME", "transport",
          "what carries bytes between ranks: local, threads of this process"),
    TRIAL(SIZED, MACHINE, "--device", "NAME", "device", "auto or cpu"),
    TRIAL(SIZED | VERB_VERIFY | VERB_DEMO, MACHINE, "--kernel", "NAME", "kernel",
          "the kernel to use; `ringattn info` lists them (the fastest that works here)"),
    TRIAL(SIZED | VERB_VERIFY | VERB_DEMO, MACHINE, "--threads", "N", "threads",
          "threads of each rank (the cores shared out among the ranks)"),
    SET(SIZED, MACHINE, "--memory", "SIZE", SETS_BYTES, memory,
        "budget of each rank, e.g. 512M; refused with the bytes needed if it is too small"),
    SET(SIZED | VERB_VERIFY, MACHINE, "--timeout", "SECONDS", SETS_TIME, timeout,
        "how long a silent rank is waited for (60)"),
    OTHER(SIZED | VERB_VERIFY, MACHINE, "--deterministic", NULL, SETS_NOTHING,
          "accepted: every run gives the same bits"),
    SET(VERB_RUN, OUTPUT, "--verify", NULL, SETS_SWITCH, verify,
        "check the result against the fp64 oracle with files too; synthetic data always is"),
    SET(VERB_RUN, OUTPUT, "--trace", "FILE", SETS_TEXT, trace,
        "write a timeline for the Chrome trace viewer"),
    SET(VERB_VERIFY, OUTPUT, "--list", NULL, SETS_SWITCH, list, "print the grid and do not run it"),
    SET(VERB_VERIFY, OUTPUT, "--quick", NULL, SETS_SWITCH, quick, "every eighth case of the grid"),
    SET(VERB_PLAN, OUTPUT, "--rings", "LIST", SETS_TEXT, rings,
        "memory per rank over several rank counts, e.g. 1,2,4,8, as a table"),
    SET(VERB_PLAN, OUTPUT, "--explain", NULL, SETS_SWITCH, explain, "print the steps of one rank"),
    SET(VERB_PLAN, OUTPUT, "--rank", "R", SETS_WHOLE, rank, "the rank to explain (0)"),
    SET(VERB_PLAN, OUTPUT, "--mask", "FILE", SETS_TEXT, mask,
        "write who sees whom, .npy of uint8 [query, key], up to 4096 x 4096"),
    SET(ALL & ~VERB_DEMO, OUTPUT, "--json", NULL, SETS_SWITCH, json, "print one JSON object"),
    SET(ALL & ~VERB_INFO, OUTPUT, "--quiet", NULL, SETS_SWITCH, quiet, "no progress line"),
    OTHER(SIZED, LATER, "--segment-lengths", "LIST", IS_LATER, "dilated attention"),
    OTHER(SIZED, LATER, "--dilation-rates", "LIST", IS_LATER, "dilated attention"),
    OTHER(SIZED, LATER, "--softcap", "X", IS_LATER, "bounded scores"),
    OTHER(SIZED, LATER, "--alibi", "LIST", IS_LATER, "scores that fall with distance"),
    OTHER(SIZED, LATER, "--sinks", "FILE", IS_LATER, "one more key per head"),
    OTHER(SIZED, LATER, "--dsinks", "FILE", IS_LATER, "its gradient"),
    OTHER(SIZED, LATER, "--bias", "FILE", IS_LATER, "additive scores"),
    OTHER(SIZED, LATER, "--dropout", "RATE", IS_LATER, "dropped weights"),
    OTHER(SIZED, LATER, "--system", "NAME", IS_LATER, "named presets"),
};

_Static_assert(sizeof flags / sizeof flags[0] <= 64, "struct options has a bit per flag");

static const struct flag *find_flag(const char *name, size_t length)
{
    for (int i = 0; i < COUNT(flags); i++)
        if (strlen(flags[i].name) == length && !memcmp(flags[i].name, name, length))
            return &flags[i];
    return NULL;
}

static int refuse_unknown(const struct verb *verb, const char *name)
{
    const struct flag *near = NULL;
    int least = 3; /* two letters off is a slip; more is another word */
    for (int i = 0; i < COUNT(flags); i++) {
        int distance = text_distance(name, flags[i].name);
        bool short_name = strlen(name) <= (size_t)distance + 3; /* little is left to go by */
        if (!(flags[i].verbs & verb->bit) || distance >= least || short_name) continue;
        least = distance;
        near = &flags[i];
    }
    if (near)
        return refuse("%s: there is no flag %.60s; did you mean %s?", verb->name, name, near->name);
    return refuse("%s: there is no flag %.60s; see ringattn help %s", verb->name, name, verb->name);
}

/* Remembers that a flag was given; a second time is a slip. Flags that set one field are one. */
static int mark_given(struct options *options, const struct flag *flag)
{
    for (int i = 0; i < COUNT(flags); i++) {
        bool same = &flags[i] == flag ||
                    (flag->key && flags[i].key && !strcmp(flag->key, flags[i].key));
        if (same && options->given & (uint64_t)1 << i)
            return &flags[i] == flag ? refuse("%s is given twice", flag->name)
                                     : refuse("%s: %s is given already", flag->name, flags[i].name);
    }
    options->given |= (uint64_t)1 << (flag - flags);
    return EXIT_PASS;
}

static int set_value(struct options *options, const struct flag *flag, const char *value)
{
    void *place = (char *)options + flag->offset;
    switch (flag->kind) {
    case SETS_TRIAL: return trial_set(&options->trial, flag->key, flag->name, value);
    case SETS_TEXT:
        if (!*value) return refuse("%s: its value %s is empty", flag->name, flag->argument);
        *(const char **)place = value;
        return EXIT_PASS;
    case SETS_BYTES: return number_bytes(flag->name, value, place);
    case SETS_WHOLE: return number_whole(flag->name, value, 0, INT32_MAX, place);
    case SETS_TIME: return number_real(flag->name, value, 0.001, 1e9, place);
    case SETS_SWITCH: *(bool *)place = true; return EXIT_PASS;
    case SETS_BACKWARD: options->trial.backward = true; return EXIT_PASS;
    case SETS_NOTHING: return EXIT_PASS;
    case IS_LATER: break;
    }
    return refuse("%s (%s) is not in this version", flag->name, flag->help);
}

/* One flag, with its value behind "=" or in the next argument. Sets how many arguments it took. */
static int read_flag(const struct verb *verb, int argc, char **argv, struct options *options,
                     int *took)
{
    const char *name = argv[0];
    size_t length = strcspn(name, "=");
    const char *value = name[length] ? name + length + 1 : NULL;
    const struct flag *flag = find_flag(name, length);
    *took = 1;
    if (!flag) return refuse_unknown(verb, name);
    if (flag->kind == IS_LATER) return set_value(options, flag, "");
    if (!(flag->verbs & verb->bit)) return refuse("%s takes no %s", verb->name, flag->name);
    if (!flag->argument && value) return refuse("%s takes no value", flag->name);
    if (flag->argument && !value) {
        if (argc < 2) return refuse("%s: its value %s is missing", flag->name, flag->argument);
        value = argv[1];
        *took = 2;
    }
    int status = mark_given(options, flag);
    return status ? status : set_value(options, flag, value);
}

int flags_parse(const struct verb *verb, int argc, char **argv, struct options *options, bool *help)
{
    *options = (struct options){ .words = malloc(((size_t)argc + 1) * sizeof(char *)) };
    trial_default(&options->trial);
    *help = false;
    if (!options->words) return fault("out of memory");
    bool only_words = false;
    for (int i = 0, took; i < argc; i += took) {
        took = 1;
        if (only_words || argv[i][0] != '-' || !argv[i][1]) {
            options->words[options->word_count++] = argv[i];
            continue;
        }
        only_words = !strcmp(argv[i], "--");
        if (only_words) continue;
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            *help = true;
            return EXIT_PASS;
        }
        int status = read_flag(verb, argc - i, argv + i, options, &took);
        if (status) return status;
    }
    if (verb->bit != VERB_VERIFY && options->word_count)
        return refuse("%s: \"%.60s\" is not a flag; see ringattn help %s", verb->name,
                      options->words[0], verb->name);
    return EXIT_PASS;
}

void options_clear(struct options *options)
{
    free(options->words);
    trial_clear(&options->trial);
}

bool flags_given(const struct options *options, const char *name)
{
    const struct flag *flag = find_flag(name, strlen(name));
    return flag && options->given & (uint64_t)1 << (flag - flags);
}

/* ---- Help ------------------------------------------------------------------------------------ */

/* Words of `text` in lines of up to 96 columns, the next lines indented; the first starts at
 * `column`. */
static void print_wrapped(const char *text, int column, int indent)
{
    bool first = true;
    for (const char *word = text; *word; word += strspn(word, " ")) {
        int length = (int)strcspn(word, " ");
        if (!first && column + 1 + length > 96) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, word);
        column += length;
        word += length;
        first = false;
    }
    putchar('\n');
}

static void print_flag(const struct flag *flag)
{
    enum { INDENT = 27 };
    char left[64];
    snprintf(left, sizeof left, "%s %s", flag->name, flag->argument ? flag->argument : "");
    printf("  %-24s ", left);
    print_wrapped(flag->help, INDENT, INDENT);
}

void flags_help(const struct verb *verb)
{
    printf("Usage: ringattn %s %s\n\n", verb->name, verb->usage);
    print_wrapped(verb->about, 0, 0);
    for (int group = 0; group < GROUPS; group++) {
        bool titled = false;
        for (int i = 0; i < COUNT(flags); i++) {
            if ((int)flags[i].group != group || !(flags[i].verbs & verb->bit)) continue;
            if (!titled) printf("\n%s:\n", group_titles[group]);
            titled = true;
            print_flag(&flags[i]);
        }
    }
}
