/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command `ringattn`: a table of verbs. */
#include <string.h>

#include "harness/base/complain.h"
#include "harness/options/flags.h"
#include "harness/base/interrupt.h"
#include "harness/text/text.h"
#include "verbs.h"
#include "harness/world/world.h"

static const struct verb verbs[] = {
    { .name = "run",
      .bit = VERB_RUN,
      .usage = "[FLAGS]",
      .run = verb_run,
      .summary = "attention over .npy files or synthetic data",
      .about =
          "Computes exact attention on a ring of ranks. Without --q the data is synthetic, and "
          "the result is checked against an fp64 oracle: every query of a small problem, 32 "
          "queries spread over a large one.",
      .more = run_help },
    { .name = "verify",
      .bit = VERB_VERIFY,
      .usage = "[FLAGS] [PROBLEM...]",
      .run = verb_verify,
      .summary = "checks problems against an fp64 oracle",
      .about =
          "Without a problem it runs the built-in conformance grid on this machine. A problem "
          "is a line such as 'causal n=4096 nk=8192 h=8/2 d=128 dv=64 b=2 bf16 ring=4 zigzag "
          "allgather backward seed=7'. Each quoted argument is one problem; words without "
          "quotes together are one problem. With the word mpi, ranks are processes, and mpirun "
          "must start as many as ring= says. Further words: ulysses 2d:UxR auto latency= "
          "bandwidth= flops= (what auto predicts with) order= system= offset= (of the positions of "
          "queries) seqs=NQ/NK,... (packed sequences, not n= and nk=) scale= softcap= alibi "
          "alibi=S,S,... sinks bias=add|heads|batch|mask|maskheads dropout= threads= kernel= "
          "amp= gap= strides=packed|padded|heads ones any-order; sinks and bias are synthetic, or "
          "a .npy file after the equals sign." },
    { .name = "plan",
      .bit = VERB_PLAN,
      .usage = "[FLAGS]",
      .run = verb_plan,
      .summary = "what a run would need, without running it",
      .about = "Prints memory, bytes, work and predicted time of a run, beside those of full "
               "attention. The prediction comes from a short measurement on this machine, or from "
               "--machine or --flops; a GPU needs one of these." },
    { .name = "info",
      .bit = VERB_INFO,
      .usage = "[FLAGS]",
      .run = verb_info,
      .summary = "what is available on this machine, what is chosen, and why",
      .about = "Lists kernels, transports, strategies, partitions, patterns, orders and systems." },
#if CLI_HAVE_BENCH
    { .name = "bench",
      .bit = VERB_BENCH,
      .usage = "SUITE [FLAGS] | case PROBLEM [FLAGS] | diff A B",
      .run = verb_bench,
      .summary = "times suites of problems; compares two sets of results",
      .about =
          "Each configuration has a process of its own, warmed up, with a sample of the machine's "
          "ceiling before each run: a result that is faster than its ceiling, or wrong, fails. "
          "Figures are medians of 11 runs, fewer where runs are long, with the fastest and the "
          "slowest. `case` measures one problem and prints its row. `diff` compares two folders of "
          "results and marks what changed beyond the spread.",
      .more = bench_help },
    { .name = "report",
      .bit = VERB_REPORT,
      .usage = "RESULTS --out FILE.html",
      .run = verb_report,
      .summary = "a page with plots and tables from the results of bench",
      .about =
          "RESULTS is a folder that `bench --out` wrote. The page needs no network and no other "
          "file; the same as Markdown is written beside it, and the plots as PNG into a folder. "
          "Plots are drawn by gnuplot; without it there are tables only. Suites that are missing "
          "leave out their sections." },
#endif
    { .name = "demo",
      .bit = VERB_DEMO,
      .usage = "[FLAGS]",
      .run = verb_demo,
      .summary = "long attention on a ring, checked, in about a minute",
      .about =
          "Causal attention over 32,768 tokens on a ring of 1 and of 4, checked, and the memory "
          "that 4,096 tokens take on rings of 1, 4, 8 and 16." },
};

static void print_help(FILE *stream)
{
    fprintf(stream, "ringattn %s: exact attention for sequences that do not fit\n\n", ra_version());
    fprintf(stream, "Usage: ringattn VERB [FLAGS]\n\n");
    for (int i = 0; i < COUNT(verbs); i++)
        fprintf(stream, "  %-8s %s\n", verbs[i].name, verbs[i].summary);
    fprintf(stream,
            "\n`ringattn help VERB` lists the flags of a verb; `ringattn --version` the version.\n"
            "Exit status: 0 success, 1 a check failed, 2 bad usage, input or budget,\n"
            "3 a run-time fault or an interruption.\n");
}

static const struct verb *find_verb(const char *name)
{
    for (int i = 0; i < COUNT(verbs); i++)
        if (!strcmp(verbs[i].name, name)) return &verbs[i];
    return NULL;
}

static int refuse_verb(const char *name)
{
    for (int i = 0; i < COUNT(verbs); i++)
        if (text_distance(name, verbs[i].name) <= 2)
            return refuse("there is no verb \"%.40s\"; did you mean %s?", name, verbs[i].name);
    return refuse("there is no verb \"%.40s\"; see ringattn --help", name);
}

static int help(const char *name)
{
    if (!name) {
        print_help(stdout);
        return EXIT_PASS;
    }
    const struct verb *verb = find_verb(name);
    if (!verb) return refuse_verb(name);
    flags_help(verb);
    return EXIT_PASS;
}

static int run_verb(const struct verb *verb, int argc, char **argv)
{
    struct options options;
    bool wants_help;
    int status = flags_parse(verb, argc, argv, &options, &wants_help);
    if (!status && wants_help) {
        flags_help(verb);
    } else if (!status) {
        interrupt_catch();
        status = verb->run(&options);
        world_close(status);
    }
    options_clear(&options);
    return status;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) return help(NULL);
    if (!strcmp(argv[1], "help")) return help(argc > 2 ? argv[2] : NULL);
    if (!strcmp(argv[1], "--version")) {
        printf("ringattn %s\n", ra_version());
        return EXIT_PASS;
    }
    const struct verb *verb = find_verb(argv[1]);
    return verb ? run_verb(verb, argc - 2, argv + 2) : refuse_verb(argv[1]);
}

int main(int argc, char **argv)
{
    int status = dispatch(argc, argv);
    if (fflush(stdout) || ferror(stdout)) {
        perror("ringattn: output");
        if (!status) status = EXIT_FAULT;
    }
    return status;
}
