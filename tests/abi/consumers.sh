#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What is installed can be used: with find_package() and with pkg-config, shared and static, and also
# after the whole tree was moved.
# usage: consumers.sh BUILD_DIR CMAKE CC
set -eu
build=$1 cmake=$2 cc=$3
consumer=$(cd "$(dirname "$0")/../../examples/cmake-consumer" && pwd)
dir=$build/consumers
rm -rf "$dir"
mkdir -p "$dir"

"$cmake" --install "$build" --prefix "$dir/first" >"$dir/install.log"
mv "$dir/first" "$dir/prefix"
prefix=$dir/prefix

for file in bin/ringattn include/ringattn.h share/man/man1/ringattn.1; do
    [ -f "$prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done
lib=$(dirname "$(find "$prefix" -name libringattn.a)")
[ -L "$lib/libringattn.so" ] || { echo "not installed: libringattn.so"; exit 1; }
"$prefix/bin/ringattn" info >/dev/null
echo "installed command runs"

for linkage in shared static; do
    "$cmake" -S "$consumer" -B "$dir/$linkage" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
        -DLINKAGE=$linkage >"$dir/$linkage.log" 2>&1 || { cat "$dir/$linkage.log"; exit 1; }
    "$cmake" --build "$dir/$linkage" >>"$dir/$linkage.log" 2>&1 || { cat "$dir/$linkage.log"; exit 1; }
    said=$("$dir/$linkage/consumer") || { echo "find_package, $linkage: $said"; exit 1; }
    echo "find_package, $linkage: $said"
done

command -v pkg-config >/dev/null || { echo "no pkg-config: the .pc file was not tried"; exit 77; }
# The file lies elsewhere than where it was installed, and than what was configured.
export PKG_CONFIG_PATH="$lib/pkgconfig"
pc=pkg-config
named=$(cd "$($pc --variable=prefix ringattn)" && pwd -P)
[ "$named" = "$(cd "$prefix" && pwd -P)" ] || { echo "the .pc file names the prefix $named"; exit 1; }
# shellcheck disable=SC2046
"$cc" -std=c11 "$consumer/main.c" $($pc --cflags --libs ringattn) -o "$dir/pc-shared"
said=$(LD_LIBRARY_PATH="$lib" "$dir/pc-shared") || { echo "pkg-config, shared: $said"; exit 1; }
echo "pkg-config, shared: $said"
# shellcheck disable=SC2046
"$cc" -std=c11 "$consumer/main.c" $($pc --static --cflags --libs ringattn | sed "s|-lringattn|$lib/libringattn.a|") \
    -o "$dir/pc-static"
said=$("$dir/pc-static") || { echo "pkg-config, static: $said"; exit 1; }
echo "pkg-config, static: $said"
