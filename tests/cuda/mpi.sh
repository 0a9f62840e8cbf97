#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that are processes, on emulated GPUs: messages through host memory, and from device to device.
# usage: mpi.sh BUILD LAUNCHER
#
# Emulated memory of a GPU is memory of the process, so any MPI takes it. The trace tells the copies.
set -u
build=$1 launcher=$2
. "$(dirname "$0")/../mpi/launch.sh"
export RINGATTN_PLUGINS="$build/tests/cuda/plugins:$build" RINGATTN_EMULATED_LEAKS=1
log=$build/tests/cuda/mpi.log trace=$build/tests/cuda/mpi-trace.json
passed=0 failed=0
. "$(dirname "$0")/helpers.sh"

# every PROCESSES: strategies, partitions and directions on so many.
every() {
    launch "$1" "$build/ringattn" verify --device cuda "causal n=41 h=2/1 d=16 ring=$1 zigzag backward mpi" \
        "dilated:8/1,16/2 n=33 h=2 d=8 ring=$1 allgather backward mpi" \
        "window:9 n=31 h=6 d=8 bf16 ring=$1 ulysses backward mpi" \
        "full;docs=0,20,21,41 n=41 h=2/1 d=16 ring=$1 striped;perdoc mpi" >"$log" 2>&1 &&
        [ "$(grep -c '^passed' "$log")" -eq 4 ]
}

# copies FLAGS...: steps that copy tensors or messages to or from the GPU. Tensors take 8.
run='run --device cuda --transport mpi --tokens 90 --heads 2 --dim 16 --backward --verify'
copies() {
    # shellcheck disable=SC2086
    launch 2 "$@" $run --trace "$trace" >"$log" 2>&1 || return 1
    copies=$(grep -oE '"name": *"(load|store)"' "$trace" | wc -l)
    [ "$copies" -ge 8 ]
}
staged() { copies "$@" && [ "$copies" -gt 8 ]; }
as_staged() {
    staged env RINGATTN_MPI_CUDA=0 "$build/ringattn" || return 1
    staged_copies=$copies
    copies "$@" && [ "$copies" -eq "$staged_copies" ]
}
direct() { copies "$@" && [ "$copies" -eq 8 ]; }
refused() {
    launch 2 "$build/ringattn" $run >"$log" 2>&1
    [ $? -eq 2 ] && grep -q 'RINGATTN_MPI_CUDA is "yes", but must be 0 or 1' "$log"
}

aware="env LD_PRELOAD=$build/tests/mpi/libaware.so"
expect 'messages through host memory' every 2
expect 'copies for messages' staged env RINGATTN_MPI_CUDA=0 "$build/ringattn"
expect 'no copies for messages' direct env RINGATTN_MPI_CUDA=1 "$build/ringattn"
# shellcheck disable=SC2086
{
    expect 'an MPI that says so' direct $aware "$build/ringattn"
    expect 'an MPI that says so, and is not to be used so' staged $aware RINGATTN_MPI_CUDA=0 "$build/ringattn"
}
# shellcheck disable=SC2016
expect 'messages through host memory where one rank needs that' as_staged sh -c \
    'RINGATTN_MPI_CUDA=$OMPI_COMM_WORLD_RANK exec "$@"' sh "$build/ringattn"
export RINGATTN_MPI_CUDA=1
expect 'messages from device to device' every 2
expect 'messages from device to device, 4 processes' every 4
RINGATTN_MPI_PIECE=777 expect 'in pieces' every 3
run="$run --checksum" expect 'checksums are made by the host' staged "$build/ringattn"
export RINGATTN_MPI_CUDA=yes
expect 'neither 0 nor 1' refused
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
