#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Golden tests of the command, from outside: run.sh BUILD_DIR [CASE...]
#
# A case is a file of cases/, named without its folder and ending; without names, all of them run. Each
# has an empty folder to work in. Prints each failure and a closing line "N passed, N failed". Needs a C
# compiler (exit 77 without one) for the JSON checker; the rest is sh and the usual tools.

build=${1:?usage: run.sh BUILD_DIR [CASE...]}
shift
here=$(cd "$(dirname "$0")" && pwd)
ringattn=$(cd "$build" && pwd)/ringattn
cc=${CC:-cc}
command -v "$cc" >/dev/null || { echo "run.sh: no C compiler"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$cc" -O1 -o "$work/json_valid" "$here/json_valid.c" || exit 1
unset RINGATTN_KERNEL RINGATTN_PIN RINGATTN_PLUGINS RINGATTN_THREADS OMPI_COMM_WORLD_SIZE PMI_SIZE
# A world of one may be root's, in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

passed=0
failed=0
. "$here/helpers.sh"
[ $# -gt 0 ] || set -- $(cd "$here/cases" && ls | sed 's/\.sh$//')
for case; do
    mkdir "$work/files" && cd "$work/files" || exit 1
    . "$here/cases/$case.sh" || fail "the case $case ends early"
    cd "$work" && rm -rf "$work/files"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
