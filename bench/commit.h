/* SPDX-License-Identifier: Apache-2.0 */
/* commit.h - the commit of the sources; cmake/commit.cmake writes its value at every build. */
#ifndef BENCH_COMMIT_H
#define BENCH_COMMIT_H

extern const char bench_commit[]; /* "" where the sources are no git tree */

#endif
