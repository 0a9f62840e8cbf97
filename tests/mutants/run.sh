#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Breaks the code on purpose, one mutant of mutants.list at a time, and expects the tests to notice.
# usage: run.sh [-m] [NAME...]     only these mutants; -m prints a table in Markdown
#        run.sh -n                 only looks whether each still changes its file; takes a second
#
# JOBS=2 is the number of mutants at a time, each in a copy of the tree; those whose tests measure time
# come last, one by one. A test runs until its first failure, or 300 seconds. Exits with 1 if a
# mutant survives, changes nothing or does not compile, or if the tests fail without any. A mutant of a
# kernel that this machine cannot run is skipped.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
list=$root/tests/mutants/mutants.list
jobs=${JOBS:-2}
markdown=''
part='' # K/N: each N-th of the mutants; timed: those of tests that measure time; empty: all, in parts
while :; do
    case ${1:-} in
    -m) markdown=-m; shift ;;
    -n) part=none; shift ;;
    -p) part=$2; shift 2 ;;
    *) break ;;
    esac
done
unset RINGATTN_LONG RINGATTN_KERNEL RINGATTN_THREADS
work=$(mktemp -d "${TMPDIR:-/tmp}/ringattn-mutants.XXXXXX")
trap 'rm -rf "$work"' EXIT

# start PART JOBS NAMES...: a part in the background, which leaves its figures in a file.
start() {
    name=$(echo "$1" | tr / -) one=$1 at_a_time=$2
    shift 2
    # shellcheck disable=SC2086
    JOBS=$at_a_time sh "$0" $markdown -p "$one" "$@" 3>"$work/figures-$name" &
    parts="$parts $!"
}

if [ -z "$part" ]; then
    parts=''
    trap 'kill $parts 2>/dev/null || true; wait; exit 1' INT TERM
    if [ "$markdown" ]; then
        printf '| mutant | what it breaks | caught by |\n|---|---|---|\n'
    else
        printf '%-30s %s\n' mutant 'caught by'
    fi
    export CCACHE_DIR="$work/ccache" # of all parts
    for k in $(seq "$jobs"); do start "$k/$jobs" 1 "$@"; done
    wait
    start timed "$jobs" "$@"
    wait
    # A part that came to no end has left nothing, and counts as a failure.
    cat "$work"/figures-* | awk -v parts="$jobs" '
        { passed += $1; failed += $2; skipped += $3 }
        END {
            failed += parts + 1 - NR
            if (skipped) print skipped " skipped"
            print passed " passed, " failed " failed"
            exit (failed > 0)
        }'
    exit
fi
pid=''
trap 'if [ "$pid" ]; then kill $pid 2>/dev/null || true; fi; exit 1' INT TERM

# each COMMAND NAMES...: calls it with the mutants of this part that are wanted, in $mutant, $file, ...
wanted() { # wanted NAME [NAMES...]
    name=$1
    shift
    [ $# -eq 0 ] && return 0
    for one in "$@"; do [ "$one" = "$name" ] && return 0; done
    return 1
}
mine() {
    case "$part $tests" in
    none*) return 0 ;;
    timed*fault/* | timed*mpi/*) return 0 ;;
    timed* | *fault/* | *mpi/*) return 1 ;;
    esac
    turn=$((turn + 1))
    [ $((turn % ${part#*/} + 1)) -eq "${part%/*}" ]
}
each() {
    command=$1
    shift
    mutant='' file='' kernel='' edit='' tests='' what='' turn=0
    while read -r key rest; do
        case $key in
        mutant) mutant=$rest kernel='' ;;
        file) file=$rest ;;
        kernel) kernel=$rest ;;
        edit) edit=$rest ;;
        tests) tests=$rest ;;
        what)
            what=$rest
            if wanted "$mutant" "$@" && mine; then $command; fi
            ;;
        esac
    done <"$list"
}

# The part `none`: nothing is built.
look() {
    if [ ! -f "$root/$file" ]; then echo "$mutant: there is no $file"
    elif ! sed "$edit" "$root/$file" >"$work/edited"; then echo "$mutant: sed refuses its edit"
    elif cmp -s "$work/edited" "$root/$file"; then echo "$mutant: changes nothing in $file"
    fi
}
if [ "$part" = none ]; then
    idle=$(each look "$@")
    echo "${idle:-every mutant changes its file}"
    [ -z "$idle" ]
    exit
fi

if [ -z "$(each 'echo one' "$@")" ]; then
    echo 0 0 0 >&3
    exit
fi

tree=$work/tree build=$work/build log=$work/log
mkdir "$tree"
(cd "$root" && tar cf - CMakeLists.txt cmake include src harness cli bench tests/support tests/unit tests/ring tests/fault tests/mpi tests/bits tests/cuda) |
    (cd "$tree" && tar xf -)
# The bodies of the vector kernels are shared; one instruction set is enough to see them broken. Words
# of the other are there for kernels that build on them.
rm "$tree/src/backend/cpu/kernel/avx512/avx512.c"

generator=''
if command -v ninja >/dev/null; then generator='-G Ninja'; fi
# A mutant's file is compiled again when it is put back. With ccache that costs nothing.
launcher=''
if command -v ccache >/dev/null; then
    launcher='-DCMAKE_C_COMPILER_LAUNCHER=ccache'
    export CCACHE_BASEDIR="$work" CCACHE_NOHASHDIR=yes # the same file in the copy of another part is the same
