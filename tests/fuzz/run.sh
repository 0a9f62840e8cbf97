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
    found=$build/fuzz/$name
    mkdir -p "$found"
    log=$found.log
    if "$build/tests/fuzz/fuzz_$name" "$limit" -timeout=10 -rss_limit_mb=2048 -max_len=4096 -close_fd_mask=1 \
        -dict="$here/words.dict" -artifact_prefix="$found." "$found" "$here/corpus/$name" 2>"$log" >/dev/null; then
        echo "$name: $(sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) second.*/\1 inputs in \2 s/p' "$log"), nothing found"
    else
        tail -n 40 "$log"
        echo "$name: FAILED, the input is $(ls "$found".crash-* "$found".leak-* "$found".oom-* "$found".timeout-* 2>/dev/null | tail -n 1)"
        status=1
    fi
done
exit $status
