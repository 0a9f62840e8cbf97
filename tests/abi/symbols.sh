#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shared library exports exactly the functions its headers declare, each with the version of its ABI.
# usage: symbols.sh LIBRARY
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# A declaration starts with RA_API and has its name on that line. ringattn_mpi.h has none.
cat "$root/include/ringattn.h" "$root/include/ringattn_transport.h" "$root/include/ringattn_stream.h" >"$dir/headers"
sed -n 's/^RA_API [^(]*[ *]\(ra_[a-z0-9_]*\)(.*/\1/p' "$dir/headers" | sort >"$dir/declared"
number() { sed -n "s/^#define RA_VERSION_$1 //p" "$root/include/ringattn.h"; }
version=RINGATTN_$(number MAJOR).$(number MINOR)
nm -D --defined-only "$1" | awk '{ print $NF }' | grep -vx "$version" | sort >"$dir/versioned"
sed 's/@.*//' "$dir/versioned" >"$dir/exported"

declarations=$(grep -c '^RA_API ' "$dir/headers")
found=$(wc -l <"$dir/declared")
if [ "$declarations" -ne "$found" ]; then
    echo "the header has $declarations declarations but $found names were read from it"
    exit 1
fi
if ! diff "$dir/declared" "$dir/exported" >"$dir/diff"; then
    sed -n 's/^< /declared but not exported: /p; s/^> /exported but not declared: /p' "$dir/diff"
    exit 1
fi
if grep -v "@@$version\$" "$dir/versioned"; then
    echo "these do not have the version $version"
    exit 1
fi
echo "$found functions declared, and exported as $version"
