/* SPDX-License-Identifier: Apache-2.0 */
/* flags.c - one table of flags that feeds parsing and help of every verb. */
#include "flags.h"

#include <stdlib.h>
#include <string.h>

#include "harness/text/number.h"
#include "harness/problem/places.h"
#include "shorthand.h"
#include "harness/text/text.h"

enum kind {
    SETS_TRIAL, /* a field of the trial, by its key in problem strings */
    SETS_FILE,  /* the same, of a field that may be a file and must be one here */
    SETS_TEXT,  /* a const char * of the options */
    SETS_BYTES, /* an int64_t, 512M */
    SETS_POOL,  /* the same, or off: -1 */
    SETS_WHOLE, /* an int64_t */
    SETS_TIME,  /* a double, seconds */
    SETS_RATE,  /* a double, per second */
    SETS_SWITCH /* a bool of the options */
};

enum group { PROBLEM, SCORES, DATA, MACHINE, OUTPUT, GROUPS };
static const char *const group_titles[GROUPS] = {
    "Problem", "Scores", "Data", "Ranks and machine", "Output",
};

#define ALL (VERB_RUN | VERB_VERIFY | VERB_PLAN | VERB_INFO | VERB_DEMO | VERB_BENCH | VERB_REPORT)
#define SIZED (VERB_RUN | VERB_PLAN)
#define TRIAL(verbs_, group_, name_, argument_, key_, help_)                                       \
    {                                                                                              \
        .name = name_, .argument = argument_, .help = help_, .group = group_, .verbs = verbs_,     \
        .kind = SETS_TRIAL, .key = key_                                                            \
    }
#define FILED(verbs_, group_, name_, key_, help_)                                                  \
    {                                                                                              \
        .name = name_, .argument = "FILE", .help = help_, .group = group_, .verbs = verbs_,        \
        .kind = SETS_FILE, .key = key_                                                             \
    }
#define SET(verbs_, group_, name_, argument_, kind_, field_, help_)                                \
    {                                                                                              \
        .name = name_, .argument = argument_, .help = help_, .group = group_, .verbs = verbs_,     \
        .kind = kind_, .offset = offsetof(struct options, field_)                                  \
    }

