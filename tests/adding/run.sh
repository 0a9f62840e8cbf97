#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Follows the four recipes of docs/ADDING.md to the letter, in a copy of the tree: one file and one
# line of a .list each for a pattern, a kernel, a transport and a backend, and the pattern's formula
# for the oracle. Then builds, and sees that each is listed, used and right. Exits with 77 without a compiler.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/adding
jobs=${JOBS:-2}
unset RINGATTN_LONG RINGATTN_KERNEL RINGATTN_THREADS
work=$(mktemp -d "${TMPDIR:-/tmp}/ringattn-adding.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cc=${CC:-cc}
command -v "$cc" >/dev/null || exit 77

passed=0 failed=0
expect() { # expect WHAT COMMAND...
    what=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok    $what"
        passed=$((passed + 1))
    else
        echo "FAIL  $what"
        sed 's/^/      /' "$work/log" | tail -n 20
        failed=$((failed + 1))
    fi
}

# ---- The recipes ----

tree=$work/tree build=$work/build
mkdir "$tree"
(cd "$root" && tar cf - CMakeLists.txt cmake include src harness cli bench tools tests/support tests/unit tests/fault tests/bits tests/cuda) | (cd "$tree" && tar xf -)

cp "$here/pattern_example.c" "$tree/src/pattern/distances.c"
echo 'RA__PATTERN(distances)' >>"$tree/src/pattern/pattern.list"

# put_before PATTERN PART: the lines of the oracle's example after "/* PART */" go into harness/oracle/mask.c.
put_before() {
    awk -v mark="/* $2 */" '$0 == mark { on = 1; next } /^\/\*/ { on = 0 } on' "$here/oracle_example.inc" >"$work/part"
    awk -v lines="$work/part" -v pattern="$1" '
        !done && $0 ~ pattern { while ((getline line <lines) > 0) print line; done = 1 } { print }' \
        "$tree/harness/oracle/mask.c" >"$work/mask.c"
    cp "$work/mask.c" "$tree/harness/oracle/mask.c"
}
put_before '^/[*] What a pattern starts with' 'harness/oracle/mask.c, above the table of rules'
put_before '[.]word = "prefix:"' 'harness/oracle/mask.c, in the table'

mkdir "$tree/src/backend/cpu/kernel/tiny"
cp "$here/kernel_example.c" "$tree/src/backend/cpu/kernel/tiny/tiny.c"
sed -i 's/^RA__KERNEL(scalar)$/RA__KERNEL(tiny)\n&/' "$tree/src/backend/cpu/kernel/kernel.list"

cp "$here/transport_example.c" "$tree/src/transport/paced.c"
echo 'RA__TRANSPORT(paced)' >>"$tree/src/transport/transport.list"

mkdir "$tree/src/backend/serial"
cp "$here/backend_example.c" "$tree/src/backend/serial/serial.c"
echo 'RA__BACKEND(serial)' >>"$tree/src/backend/backend.list"

# ---- Built, listed, used, right ----

generator=
if command -v ninja >/dev/null; then generator='-G Ninja'; fi
# shellcheck disable=SC2086
expect 'cmake finds the new files' \
    cmake -S "$tree" -B "$build" $generator -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O1 -DRINGATTN_BUILD_EXAMPLES=OFF -DRINGATTN_BUILD_PEERS=OFF -DRINGATTN_MPI=OFF -DRINGATTN_CUDA=OFF "-DRINGATTN_KERNELS=tiny;scalar"
expect 'all compiles without a warning' \
    cmake --build "$build" --parallel "$jobs" --target ringattn ringattn_static
expect 'includes stay within their layers' sh "$tree/tools/check_layers.sh" "$tree"
expect 'the check compiles' \
    "$cc" -std=c11 -Wall -Wextra -I"$tree/include" "$here/check.c" "$build/libringattn.a" -lm -lpthread -o "$work/check"

listed() { "$build/ringattn" info | grep -Eq "^  [*+] $1( |$)"; }
expect 'info lists the pattern' listed 'distances:A,B,...'
expect 'info lists the kernel' listed tiny
expect 'info lists the transport' listed paced
expect 'info lists the backend' listed serial

expect 'the pattern is right' "$work/check" distances:4,9 - -
expect 'the pattern is right with documents' "$work/check" 'distances:4,9;causal;docs=0,20,53' - -
expect 'the kernel is right' "$work/check" - tiny -
expect 'the transport is right' "$work/check" - - paced
expect 'all three are right together' "$work/check" distances:4,9 tiny paced

expect 'verify runs the backend' \
    "$build/ringattn" verify 'causal n=67 h=4/2 d=16 ring=3 zigzag backward threads=2 device=serial'
expect 'verify runs the kernel' "$build/ringattn" verify 'causal n=67 h=4/2 d=16 ring=3 zigzag backward kernel=tiny'

expect 'verify runs the pattern' "$build/ringattn" verify 'distances:4,9 n=67 h=4/2 d=16 ring=3 striped backward'
expect 'verify runs the pattern under an order' \
    "$build/ringattn" verify 'distances:4,9;causal n=67 h=4/2 d=16 ring=3 order=hilbert backward'

# Half a megabyte takes half a second over this wire, and next to nothing otherwise.
slow() {
    start=$(date +%s%N)
    "$build/ringattn" run --tokens 2048 --heads 1 --dim 64 --ring 2 --transport paced --pattern causal
    [ $(($(date +%s%N) - start)) -gt 500000000 ]
}
if grep -q 'ra_group_create(' "$tree/harness/run/engine.c"; then
    expect 'the command uses the transport' slow
else
    echo 'skip  the command uses the transport: harness/run/engine.c makes local groups only'
fi

# The tests walk the lists, so they hold the new rows to every promise.
walks() { # walks KIND/NAME
    cmake --build "$build" --parallel "$jobs" --target "test_$(echo "$1" | tr / _)" && "$build/tests/$1"
}
if [ -f /usr/include/cmocka.h ]; then
    expect 'unit/pattern_text passes with one more pattern' walks unit/pattern_text
    expect 'unit/pattern_rows passes with one more pattern' walks unit/pattern_rows
    expect 'unit/plan passes with one more pattern' walks unit/plan
    expect 'unit/kernel_shapes passes with one more kernel' walks unit/kernel_shapes
    expect 'unit/kernel_bits passes with one more kernel' walks unit/kernel_bits
    expect 'unit/terms_shapes passes with one more kernel' walks unit/terms_shapes
    export RINGATTN_TEST_TRANSPORT=paced
    expect 'fault/order passes over the transport' walks fault/order
    expect 'fault/fail passes over the transport' walks fault/fail
    unset RINGATTN_TEST_TRANSPORT
else
    echo 'skip  unit/pattern_*, unit/kernel_*, unit/terms_* and fault: cmocka is not installed'
fi

# ---- The page ----

# quoted FILE: the code block after "<!-- FILE -->" of the page is that file, or lines of it in order.
quoted() {
    awk -v mark="<!-- $1 -->" '$0 == mark { on = 1; next } on && /^```c$/ { code = 1; next }
        code && /^```$/ { exit } code' "$root/docs/ADDING.md" >"$work/quote"
    [ -s "$work/quote" ] && ! diff "$work/quote" "$root/$1" | grep '^<'
}
for name in pattern_example.c oracle_example.inc kernel_example.c transport_example.c backend_example.c; do
    expect "docs/ADDING.md quotes $name" quoted "tests/adding/$name"
done

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
