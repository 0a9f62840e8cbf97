#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each switch leaves out what it names, and `make install` installs no packages.
# usage: switches.sh BUILD_DIR CMAKE CC
set -eu
dir=$1/switches cmake=$2 cc=$3
source=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$dir"
mkdir -p "$dir"

fail() { echo "FAILED: $*"; exit 1; }
quiet() { "$@" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }; }

# configure SWITCHES...: one build folder, in which a switch stays as it was set last. Of the generators,
# Make lists its targets by name.
configure()
{
    quiet "$cmake" -S "$source" -B "$dir/build" -G "Unix Makefiles" -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=None -DRINGATTN_CUDA=OFF \
        -DCMAKE_C_FLAGS=-O0 -DRINGATTN_MPI=OFF -DRINGATTN_KERNELS=scalar "$@"
    "$cmake" --build "$dir/build" --target help >"$dir/targets"
}
has() { grep -q "^\.\.\. $1\$" "$dir/targets"; }

configure
for target in ringattn ringattn_bench ringattn_perf test_bits example_threads peers install; do
    has $target || fail "$target is missing where nothing is switched off"
done

configure -DRINGATTN_INSTALL=OFF
quiet "$cmake" --install "$dir/build" --prefix "$dir/prefix"
[ ! -d "$dir/prefix" ] || fail "RINGATTN_INSTALL=OFF installs something"

configure -DRINGATTN_BUILD_EXAMPLES=OFF -DRINGATTN_BUILD_PEERS=OFF -DRINGATTN_BUILD_TESTS=OFF
for target in example_threads peers test_bits; do ! has $target || fail "$target is not switched off"; done

# Without bench there are no tests, and the command has every verb but one.
configure -DRINGATTN_BUILD_BENCH=OFF -DRINGATTN_BUILD_TESTS=ON
for target in ringattn_bench ringattn_perf test_bits; do ! has $target || fail "$target is not switched off"; done
quiet "$cmake" --build "$dir/build" --target ringattn --parallel 2
"$dir/build/ringattn" --help >"$dir/help"
grep -q "^  verify " "$dir/help" || fail "the command without bench has no verb verify"
! grep -q "^  bench " "$dir/help" || fail "the command without bench has a verb bench"

configure -DRINGATTN_BUILD_CLI=OFF
for target in ringattn ringattn_harness; do ! has $target || fail "$target is not switched off"; done
has ringattn_static || fail "the library was switched off with the command"

# What `make install` would do: look, but not install packages.
make -C "$source" -n install BUILD="$dir/build" >"$dir/make"
! grep install-deps "$dir/make" | grep -qv -- --check || fail "make install installs packages"