static const struct flag {
    const char *name;
    const char *argument; /* NULL: a switch */
    const char *help;
    enum group group;
    unsigned verbs;
    enum kind kind;
    const char *key; /* of SETS_TRIAL and SETS_FILE */
    size_t offset;   /* of the others */
} flags[] = {
    TRIAL(SIZED, PROBLEM, "--pattern", "TEXT", "pattern",
          "which keys a query sees (full): full, causal, window:L[,R], prefix:N, "
          "dilated:W/R,W/R,... with ;dedup, ;groups or ;offsets=block, blocks:B with ;local=G "
          ";global=G ;strided=S ;dilated=R/G ;levels=S/G,S/G,... ;random=DENSITY ;seed=K "
          ";bitmap=FILE.npy; each with ;causal and ;docs=0,a,...,n"),
    SET(SIZED, PROBLEM, "--segment-lengths", "LIST", SETS_TEXT, segment_lengths,
        "with --dilation-rates another way to write a pattern: 2048,4096 and 1,2 are "
        "dilated:2048/1,4096/2"),
    SET(SIZED, PROBLEM, "--dilation-rates", "LIST", SETS_TEXT, dilation_rates,
        "a rate for each segment length"),
    TRIAL(SIZED, PROBLEM, "--order", "NAME", "order",
          "a permutation of the positions, in which windows, segments, blocks and partitions "
          "count: sequential, hilbert, hilbert:HxW, shuffled:SEED, or a .npy file of int64 or "
          "int32 positions (sequential)"),
    TRIAL(SIZED, PROBLEM, "--system", "NAME", "system",
          "a system by name; stands for other flags, and flags given beside it win; `ringattn "
          "info --systems` lists them"),
    TRIAL(SIZED, PROBLEM, "--tokens", "N", "n", "queries, of synthetic data (4096)"),
    TRIAL(VERB_BENCH, PROBLEM, "--tokens", "N", "n",
          "kernels: queries and keys (4096; fewer for scalar); decoding: 16 keys for each"),
    TRIAL(SIZED, PROBLEM, "--kv-tokens", "N", "nk",
          "keys, if different from the queries; may be 0"),
    TRIAL(SIZED, PROBLEM, "--query-offset", "N", "offset",
          "added to the positions of the queries, which are the last ones otherwise: query i of Nq "
          "is at i + Nk - Nq + N; may be negative (0)"),
    TRIAL(SIZED, PROBLEM, "--sequences", "LIST", "seqs",
          "sequences of these lengths, packed one after the other, in place of --tokens and "
          "--kv-tokens: each is a problem of its own. QUERIES/KEYS, or one number for both: "
          "900,1/4096,120"),
    TRIAL(SIZED, PROBLEM, "--heads", "N", "h", "query heads (8)"),
    TRIAL(VERB_BENCH, PROBLEM, "--heads", "N", "h", "kernels: query heads (8)"),
    TRIAL(SIZED, PROBLEM, "--kv-heads", "N", "hk", "KV heads; divides the query heads"),
    TRIAL(SIZED, PROBLEM, "--dim", "N", "d", "numbers per head of Q and K (64)"),
    TRIAL(SIZED, PROBLEM, "--value-dim", "N", "dv", "numbers per head of V, if different"),
    TRIAL(SIZED, PROBLEM, "--batch", "N", "b", "sequences (1)"),
    TRIAL(SIZED, PROBLEM, "--dtype", "NAME", "dtype",
          "auto, f32, bf16 or f16; auto: as the files, or for synthetic data what `ringattn info` "
          "says of the device (f32 on a CPU)"),
    SET(SIZED, PROBLEM, "--backward", NULL, SETS_SWITCH, trial.backward,
        "gradients too; with files it needs --dout"),
    TRIAL(SIZED, SCORES, "--scale", "X", "scale", "factor of q.k (1/sqrt(dim))"),
    TRIAL(SIZED, SCORES, "--softcap", "X", "softcap", "scores become X tanh(score / X)"),
    TRIAL(SIZED, SCORES, "--alibi", "[=LIST]", "alibi",
          "scores fall by slope x distance. After the equals sign: a slope for each query head. "
          "Otherwise the slopes of ALiBi: 2^(-8 (h+1) / heads) if the number of heads is a power "
          "of two; else those of the next lower power, then every other one of twice that power"),
    FILED(SIZED, SCORES, "--sinks", "sinks",
          "one more key per query head with this logit and value 0, .npy of f32 [head]"),
    FILED(SIZED, SCORES, "--bias", "bias",
          "added to the scores, .npy of f32; or a mask, .npy of bool or uint8, where 0 hides the "
          "key. [query, key], [head, query, key] or [batch, head, query, key]; head and batch may "
          "be 1"),
    TRIAL(SIZED, SCORES, "--dropout", "RATE", "dropout",
          "fraction of the weights that is dropped, chosen by --seed"),
    TRIAL(VERB_RUN, DATA, "--seed", "N", "seed", "of synthetic data, and of dropout (0)"),
    SET(VERB_RUN, DATA, "--data", "WHERE", SETS_TEXT, data,
        "where a stream's synthetic data is made: host or device (on the device, if it is a GPU, "
        "the run is forward, in sequential order, and no file is named)"),
    SET(VERB_RUN, DATA, "--q", "FILE", SETS_TEXT, q,
        "queries, .npy of f32 or f16, or FILE.safetensors:NAME of F32, BF16 or F16, [batch, "
        "position, head, dim]; 3-D means batch 1"),
    SET(VERB_RUN, DATA, "--k", "FILE", SETS_TEXT, k, "keys"),
    SET(VERB_RUN, DATA, "--v", "FILE", SETS_TEXT, v, "values"),
    SET(VERB_RUN, DATA, "--dout", "FILE", SETS_TEXT, dout,
        "gradient of the output, shaped like it"),
    SET(VERB_RUN, DATA, "--dlse", "FILE", SETS_TEXT, dlse,
        "gradient through the LSE, f32 [batch, position, head]"),
    SET(VERB_RUN, DATA, "--out", "FILE", SETS_TEXT, out,
        "write the output, .npy of f32, or FILE.safetensors:NAME in the dtype of the run; "
        "gradients likewise"),
    SET(VERB_RUN, DATA, "--lse", "FILE", SETS_TEXT, lse,
        "write the LSE, f32 [batch, position, head]"),
    SET(VERB_RUN, DATA, "--dq", "FILE", SETS_TEXT, dq, "write the gradient of the queries"),
    SET(VERB_RUN, DATA, "--dk", "FILE", SETS_TEXT, dk, "write the gradient of the keys"),
    SET(VERB_RUN, DATA, "--dv", "FILE", SETS_TEXT, dv, "write the gradient of the values"),
    SET(VERB_RUN, DATA, "--resume", NULL, SETS_SWITCH, resume,
        "keep a journal of finished blocks beside --out, and continue the run that left one there; "
        "for runs that stream"),
    SET(VERB_RUN, DATA, "--dsinks", "FILE", SETS_TEXT, dsinks,
        "write the gradient of the sinks, f32 [head]"),
    TRIAL(SIZED, MACHINE, "--ring", "P", "ring",
          "ranks (1; with run --transport mpi: the number of processes)"),
    TRIAL(SIZED, MACHINE, "--ring-size", "P", "ring", "the same as --ring"),
    TRIAL(SIZED, MACHINE, "--strategy", "NAME", "strategy",
          "how keys and values get to the queries: ring, allgather, ulysses, 2d, 2d:UxR, stream, "
          "stream:BLOCK (one rank: blocks of files or synthetic data pass through a window of "
          "memory) or auto (ring)"),
    TRIAL(SIZED, MACHINE, "--latency", "SECONDS", "latency",
          "of a round of messages, for predictions and --strategy auto (measured)"),
    TRIAL(SIZED, MACHINE, "--bandwidth", "BYTES", "bandwidth",
          "per second and rank, for predictions and --strategy auto (measured)"),
    TRIAL(SIZED, MACHINE, "--flops", "FLOPS", "flops",
          "per second and rank, for predictions and --strategy auto (measured)"),
    TRIAL(SIZED, MACHINE, "--load", "BYTES", "load",
          "per second that a stream reads from files and writes to them, for predictions (5e9)"),
    TRIAL(SIZED, MACHINE, "--partition", "NAME", "partition",
          "which rank owns which positions: contiguous, zigzag or striped, each with ;perdoc "
          "(contiguous)"),
    TRIAL(SIZED, MACHINE, "--transport", "NAME", "transport",
          "what sends bytes between ranks: local, threads of this process; mpi, processes that "
          "mpirun or srun started; nccl, the same with a GPU each (local)"),
    TRIAL(SIZED | VERB_VERIFY, MACHINE, "--device", "NAME", "device",
          "what computes: cpu; cuda, a GPU, or cuda:N, the N-th of several; or auto for the "
          "default (auto)"),
    TRIAL(SIZED | VERB_VERIFY | VERB_DEMO, MACHINE, "--kernel", "NAME", "kernel",
          "the kernel to use; `ringattn info` lists them (the fastest usable one)"),
    TRIAL(SIZED | VERB_VERIFY | VERB_DEMO, MACHINE, "--threads", "N", "threads",
          "threads of each rank (the cores divided among the ranks)"),
    TRIAL(VERB_BENCH, MACHINE, "--device", "NAME", "device",
          "what computes: cpu, or cuda, a GPU, on which tensors stay between runs; its problems "
          "are larger, in 16 bits, and have no baseline (cpu)"),
    TRIAL(VERB_BENCH, MACHINE, "--kernel", "NAME", "kernel",
          "kernels: only this kernel (all usable ones)"),
    TRIAL(VERB_BENCH, MACHINE, "--threads", "N", "threads",
          "kernels: only with this many threads (1, and one per core)"),
    SET(VERB_BENCH, MACHINE, "--runs", "N", SETS_WHOLE, runs, "case: runs that count (11)"),
    SET(VERB_BENCH, MACHINE, "--seconds", "S", SETS_TIME, seconds,
        "case: once runs have taken this long together, no further ones (no limit)"),
    SET(VERB_BENCH, MACHINE, "--limit", "S", SETS_TIME, limit,
        "case: refused if one run is predicted to take longer"),
    SET(VERB_BENCH, MACHINE, "--memory", "SIZE", SETS_BYTES, memory,
        "case: budget of each rank; refused with the bytes needed if it is too small"),
    SET(VERB_BENCH, MACHINE, "--pool", "SIZE", SETS_POOL, pool,
        "case: plans share buffers of at least this size, or off (16M)"),
    SET(VERB_BENCH, MACHINE, "--replan", NULL, SETS_SWITCH, replan,
        "case: a new plan for every run, and its time counts"),
    SET(VERB_BENCH, MACHINE, "--link", "RATE", SETS_RATE, link,
        "case: messages between threads arrive as over a link of this many bytes per second"),
    SET(VERB_BENCH, MACHINE, "--blocking", NULL, SETS_SWITCH, blocking,
        "case: with --link, ranks wait for messages instead of computing"),
    SET(VERB_BENCH, MACHINE, "--standard", NULL, SETS_SWITCH, standard,
        "case: the baseline, with the score matrix in memory"),
    SET(VERB_BENCH, MACHINE, "--rivals", "LIST", SETS_TEXT, rivals,
        "kernels, case: beside these of PyTorch, in turns: cudnn, flash, efficient, flex, all or "
        "no (all with --device cuda, if python3 or what RINGATTN_TORCH_PYTHON names has PyTorch)"),
    SET(VERB_BENCH, MACHINE, "--timeout", "SECONDS", SETS_TIME, wire.timeout,
        "case: a rank that sends no heartbeat for this long is lost (60), and so is a rival "
        "without an answer (300)"),
    SET(SIZED, MACHINE, "--memory", "SIZE", SETS_BYTES, memory,
        "budget of each rank, e.g. 512M; refused with the bytes needed if it is too small; auto "
        "streams if nothing else fits"),
    SET(SIZED | VERB_VERIFY, MACHINE, "--timeout", "SECONDS", SETS_TIME, wire.timeout,
        "a rank that sends no heartbeat for this long is lost (60)"),
    SET(VERB_RUN | VERB_VERIFY, MACHINE, "--checksum", NULL, SETS_SWITCH, wire.checksum,
        "every message carries a checksum that its receiver compares"),
    SET(VERB_RUN, MACHINE, "--warmup", "N", SETS_WHOLE, warmup,
        "passes before the one that is timed (0)"),
    SET(SIZED | VERB_VERIFY, MACHINE, "--deterministic", NULL, SETS_SWITCH, deterministic,
        "every run gives the same bits; --strategy auto then measures nothing, so that it chooses "
        "the same strategy each time"),
    SET(SIZED, MACHINE, "--any-order", NULL, SETS_SWITCH, trial.any_order,
        "dq may be summed in any order, and differ in its last bits from run to run, and results "
        "of allgather by the number of ranks: faster on GPUs with tensor cores, no difference "
        "elsewhere"),
    SET(VERB_RUN, OUTPUT, "--verify", NULL, SETS_SWITCH, verify,
        "check the result against the fp64 oracle with files too; synthetic data always is"),
    SET(VERB_RUN, OUTPUT, "--digest", NULL, SETS_SWITCH, digest,
        "print a hash of all bits of the output and of the LSE; it is the same for all ranks, "
        "blocks and devices that write the same bits"),
    SET(VERB_RUN, OUTPUT, "--predict", NULL, SETS_SWITCH, predict,
        "measure machine and links first, and print the predicted time beside the measured one"),
    SET(VERB_RUN, OUTPUT, "--trace", "FILE", SETS_TEXT, trace,
        "write a timeline for the Chrome trace viewer"),
    SET(VERB_VERIFY, OUTPUT, "--list", NULL, SETS_SWITCH, list,
        "print the grid and do not run it; cases that read temporary files are left out"),
    SET(VERB_VERIFY, OUTPUT, "--quick", NULL, SETS_SWITCH, quick, "every eighth case of the grid"),
    SET(VERB_VERIFY, OUTPUT, "--subset", "I/N", SETS_TEXT, subset,
        "every N-th case, from the I-th one on: N processes, one for each I, run all of them"),
    SET(VERB_BENCH, OUTPUT, "--quick", NULL, SETS_SWITCH, quick,
        "few runs of small problems: a glance, not precise"),
    SET(VERB_BENCH, OUTPUT, "--out", "DIR", SETS_TEXT, out,
        "write SUITE.jsonl and SUITE.csv into this folder, which is created if necessary; rows "
        "that this version measured there on this machine are not measured again"),
    SET(VERB_REPORT, OUTPUT, "--out", "FILE", SETS_TEXT, out,
        "the page, FILE.html; FILE.md and the folder FILE-plots go beside it"),
    SET(VERB_BENCH, OUTPUT, "--match", "TEXT", SETS_TEXT, match,
        "only configurations whose section, name or problem contains this"),
    SET(VERB_PLAN, MACHINE, "--machine", "NAME", SETS_TEXT, machine,
        "predict for ranks of this kind instead of measuring here; `ringattn info --machines` "
        "lists them"),
    SET(VERB_PLAN, MACHINE, "--machines", "FILE", SETS_TEXT, machines,
        "the table of --machine: what `ringattn info --machines` prints, edited"),
    SET(VERB_PLAN, OUTPUT, "--fit", "SIZE", SETS_BYTES, fit,
        "the smallest ring, and the longest sequence on this ring, that need no more per rank"),
    SET(VERB_PLAN, OUTPUT, "--rings", "LIST", SETS_TEXT, rings,
        "memory per rank over several rank counts, e.g. 1,2,4,8, as a table"),
    SET(VERB_PLAN, OUTPUT, "--explain", NULL, SETS_SWITCH, explain, "print the steps of one rank"),
    SET(VERB_PLAN, OUTPUT, "--rank", "R", SETS_WHOLE, rank, "the rank to explain (0)"),
    SET(VERB_PLAN, OUTPUT, "--mask", "FILE", SETS_TEXT, mask,
        "write the mask, up to 4096 x 4096: .npy or .safetensors of uint8 [query, key] that counts "
        "how often, or a picture, .png or .pgm"),
    SET(VERB_PLAN, OUTPUT, "--head", "H", SETS_TEXT, head,
        "the query head of the mask, or all: [head, query, key], and a picture for each (0)"),
    SET(VERB_INFO, OUTPUT, "--machines", NULL, SETS_SWITCH, list_machines,
        "only the machines that plan --machine knows, as a file to edit"),
    SET(VERB_INFO, OUTPUT, "--systems", NULL, SETS_SWITCH, systems,
        "only the systems that --system knows, and the flags they stand for"),
    SET(ALL & ~(VERB_DEMO | VERB_BENCH | VERB_REPORT), OUTPUT, "--json", NULL, SETS_SWITCH, json,
        "print one JSON object"),
    SET(ALL & ~VERB_INFO, OUTPUT, "--quiet", NULL, SETS_SWITCH, quiet, "no progress line"),
};

