#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails where a document names, between backquotes, a file or an identifier of the library that does not
# exist, or where a line of prose is wider than 100 columns. Tables and code may be wider. CHANGELOG.md may
# name what is gone.
#
#   usage: check_docs.sh [ROOT]        checks a tree (default: the one of this script)
set -eu
cd "${1:-$(dirname "$0")/..}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
status=0
pages="README.md CONTRIBUTING.md SECURITY.md docs/*.md"

# What there is: every file by its path, every tail of that path, folders, and every word of the sources.
find include src harness cli bench examples tests tools cmake docs .ci ./*.md -type f | sed 's|^\./||' >"$dir/files"
awk '{ path = $0; print path; while (sub(/^[^\/]*\//, "", path)) print path }' "$dir/files" | sort -u >"$dir/paths"
find include src harness cli bench examples tests cmake CMakeLists.txt Makefile -type f -exec cat {} + |
    LC_ALL=C grep -aoE '[A-Za-z_][A-Za-z0-9_]*' | sort -u >"$dir/words"

# Words between backquotes outside code, as "PAGE LINE WORD". NAME stands for a name in recipes.
# shellcheck disable=SC2086
awk '
    /^ *```/ { code = !code; next }
    FNR == 1 { code = 0 }
    !code {
        count = split($0, part, "`")
        for (i = 2; i <= count; i += 2) {
            n = split(part[i], word, /[^A-Za-z0-9_.\/-]+/)
            for (w = 1; w <= n; w++) if (word[w] != "" && word[w] !~ /NAME/) print FILENAME, FNR, word[w]
        }
    }' $pages >"$dir/quoted"

# A page of Markdown counts with its folder only: a command may write one with any name.
grep -E ' ([A-Za-z0-9_./-]*[A-Za-z0-9_]\.(c|h|cu|cuh|sh|list|cmake)|[A-Za-z0-9_./-]*/[A-Za-z0-9_-]*\.md)$' "$dir/quoted" | sed 's| \./| |' |
    awk 'NR == FNR { there[$1] = 1; next } !($3 in there) { print $1 ":" $2 ": there is no file " $3 }' \
        "$dir/paths" - >"$dir/missing"
# A folder, or a file without its extension, by its whole path.
grep -E ' (src|include|harness|examples|tests|tools|cmake|docs)/[A-Za-z0-9_/-]*[A-Za-z0-9_]/?$' "$dir/quoted" |
    awk 'NR == FNR { path = $1; there[path] = 1; sub(/\.[a-z0-9]*$/, "", path); there[path] = 1
                     while (sub(/\/[^\/]*$/, "", path)) there[path] = 1; next }
         { path = $3; sub(/\/$/, "", path) }
         !(path in there) { print $1 ":" $2 ": there is no " $3 }' "$dir/files" - >>"$dir/missing"
grep -E ' (ra_|RA_)[A-Za-z0-9_]*[A-Za-z0-9]$' "$dir/quoted" |
    awk 'NR == FNR { there[$1] = 1; next } !($3 in there) { print $1 ":" $2 ": there is no name " $3 }' \
        "$dir/words" - >>"$dir/missing"
if [ -s "$dir/missing" ]; then
    cat "$dir/missing"
    status=1
fi

# A letter has one byte that does not continue another.
# shellcheck disable=SC2086
LC_ALL=C awk '
    FNR == 1 { code = 0 }
    /^ *```/ { code = !code }
    code || /^ *\|/ { next }
    { columns = gsub(/[^\200-\277]/, "&") }
    columns > 100 { printf "%s:%d: %d columns\n", FILENAME, FNR, columns; wide = 1 }
    END { exit wide }' $pages CHANGELOG.md || status=1
exit $status
