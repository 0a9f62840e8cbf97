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

# Every allocation, launch, copy in turn: an error, or, after the last, success. Leaks end with 97.
each() {
    kind=$1
    n=1
    shift
    while [ $n -le 400 ]; do
        RINGATTN_EMULATED_LEAKS=1 RINGATTN_EMULATED_FAIL="$kind:$n" run "$@"
        status=$?
        if [ $status -eq 0 ]; then break; fi
        if [ $status -ge 97 ] || ! grep -q . "$log"; then
            note 1 "$kind $n: status $status"
            return
        fi
        n=$((n + $step))
    done
    if [ $n -gt 1 ] && [ $n -le 400 ]; then note 0; else note 1 "$kind: never failed, or never passed"; fi
}

small='--tokens 40 --heads 2 --dim 16 --backward --pattern causal'
for kind in alloc launch copy kernel lost; do
    step=1
    if [ $kind = lost ]; then step=37; fi # calls are many
    # shellcheck disable=SC2086
    each $kind $small
done
step=5
# shellcheck disable=SC2086
each launch $small --ring 3

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
