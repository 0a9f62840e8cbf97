#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs that several processes run together: the transport by itself, with an MPI that is late, what it asks of a program that
# began MPI itself, and the example.
# usage: programs.sh BUILD LAUNCHER
set -eu
build=$1 launcher=$2
. "$(dirname "$0")/launch.sh"
export RINGATTN_PLUGINS="$build"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
try() { launch "$@" >"$log" 2>&1 || { cat "$log"; fail "$*"; }; }
try 3 "$build/tests/mpi/link"
RINGATTN_MPI_PIECE=7777 try 3 "$build/tests/mpi/link"
try 2 "$build/tests/mpi/late"
for level in 0 1 2; do try 4 "$build/tests/mpi/levels" $level; done
[ ! -x "$build/examples/mpi" ] || try 4 "$build/examples/mpi"
echo "the link, levels of threads, and the example"
