#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every target with libFuzzer, from its corpus, which stays as it is.
#   usage: run.sh BUILD_DIR [LIMIT]
#   LIMIT  as libFuzzer has it: -max_total_time=20 (the default) or -runs=10000000, for each target
# An input that fails is left in BUILD_DIR/fuzz: put it into the corpus with the fix.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: run.sh BUILD_DIR [LIMIT]}
limit=${2:--max_total_time=20}
status=0
for target in "$here"/targets/*.c; do
    name=$(basename "$target" .c)
    program=$build/tests/fuzz/fuzz_$name
    found=$build/fuzz/$name
    mkdir -p "$found"
    rm -f "$found".*-*
    # A sentence for each input that is refused would fill the disk: both outputs of a target are shut.
    if "$program" "$limit" -timeout=60 -rss_limit_mb=2048 -max_len=4096 -close_fd_mask=3 \
        -dict="$here/words.dict" -artifact_prefix="$found." "$found" "$here/corpus/$name" >"$found.log" 2>&1; then
        echo "$name: $(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 inputs in \2 s/p' "$found.log"), nothing found"
        continue
    fi
    status=1
    tail -n 3 "$found.log"
    for input in "$found".*-*; do
        [ -f "$input" ] || continue
        "$program" "$input" 2>&1 | tail -n 40
        echo "$name: FAILED, the input is $input"
    done
done
exit $status
