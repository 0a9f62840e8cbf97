#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the module with every MPI there is, and runs the one command with each. A program and a module of
# different families refuse one another.
# usage: families.sh BUILD
set -eu
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tried=
for family in openmpi mpich; do
    command -v mpicc.$family >/dev/null && command -v mpirun.$family >/dev/null || continue
    launcher=mpirun.$family
    . "$(dirname "$0")/launch.sh"
    mkdir "$dir/$family"
    mpicc.$family -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -fPIC -shared -I"$root/src" \
        -I"$root/include" "$root"/src/transport/mpi/*.c -o "$dir/$family/libringattn_mpi.so"
    export RINGATTN_PLUGINS="$dir/$family"
    launch 3 "$build/ringattn" verify "causal n=67 h=4/2 d=16 ring=3 zigzag backward mpi threads=1" \
        "dilated:16/1,32/2 n=67 h=4/2 d=16 ring=3 allgather bf16 mpi threads=1" \
        >"$dir/said" 2>&1 || { cat "$dir/said"; fail "$family"; }
    [ "$(grep -c '^passed' "$dir/said")" -eq 2 ] || fail "$family did not say that all passed"
    if [ "$family" != openmpi ]; then # programs.sh has the other
        launch 3 "$build/tests/mpi/link" >"$dir/said" 2>&1 || { cat "$dir/said"; fail "$family: the link"; }
    fi
    tried="$tried $family"
done
[ -n "$tried" ] || { echo "skipped: neither mpicc.openmpi nor mpicc.mpich with its mpirun"; exit 77; }
echo "built and run with:$tried"
[ "$tried" = " openmpi mpich" ] || exit 0

mpicc.openmpi -std=c11 -I"$root/include" "$root/examples/mpi.c" "$build/libringattn.a" -lm -lpthread -ldl \
    -o "$dir/example"
if RINGATTN_PLUGINS=$dir/mpich "$dir/example" >"$dir/said" 2>&1; then
    fail "a program of Open MPI took a module of MPICH"
fi
grep -q "the program was built with Open MPI, the plug-in with MPICH" "$dir/said" ||
    { cat "$dir/said"; fail "not refused by name"; }
