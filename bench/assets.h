/* SPDX-License-Identifier: Apache-2.0 */
/* assets.h - files that this program carries: style sheet and script of a report's page, and the
 * script that runs rivals. CMake writes them from report/page.css, report/page.js and
 * rivals/rivals.py. */
#ifndef BENCH_ASSETS_H
#define BENCH_ASSETS_H

extern const char asset_style[], asset_script[], asset_rivals[];

#endif
