/* SPDX-License-Identifier: Apache-2.0 */
/* assets.h - style sheet and script of the page; CMake writes them from page.css and page.js. */
#ifndef BENCH_REPORT_ASSETS_H
#define BENCH_REPORT_ASSETS_H

extern const char asset_style[], asset_script[];

#endif
