#!/bin/sh
# The public header compiles alone, as C99 and as C++11, without a warning.
# usage: header.sh CC [CXX]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
warnings="-Wall -Wextra -Wpedantic -Werror"

for header in "$root"/include/*.h; do
    name=$(basename "$header")
    # Twice, so that the include guard is seen to work too.
    printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$name" "$name" >"$dir/use.c"
    cp "$dir/use.c" "$dir/use.cpp"
    # shellcheck disable=SC2086
    "$1" -std=c99 $warnings -I"$root/include" -c "$dir/use.c" -o "$dir/use.o"
    echo "$name: C99"
    if [ $# -ge 2 ] && [ "$2" != RINGATTN_CXX-NOTFOUND ]; then
        # shellcheck disable=SC2086
        "$2" -std=c++11 $warnings -I"$root/include" -c "$dir/use.cpp" -o "$dir/use.o"
        echo "$name: C++11"
    else
        echo "no C++ compiler: the header was not tried as C++"
        exit 77
    fi
done
