#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A recording compares equal with itself, a changed digest is found, and every kernel is in it.
# usage: run.sh BUILD_DIR
set -eu
build=$1
bits=$build/tests/bits/bits
dir=$build/tests/bits/run
rm -rf "$dir"
mkdir -p "$dir"

fail() { echo "FAILED: $*"; exit 1; }

"$bits" record "$dir/now" --step 97 >"$dir/record.log"
"$bits" compare "$dir/now" || fail "a recording differs from itself"
for kernel in $("$build/ringattn" info | sed -n '/^kernel/,/^$/s/^  [+*] \([a-z0-9]*\).*/\1/p'); do
    grep -q " kernel=$kernel" "$dir/now" || fail "no case of $kernel"
done

# Another last digit of one digest in each column, each in a line of its own.
awk '
    /^#/ { print; next }
    {
        for (c = 7; c >= 2; c--)
            if (!done[c] && $c ~ /[1-9a-f]/) {
                last = substr($c, 16)
                $c = substr($c, 1, 15) (last == "0" ? "1" : "0")
                done[c] = 1
                break
            }
        print
    }' "$dir/now" >"$dir/other"
status=0
"$bits" compare "$dir/other" >"$dir/other.log" || status=$?
[ $status -eq 1 ] || fail "changed digests give status $status"
for name in out lse dq dk dv dsinks; do
    grep -q "^DIFFERS  $name  " "$dir/other.log" || fail "a changed digest of $name is not found"
done
grep -q "the same, 6 different" "$dir/other.log" || fail "not six differences: $(tail -1 "$dir/other.log")"

echo "causal n=64" >"$dir/broken"
status=0
"$bits" compare "$dir/broken" 2>/dev/null || status=$?
[ $status -eq 2 ] || fail "a line that is none gives status $status"
