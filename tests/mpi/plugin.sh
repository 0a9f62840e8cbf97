#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plug-ins are found where they are said to be, and those that cannot be used are reported by name.
# usage: plugin.sh BUILD CC
set -eu
build=$1 cc=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
module=libringattn_mpi.so

# says WORDS WHERE...: `info` with these folders holds the words.
says()
{
    words=$1
    shift
    said=$(RINGATTN_PLUGINS="$*" "$program" info)
    case $said in
    *"$words"*) ;;
    *) echo "with RINGATTN_PLUGINS=$* not said: $words"; echo "$said" | grep -A2 ' mpi ' || true; exit 1 ;;
    esac
}

# refuses WORDS WHERE: a caller that asks for it gets the same sentence, and the program goes on without it.
refuses()
{
    says "- mpi" "$2"
    says "$1" "$2"
    if RINGATTN_PLUGINS=$2 "$program" run --tokens 16 --transport mpi >"$dir/said" 2>&1; then
        echo "run took it: $1"
        exit 1
    fi
    grep -q "the transport mpi cannot be used here: .*$1" "$dir/said" || { cat "$dir/said"; exit 1; }
    RINGATTN_PLUGINS=$2 "$program" run --tokens 16 --transport local >/dev/null
}

# A copy stands alone: there is no module beside it.
cp "$build/ringattn" "$dir/ringattn"
program=$dir/ringattn
mkdir "$dir/none" "$dir/broken" "$dir/stranger" "$dir/other"
refuses "$module was not found in $dir/none, $dir" "$dir/none"
says "on Debian libopenmpi-dev and openmpi-bin" "$dir/none"

echo "no module at all" >"$dir/broken/$module"
refuses "$dir/broken/$module" "$dir/broken"
says "on Debian libopenmpi-dev and openmpi-bin" "$dir/broken"

echo 'int nothing;' >"$dir/stranger.c"
"$cc" -shared -fPIC "$dir/stranger.c" -o "$dir/stranger/$module"
refuses "is not a plug-in of ringattn" "$dir/stranger"

cat >"$dir/other.c" <<'END'
#include "core/plugin.h"
const struct ra__plugin ra_plugin = { .shape = RA__PLUGIN_VERSION, .version = "0.0.9" };
END
"$cc" -std=c11 -shared -fPIC -I"$root/src" -I"$root/include" "$dir/other.c" -o "$dir/other/$module"
refuses "$dir/other/$module belongs to ringattn 0.0.9" "$dir/other"

[ -f "$build/$module" ] || { echo "skipped: the module for MPI is not built; the rest passed"; exit 77; }
says "+ mpi" "$build"                       # named
says "+ mpi" "$dir/none:$build"             # in a list
says "belongs to ringattn 0.0.9" "$dir/other:$build" # the first one decides
cp "$build/$module" "$dir/$module"
says "+ mpi" ""                             # beside the program
rm "$dir/$module"
cmake --install "$build" --prefix "$dir/installed" >/dev/null
program=$dir/installed/bin/ringattn
says "+ mpi" ""                             # where it is installed, and moved
mv "$dir/installed" "$dir/moved"
program=$dir/moved/bin/ringattn
says "+ mpi" ""
echo "plug-ins are found, or refused by name"
