/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h - the functions of the verbs; main.c has the table. */
#ifndef CLI_VERBS_H
#define CLI_VERBS_H

#include "harness/base/complain.h"
#include "harness/options/flags.h"

int verb_run(struct options *options);
int verb_verify(struct options *options);
int verb_plan(struct options *options);
int verb_info(struct options *options);
int verb_demo(struct options *options);
int verb_bench(struct options *options);
int verb_report(struct options *options);

void run_help(void);   /* examples */
void bench_help(void); /* the suites */

#endif
