#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The device cuda when something fails: an error with a sentence, no crash, nothing left behind.
# usage: faults.sh BUILD
set -u
build=$1
export RINGATTN_PLUGINS="$build/tests/cuda/plugins"
log=$build/tests/cuda/faults.log
passed=0 failed=0

note() {
    if [ "$1" = 0 ]; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $2"
        tail -3 "$log"
    fi
}

run() { "$build/ringattn" run --device cuda --quiet "$@" >"$log" 2>&1; }

# ends_with WORDS COMMAND...: fails, says these words, and is not killed by a signal.
ends_with() {
    words=$1
    shift
    "$@"
    status=$?
    if [ $status -ne 0 ] && [ $status -lt 97 ] && grep -q "$words" "$log"; then note 0; else note 1 "$* ($status): $words"; fi
}

# Every step-th allocation, launch or copy in turn: an error, or, after the last, success. What leaks
# ends with 97; after the loss of a device nothing can be given back.
each() {
    kind=$1 step=$2 leaks=$3
    n=1 most=$((400 * step))
    shift 3
    while [ $n -le $most ]; do
        RINGATTN_EMULATED_LEAKS=$leaks RINGATTN_EMULATED_FAIL="$kind:$n" run "$@"
        status=$?
        if [ $status -eq 0 ]; then break; fi
        if [ $status -ge 97 ] || ! grep -q . "$log"; then
            note 1 "$kind $n: status $status"
            return
        fi
        n=$((n + step))
    done
    if [ $n -gt 1 ] && [ $n -le $most ]; then note 0; else note 1 "$kind: never failed, or never passed"; fi
}

small='--tokens 40 --heads 2 --dim 16 --backward --pattern causal'
# shellcheck disable=SC2086
{
    for kind in alloc launch copy; do each $kind 1 1 $small; done
    each kernel 1 0 $small
    each lost 173 0 $small
    each launch 5 1 $small --ring 3
    for kind in alloc copy; do each $kind 23 1 $small --ring 2 --strategy auto; done
}

RINGATTN_EMULATED_GPUS=0
export RINGATTN_EMULATED_GPUS
# shellcheck disable=SC2086
ends_with 'cuda' run $small
unset RINGATTN_EMULATED_GPUS
RINGATTN_EMULATED_MEMORY=100000
export RINGATTN_EMULATED_MEMORY
ends_with 'could not get' run --tokens 4000 --heads 2 --dim 16
unset RINGATTN_EMULATED_MEMORY
# shellcheck disable=SC2086
ends_with 'cuda:3' "$build/ringattn" run --device cuda:3 --quiet $small >"$log" 2>&1
ends_with 'budget\|memory' run --tokens 4000 --heads 2 --dim 16 --memory 10K
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
