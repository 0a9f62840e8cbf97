#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails on a source file without its SPDX line. It is the first line, or the second below a #! line.
#
#   usage: check_license.sh [ROOT]          checks a tree (default: the one this script lies in)
#          check_license.sh --add [ROOT]    adds what is missing
set -eu
add=0
if [ "${1:-}" = --add ]; then
    add=1
    shift
fi
cd "${1:-$(dirname "$0")/..}"
words='SPDX-License-Identifier: Apache-2.0'

# C, CMake, scripts, lists; files without a suffix where they begin with #!.
files=$(find include src harness cli bench examples tests tools cmake python Makefile CMakeLists.txt .ci .github -type f 2>/dev/null |
    grep -v '/build' | sort)
[ -n "$files" ] || { echo "check_license: no sources in $PWD" >&2; exit 2; }

# comment FILE: the SPDX line in its language; nothing for what is no source.
comment()
{
    case $(basename "$1") in
    *.c | *.h | *.cu | *.cuh | *.cpp | *.inc) echo "/* $words */" ;;
    *.cmake | *.sh | *.py | *.in | *.yml | Makefile | CMakeLists.txt) echo "# $words" ;;
    *.list) if [ "$(head -c 1 "$1")" = '#' ]; then echo "# $words"; else echo "/* $words */"; fi ;;
    *.*) ;;
    *) if [ "$(head -c 2 "$1")" = '#!' ]; then echo "# $words"; fi ;;
    esac
}

# put FILE LINE: rewrites the file in place, so that it keeps its mode.
put()
{
    awk -v line="$2" 'NR == 1 && !/^#!/ { print line } { print } NR == 1 && /^#!/ { print line }' "$1" >"$1.spdx"
    cat "$1.spdx" >"$1"
    rm "$1.spdx"
}

missing=0
for file in $files; do
    line=$(comment "$file")
    [ -n "$line" ] || continue
    head -n 2 "$file" | grep -qxF -- "$line" && continue
    if [ $add -eq 1 ]; then
        put "$file" "$line"
    else
        echo "$file: without a line $line"
        missing=1
    fi
done
exit $missing