_Static_assert(sizeof flags / sizeof flags[0] <= FLAGS_MOST, "struct options has room for all");

/* The entry of this verb, if verbs have entries of their own; otherwise any of that name. */
static const struct flag *find_flag(unsigned verb, const char *name, size_t length)
{
    const struct flag *found = NULL;
    for (int i = 0; i < COUNT(flags); i++) {
        if (strlen(flags[i].name) != length || memcmp(flags[i].name, name, length)) continue;
        if (!found || flags[i].verbs & verb) found = &flags[i];
    }
    return found;
}

static int refuse_unknown(const struct verb *verb, const char *name)
{
    const struct flag *near = NULL;
    int least = 3; /* up to two letters off is a typing error */
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
        if (same && options->given[i])
            return &flags[i] == flag ? refuse("%s is given twice", flag->name)
                                     : refuse("%s: %s is given already", flag->name, flags[i].name);
    }
    options->given[flag - flags] = true;
    return EXIT_PASS;
}

static int set_value(struct options *options, const struct flag *flag, const char *value)
{
    void *place = (char *)options + flag->offset;
    switch (flag->kind) {
    case SETS_TRIAL: return trial_set(&options->trial, flag->key, flag->name, value);
    case SETS_FILE:
        if (!places_is_file(value))
            return refuse("%s: \"%.60s\" is not a .npy file", flag->name, value);
        return trial_set(&options->trial, flag->key, flag->name, value);
    case SETS_TEXT:
        if (!*value) return refuse("%s: its value %s is empty", flag->name, flag->argument);
        *(const char **)place = value;
        return EXIT_PASS;
    case SETS_POOL:
        if (!strcmp(value, "off")) {
            *(int64_t *)place = -1;
            return EXIT_PASS;
        }
        return number_bytes(flag->name, value, place);
    case SETS_BYTES: return number_bytes(flag->name, value, place);
    case SETS_WHOLE: return number_whole(flag->name, value, 0, INT32_MAX, place);
    case SETS_RATE: return number_real(flag->name, value, 1.0, 1e15, place);
    case SETS_TIME: return number_real(flag->name, value, 0.001, 1e9, place);
    case SETS_SWITCH: *(bool *)place = true; return EXIT_PASS;
    }
    return EXIT_PASS;
}

