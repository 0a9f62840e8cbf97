/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - the verb `report`: a page from the results of bench. */
#include "verbs.h"

#include "bench/report/report.h"

int verb_report(struct options *options) { return report_write(options); }
