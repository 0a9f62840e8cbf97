#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails on lines of C that are wider than 100 columns: clang-format leaves comments and strings alone.
#
#   usage: check_width.sh [ROOT]        checks a tree (default: the one of this script)
set -eu
cd "${1:-$(dirname "$0")/..}"
files=$(find include src harness cli bench examples tests -type f \
    \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | sort)
[ -n "$files" ] || { echo "check_width: no sources in $PWD" >&2; exit 2; }
# A letter has one byte that does not continue another.
# shellcheck disable=SC2086
LC_ALL=C awk '
    { columns = gsub(/[^\200-\277]/, "&") }
    columns > 100 { printf "%s:%d: %d columns\n", FILENAME, FNR, columns; wide = 1 }
    END { exit wide }' $files
