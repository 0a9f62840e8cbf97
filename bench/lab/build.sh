#!/bin/bash
# Builds variants of a kernel into shared libraries, as many at a time as there are processors.
#
#   usage: build.sh LIST OUT        one variant per line of LIST: NAME SWITCH=VALUE ...
#          build.sh --table OUT     the kernels of the .list files: table.so, launches
#
# A variant that spills registers, or whose wgmma ptxas serialises (warnings C75xx), has failed:
# its library is removed, its log stays. Fails if one has. Lines: name, registers, verdict.
set -u
if [ $# -ne 2 ] || { [ "$1" != --table ] && [ ! -r "$1" ]; }; then
    sed -n '4,5s/^# \{0,1\}//p' "$0"
    [ $# -ne 2 ] || echo "build.sh: there is no $1"
    exit 2
fi
list=$1 out=$2 root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
export out root

build()
{
    name=$1 source=variant.cu switches=()
    shift
    for switch in "$@"; do
        case $switch in
        SOURCE=*) source=${switch#SOURCE=} ;;
        *) switches+=("-DLAB_$switch") ;;
        esac
    done
    log=$out/$name.log library=$out/$name.so
    nvcc -gencode arch=compute_90a,code=sm_90a -O3 -std=c++17 -I"$root/src" \
        -Xptxas -v,-warn-spills -Xcompiler -fPIC -shared -cudart static "${switches[@]}" \
        "$root/bench/lab/$source" -o "$library" >"$log" 2>&1 || { echo "$name: does not compile"; return 1; }
    used=$(grep -oE 'Used [0-9]+ registers' "$log" | sort -k2 -n | tail -1)
    if grep -qE 'C75[0-9]{2}|setmaxnreg.*ignored|[1-9][0-9]* bytes spill' "$log"; then
        echo "$name: $used: FAILED: $(grep -oE 'C75[0-9]{2}|setmaxnreg.*|[1-9][0-9]* bytes spill stores' "$log" | sort -u | tr '\n' ' ')"
        rm -f "$library"
        return 1
    fi
    echo "$name: $used"
}
export -f build
gcc -std=c11 -O2 -fPIC -shared -I"$root"/{src,include} "$root/harness/base/philox.c" \
    "$root"/src/backend/cuda/sm90/{schedule,order}.c -o "$out/schedule.so" || exit 1
if [ "$list" = --table ]; then
    flags=(-gencode arch=compute_90a,code=sm_90a -O3 -std=c++17 -I"$root/src"
        -Xptxas -v,-warn-spills -Xcompiler -fPIC -cudart static -DRA__SM90_LAB=1)
    for part in forward backward; do
        nvcc "${flags[@]}" -c "$root/src/backend/cuda/sm90/$part.cu" -o "$out/$part.o" \
            >"$out/table-$part.log" 2>&1 &
    done
    wait
    grep -HE 'error|C75[0-9]{2}|setmaxnreg.*ignored|[1-9][0-9]* bytes spill' \
        "$out"/table-*.log && exit 1
    nvcc "${flags[@]}" -shared "$out/forward.o" "$out/backward.o" -o "$out/table.so" &&
        nvcc "${flags[@]}" -I"$root" -I"$root/include" "$root/bench/lab/launches.cu" "$out/forward.o" "$out/backward.o" \
            "$out/schedule.so" -Xlinker -rpath='$ORIGIN' -o "$out/launches" \
            >"$out/launches.log" 2>&1
    exit
fi
grep -vE '^ *(#|$)' "$list" | xargs -P "$(nproc)" -I{} bash -c 'build {}'
