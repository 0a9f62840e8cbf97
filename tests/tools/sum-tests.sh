#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/sum-tests from outside: it adds figures up, and what is missing or no summary is a failure.
# usage: sum-tests.sh
set -eu
sum_tests=$(cd "$(dirname "$0")/../.." && pwd)/tools/sum-tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
passed=0 failed=0

# summary FILE TEXT
summary() { echo "$2" >"$1"; }

# expect STATUS LINE FILE...: LINE is all that is printed; status 1 stands for any but 0.
expect() {
    want=$1 line=$2 status=0
    shift 2
    got=$(sh "$sum_tests" "$@" 2>words) || status=1
    if [ "$status" -eq "$want" ] && [ "$got" = "$line" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: sum-tests $*: \"$got\", status $status; \"$line\", status $want is right"
    fi
}

summary plain 'test: 101 passed, 0 failed, 3 skipped'
summary asan 'test, sanitizers: 20 passed, 0 failed, 40 skipped'
summary 'two words' 'check: 7 passed, 0 failed, 0 skipped'
summary broken 'test: 9 passed, 2 failed, 5 skipped'
summary other 'nothing ran'
: >empty

expect 0 'test: 101 passed, 0 failed, 3 skipped' plain
expect 0 'test: 128 passed, 0 failed, 43 skipped' plain asan 'two words'
expect 1 'test: 110 passed, 2 failed, 8 skipped' plain broken
expect 1 'test: 110 passed, 2 failed, 8 skipped' broken plain
expect 1 'test: 18 passed, 4 failed, 10 skipped' broken broken
expect 1 'test: 101 passed, 1 failed, 3 skipped' plain absent
expect 1 'test: 0 passed, 2 failed, 0 skipped' absent absent
expect 1 '' plain other
expect 1 '' plain empty

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
