#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, as C99 and as C++11, without a warning; that of MPI where mpicc is.
# No struct of ringattn.h has padding: a later version could put a field there, and callers of this one
# leave anything in it. A C++ program hands over const data without a cast.
# usage: header.sh CC [CXX]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
warnings="-Wall -Wextra -Wpedantic -Werror"

for header in "$root"/include/*.h; do
    name=$(basename "$header")
    extra=-Wpadded
    if [ "$name" = ringattn_mpi.h ]; then
        command -v mpicc >/dev/null || { echo "$name: not tried, no mpicc"; continue; }
        # Not ours to warn about. Open MPI and MPICH each have their own word for this.
        extra=$({ mpicc -showme:incdirs || mpicc -compile_info; } 2>/dev/null |
            tr ' ' '\n' | sed -n 's|^-I||; s|^/|-isystem /|p')
    fi
    # Twice, so that the include guard is seen to work too.
    printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$name" "$name" >"$dir/use.c"
    cp "$dir/use.c" "$dir/use.cpp"
    # shellcheck disable=SC2086
    "$1" -std=c99 $warnings $extra -I"$root/include" -c "$dir/use.c" -o "$dir/use.o"
    echo "$name: C99"
    if [ $# -ge 2 ] && [ "$2" != RINGATTN_CXX-NOTFOUND ]; then
        # shellcheck disable=SC2086
        "$2" -std=c++11 $warnings $extra -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -I"$root/include" -c "$dir/use.cpp" -o "$dir/use.o"
        echo "$name: C++11"
    else
        echo "no C++ compiler: the header was not tried as C++"
        exit 77
    fi
done
if [ $# -ge 2 ] && [ "$2" != RINGATTN_CXX-NOTFOUND ]; then
    # shellcheck disable=SC2086
    "$2" -std=c++11 $warnings -Wcast-qual -Wold-style-cast -I"$root/include" -c "$root/tests/abi/use.cpp" -o "$dir/use.o"
    echo "C++ with const data"
fi