fi
# shellcheck disable=SC2086
cmake -S "$tree" -B "$build" $generator $launcher -DCMAKE_BUILD_TYPE=None -DRINGATTN_CUDA=OFF -DCMAKE_C_FLAGS=-O1 \
    -DRINGATTN_WERROR=OFF -DRINGATTN_BUILD_EXAMPLES=OFF -DRINGATTN_BUILD_PEERS=OFF >"$log" 2>&1 || { cat "$log"; exit 1; }

# compile KIND/NAME. A test of the mpi transport is a script that starts programs with the plug-in; one
# on the emulated GPU is a program with a plug-in, of its own or a test of rings.
programs=$(cd "$tree/tests/mpi" && grep -l cmocka ./*.c | sed 's|^\./\(.*\)\.c$|test_mpi_\1|')
compile() {
    case $1 in
    mpi/*) targets="ringattn_mpi $programs" ;;
    cuda/*)
        kind=cuda name=${1#cuda/}
        [ ! -e "$tree/tests/ring/test_$name.c" ] || kind=ring
        targets="ringattn_cuda_emulated test_${kind}_$name"
        ;;
    *) targets="test_$(echo "$1" | tr / _)" ;;
    esac
    # shellcheck disable=SC2086
    cmake --build "$build" --parallel "$jobs" --target $targets >"$log" 2>&1 </dev/null
}

# passes KIND/NAME: runs the test, and stops it at its first failure: the rest would only cost time.
# Leaves its exit status in $ended.
passes() {
    case $1 in
    mpi/* | cuda/*) timeout 300 ctest --test-dir "$build" -R "^$1\$" --output-on-failure >"$log" 2>&1 </dev/null & ;;
    *) timeout 300 "$build/tests/$1" >"$log" 2>&1 </dev/null & ;;
    esac
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        if grep -q '^\[  FAILED  \]' "$log"; then
            kill $pid 2>/dev/null || true
            wait $pid 2>/dev/null || true
            ended=1
            return 1
        fi
        sleep 0.1
    done
    ended=0
    wait $pid || ended=$?
    return $ended
}

# Is the kernel, or the transport, built, and can this machine run it? Asked before any mutant is compiled.
usable=$work/usable
can_run() { grep -q "^  [*+] $1 " "$usable"; }

# Which case of a test failed, or how the test ended.
why() {
    case=$(sed -n 's/^\[  FAILED  \] \([a-z_0-9]*\)$/\1/p' "$log" | head -n 1)
    if [ "$case" ]; then echo "$case"
    elif [ "$ended" -eq 124 ] || [ "$ended" -eq 99 ]; then echo "(hangs)"
    elif [ "$ended" -gt 128 ]; then echo "(crashes)"
    else echo "(status $ended)"
    fi
}

passed=0 failed=0 skipped=0
report() { # report VERDICT NAME CAUGHT_BY
    # shellcheck disable=SC2016
    if [ "$markdown" ]; then printf '| `%s` | %s | `%s` |\n' "$2" "$what" "$3"; else printf '%-30s %s\n' "$2" "$3"; fi
    if [ "$1" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# Tries the mutant that was read; leaves the tree as it was.
try() {
    if [ ! -f "$tree/$file" ]; then
        report bad "$mutant" "THERE IS NO $file"
        return
    fi
    cp "$tree/$file" "$work/original"
    sed -i "$edit" "$tree/$file"
    if cmp -s "$tree/$file" "$work/original"; then
        report bad "$mutant" "CHANGES NOTHING in $file"
        return
    fi
    case $tests in mpi/*) kernel=mpi ;; esac
    if [ "$kernel" ] && ! can_run "$kernel"; then
        echo "skip  $mutant: this machine does not run $kernel" >&2
        skipped=$((skipped + 1))
        cp "$work/original" "$tree/$file"
        return
    fi
    verdict=bad caught="SURVIVES"
    for test in $tests; do
        case $sound in *" $test "*) ;; *) continue ;; esac
        if ! compile "$test"; then
            caught="DOES NOT COMPILE: $(grep -m 1 error "$log" || tail -n 1 "$log")"
            break
        fi
        if ! passes "$test"; then
            verdict=ok caught="$test $(why)"
            break
        fi
    done
    report $verdict "$mutant" "$caught"
    cp "$work/original" "$tree/$file" # a new time of change, so it is compiled again
}

cmake --build "$build" --parallel "$jobs" --target ringattn >"$log" 2>&1 </dev/null || { cat "$log"; exit 1; }
# Where there is MPI.
cmake --build "$build" --parallel "$jobs" --target ringattn_mpi >"$log" 2>&1 </dev/null || true
"$build/ringattn" info >"$usable"

# Without a mutant every test must pass: from the others nothing would be learned.
name_tests() { echo "$tests" | tr ' ' '\n'; }
sound=''
for test in $(each name_tests "$@" | sort -u); do
    case $test in mpi/*) can_run mpi || continue ;; esac
    if compile "$test" && passes "$test"; then
        sound="$sound $test "
    else
        tail -n 20 "$log"
        echo "$test fails without any mutant"
        failed=$((failed + 1))
    fi
done

each try "$@"

echo "$passed $failed $skipped" >&3
