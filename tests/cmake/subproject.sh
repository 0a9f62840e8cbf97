#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Inside another project, ringattn builds its libraries and nothing else, and does not impose its rules.
# usage: subproject.sh BUILD_DIR CMAKE CC
set -eu
dir=$1/subproject cmake=$2 cc=$3
source=$(cd "$(dirname "$0")/../.." && pwd)
rm -rf "$dir"
mkdir -p "$dir/project"

fail() { echo "FAILED: $*"; exit 1; }
quiet() { "$@" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }; }

cat >"$dir/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(outer LANGUAGES C)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_subdirectory("$source" ringattn)
add_executable(consumer "$source/examples/cmake-consumer/main.c")
target_link_libraries(consumer PRIVATE ringattn::static)
install(TARGETS consumer)
END
generator=$(command -v ninja >/dev/null && echo "-G Ninja" || true)
# shellcheck disable=SC2086
quiet "$cmake" -S "$dir/project" -B "$dir/build" $generator -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS=-O0 -DRINGATTN_MPI=OFF -DRINGATTN_CUDA=OFF -DRINGATTN_KERNELS=scalar
! grep -q -- -Werror "$dir/build/compile_commands.json" || fail "warnings are errors in a project that uses ringattn"
! grep -q "$source/\(cli\|bench\|tests\|harness\)/" "$dir/build/compile_commands.json" || fail "more than the libraries is built"

quiet "$cmake" --build "$dir/build" --parallel 2
said=$("$dir/build/consumer") || fail "$said"
quiet "$cmake" --install "$dir/build" --prefix "$dir/prefix"
installed=$(cd "$dir/prefix" && find . -type f)
[ "$installed" = ./bin/consumer ] || fail "installed without having been asked for: $installed"
echo "$said"