/* "[=LIST]": its value follows an equals sign, or there is none. */
static bool is_optional(const struct flag *flag)
{
    return flag->argument && *flag->argument == '[';
}

/* One flag, with its value after "=" or in the next argument. Sets how many arguments it took. */
static int read_flag(const struct verb *verb, int argc, char **argv, struct options *options,
                     int *took)
{
    const char *name = argv[0];
    size_t length = strcspn(name, "=");
    const char *value = name[length] ? name + length + 1 : NULL;
    const struct flag *flag = find_flag(verb->bit, name, length);
    *took = 1;
    if (!flag) return refuse_unknown(verb, name);
    if (!(flag->verbs & verb->bit)) return refuse("%s takes no %s", verb->name, flag->name);
    if (!flag->argument && value) return refuse("%s takes no value", flag->name);
    if (is_optional(flag)) {
        if (value && !*value) return refuse("%s: its value is empty", flag->name);
        if (!value) value = "";
    } else if (flag->argument && !value) {
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
            const char *last = i > 0 ? argv[i - 1] : "";
            const struct flag *before = find_flag(verb->bit, last, strlen(last));
            if (before && is_optional(before) && verb->bit != VERB_VERIFY)
                return refuse("%s takes its value after an equals sign: %s=%.60s", before->name,
                              before->name, argv[i]);
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
    if (!(verb->bit & (VERB_VERIFY | VERB_BENCH | VERB_REPORT)) && options->word_count)
        return refuse("%s: \"%.60s\" is not a flag; see ringattn help %s", verb->name,
                      options->words[0], verb->name);
    if (options->deterministic && options->trial.any_order)
        return refuse("--any-order does not give the same bits, which --deterministic asks for");
    return shorthand_expand(options);
}

bool options_fixed_choice(const struct options *options)
{
    return options->deterministic && !strcmp(options->trial.strategy, "auto");
}

void options_clear(struct options *options)
{
    free(options->words);
    trial_clear(&options->trial);
}

bool flags_given(const struct options *options, const char *name)
{
    for (int i = 0; i < COUNT(flags); i++)
        if (options->given[i] && !strcmp(flags[i].name, name)) return true;
    return false;
}

/* ---- Help ------------------------------------------------------------------------------------ */

static void print_flag(const struct flag *flag)
{
    enum { INDENT = 27 };
    char left[64];
    snprintf(left, sizeof left, "%s %s", flag->name, flag->argument ? flag->argument : "");
    printf("  %-24s ", left);
    text_wrap(flag->help, INDENT, INDENT);
}

void flags_help(const struct verb *verb)
{
    printf("Usage: ringattn %s %s\n\n", verb->name, verb->usage);
    text_wrap(verb->about, 0, 0);
    if (verb->more) verb->more();
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
