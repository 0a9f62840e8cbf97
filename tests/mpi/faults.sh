#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Processes that die, stop, disagree, or cannot read or write: the others end in time with a sentence that
# says who and where, exit status 3 (2 for a wrong input), and leave no file behind.
# usage: faults.sh BUILD LAUNCHER [REPETITIONS]
# RINGATTN_LONG=1: 100 random repetitions of death and stopping, 20 of a block that changes.
set -eu
build=$1 launcher=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/launch.sh"
repetitions=1 # of each of two
[ "${RINGATTN_LONG:-0}" != 1 ] || repetitions=50
repetitions=${3:-$repetitions}
processes=4 timeout=2

# How to tell the launcher to let the others live.
case $("$launcher" --version 2>&1) in
*"Open MPI"* | *OpenRTE* | *prte*) survive="--enable-recovery" family=openmpi ;;
*) survive="-disable-auto-cleanup" family=mpich ;;
esac

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export RINGATTN_PLUGINS="$build" RINGATTN_THREADS=1

# Each process tells its id and, if it lives so long, when and how it ended.
cat >rank.sh <<'END'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-}}}
"$@" &
echo $! >"pid.$rank"
code=0
wait $! || code=$?
echo "$(date +%s.%N) $code" >"end.$rank"
exit $code
END

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", b - a }'; }

nothing_left()
{
    left=$(find "$dir" -name '*out.npy*')
    [ -z "$left" ] || fail "$1: left behind: $left"
}

# MPI_Init has no timeout: a rank that dies in there leaves the others to the launcher. Who has used the
# CPU for two tenths of a second is past it.
wait_until_all_work()
{
    for _ in $(seq 400); do
        working=0
        for file in pid.*; do
            [ -s "$file" ] || continue
            ticks=$(awk '{ print $14 }' "/proc/$(cat "$file")/stat" 2>/dev/null) || continue
            if [ "${ticks:-0}" -ge 20 ]; then working=$((working + 1)); fi
        done
        [ $working -lt $processes ] || return 0
        sleep 0.05
    done
    cat said
    fail "the processes do not begin to work"
}

# By itself; Hydra may end a rank, asked not to or not, when it sees another one fail.
has_ended()
{
    [ -s "end.$1" ] || { [ $family = mpich ] && [ ! -e "/proc/$(cat "pid.$1")" ]; }
}

# Until all but the victim have ended, 15 seconds at most; sets $ended to how many did.
wait_for_others()
{
    for _ in $(seq 300); do
        ended=0
        for rank in $(seq 0 $((processes - 1))); do
            if [ "$rank" != $victim ] && has_ended "$rank"; then ended=$((ended + 1)); fi
        done
        [ $ended -lt $((processes - 1)) ] || return 0
        sleep 0.05
    done
}

# strike SIGNAL: a random rank, at a random moment of a long run; the launcher lets the others live. All
# of them must end by themselves, name it, and not be late.
strike()
{
    rm -f pid.* end.* said
    victim=$((RANDOM % processes)) delay=$((RANDOM % 3)).$((RANDOM % 10))
    timeout 60 "$launcher" $survive -np $processes sh rank.sh "$build/ringattn" run --tokens 65536 \
        --transport mpi --timeout $timeout --out out.npy \
        >/dev/null 2>said &
    job=$!
    wait_until_all_work
    sleep "$delay"
    struck=$(now)
    kill -"$1" "$(cat pid.$victim)"
    wait_for_others
    kill -KILL "$(cat pid.$victim)" 2>/dev/null || true
    wait $job || true
    what="$1 of rank $victim after $delay s"
    [ $ended -eq $((processes - 1)) ] || { cat said; fail "$what: $ended of $((processes - 1)) others ended"; }
    grep -Eq "ringattn: rank [0-9], hop [0-9]+: .*(rank $victim|not all)" said ||
        { cat said; fail "$what: nobody says so"; }
    for rank in $(seq 0 $((processes - 1))); do
        [ "$rank" != $victim ] || continue
        [ -s "end.$rank" ] || continue # ended by the launcher
        read -r at code <"end.$rank"
        [ "$code" = 3 ] || { cat said; fail "$what: rank $rank ended with status $code"; }
        grep -Eq "ringattn: rank $rank, hop [0-9]+: .*(rank $victim|not all)" said ||
            { cat said; fail "$what: rank $rank does not say so"; }
        late=$(since "$struck" "$at")
        # A rank may begin to wait a moment after the other fell silent, on a busy machine.
        awk -v late="$late" -v limit=$((timeout + 4)) 'BEGIN { exit !(late < limit) }' ||
            { cat said; fail "$what: rank $rank took $late s"; }
    done
    nothing_left "$what"
}

# halt N: the first process stops before its N-th rename, while it gives two files their names, and goes on
# when the others have given up: all end with status 3, and neither file is there.
halt()
{
    rm -f pid.* end.* said
    victim=0
    timeout 60 "$launcher" $survive -np $processes sh rank.sh env LD_PRELOAD="$build/tests/mpi/libhalt.so" \
        RINGATTN_TEST_HALT="$1" "$build/ringattn" run --tokens 64 --transport mpi --timeout $timeout \
        --out out.npy --lse lse.out.npy >/dev/null 2>said &
    job=$!
    wait_for_others
    kill -CONT "$(cat pid.0)"
    wait $job || true
    [ $ended -eq $((processes - 1)) ] || { cat said; fail "stopped at rename $1: $ended others ended"; }
    for rank in $(seq 0 $((processes - 1))); do
        [ -s "end.$rank" ] || continue # ended by the launcher
        read -r at code <"end.$rank"
        [ "$code" = 3 ] || { cat said; fail "stopped at rename $1: rank $rank ended with status $code"; }
    done
    nothing_left "stopped at rename $1"
}

# The launcher may end the others itself; its own words count then.
strike_plainly()
{
    rm -f pid.* end.* said
    timeout 60 "$launcher" -np $processes sh rank.sh "$build/ringattn" run --tokens 32768 \
        --transport mpi --timeout $timeout --out out.npy >/dev/null 2>said &
    job=$!
    wait_until_all_work
    sleep 0.2
    kill -KILL "$(cat pid.1)"
    code=0
    wait $job || code=$?
    [ $code -ne 0 ] && [ $code -ne 124 ] || { cat said; fail "the launcher ended with status $code"; }
    nothing_left "KILL, and the launcher ends the rest"
}

# expect STATUS WORDS ARGUMENTS...: what processes end with, together, as the launcher tells it.
expect()
{
    status=$1 words=$2 code=0
    shift 2
    timeout 60 "$launcher" "$@" >/dev/null 2>said || code=$?
    [ $code -eq "$status" ] || { cat said; fail "status $code instead of $status: $*"; }
    grep -q "$words" said || { cat said; fail "not said: $words"; }
    nothing_left "$*"
}

for repetition in $(seq "$repetitions"); do
    strike STOP
    if [ $family != mpich ]; then strike KILL; fi # Hydra ends the others in any case
    if [ $((repetition % 10)) -eq 0 ]; then echo "$repetition of $repetitions"; fi
done
strike TERM # which a process hears of, and tells the others what it was
grep -q "rank $victim: interrupted by SIGTERM" said || { cat said; fail "TERM of rank $victim: nobody says why"; }
strike_plainly
echo "$repetitions times stopped and killed: the others end in time and say so"
renames="2 3" # a claim and a naming, of two each
[ "${RINGATTN_LONG:-0}" != 1 ] || renames="1 2 3 4"
for rename in $renames; do halt "$rename"; done
echo "stopped while files get their names: none does"

# Ranks that mean different things.
run="run --transport mpi --out out.npy --timeout 5 --ring 2"
a="-np 1 $build/ringattn $run"
expect 3 "rank [01], hop 0: rank [01] was given another number of queries (6[45] here, 6[45] there)" $a --tokens 64 : $a --tokens 65
if [ "${RINGATTN_LONG:-0}" = 1 ]; then # fault/mismatch walks all fields in one process
    expect 3 "was given another dtype (b*f[1632]* here, b*f[1632]* there)" $a --tokens 64 : $a --tokens 64 --dtype bf16
    expect 3 "was given another pattern ([a-z]* here)" $a --tokens 64 : $a --tokens 64 --pattern causal
    expect 3 "was given another partition" $a --tokens 64 : $a --tokens 64 --partition striped
fi
expect 3 "rank [01], hop 0: rank [01] was given another checksum (o[nf]* here, o[nf]* there)" \
    $a --tokens 64 : $a --tokens 64 --checksum
b="-np 1 $build/ringattn run --transport mpi --timeout 5 --ring 2 --tokens 64"
expect 3 "rank 0 was given --out and rank 1 was not" $a --tokens 64 : $b
expect 3 "ranks 0 and 1 were given different --seed" $b --seed 1 : $b --seed 2
expect 3 "rank 1 was given --backward and rank 0 was not" $b : $b --backward
expect 2 "needs as many processes; there are 2" -np 2 "$build/ringattn" run --transport mpi --ring 3
# A module that says it is of another version when it meets the others.
if command -v mpicc.$family >/dev/null; then
    mkdir other
    cp "$root"/src/transport/mpi/*.c other
    sed -i 's/RA__VERSION/"9.9.9"/' other/join.c
    mpicc.$family -std=c11 -D_GNU_SOURCE -fPIC -shared -I"$root/src" -I"$root/include" other/*.c \
        -o other/libringattn_mpi.so
    expect 3 "rank [01] has another library version (.*9.9.9" $a --tokens 64 : \
        -np 1 env RINGATTN_PLUGINS="$dir/other" "$build/ringattn" $run --tokens 64
fi
echo "ranks that disagree are named with the difference"

# A block that changes on its way is found by its checksum, at any hop; without one the result is wrong.
flip="env LD_PRELOAD=$build/tests/mpi/libflip.so RINGATTN_TEST_FLIP"
run="run --tokens 300 --heads 2 --dim 16 --transport mpi --out out.npy"
all_say() { [ "$(grep -c 'hop 1: [0-9]* bytes.* changed on their way' said)" -eq 3 ]; }
for victim in 0 2; do
    for attempt in 1 2 3; do # the launcher may end a rank that has not said it yet
        expect 3 "hop 1: [0-9]* bytes from rank $victim changed on their way to rank [0-2]: checksum [0-9a-f]* there" \
            -np 3 $flip=$victim,1 "$build/ringattn" $run --checksum
        ! all_say || break
    done
    all_say || { cat said; fail "not all ranks say what changed"; }
    expect 1 "the result is wrong" -np 3 $flip=$victim,1 "$build/ringattn" $run
done
flips=1 # of any of the six blocks that a rank sends, forward and backward
[ "${RINGATTN_LONG:-0}" != 1 ] || flips=20
for _ in $(seq $flips); do
    victim=$((RANDOM % 3))
    expect 3 "hop [0-9]: [0-9]* bytes from rank $victim changed on their way" -np 3 \
        $flip=$victim,$((1 + RANDOM % 6)) "$build/ringattn" $run --checksum --backward
done
RINGATTN_MPI_PIECE=7777 expect 3 "changed on their way" -np 3 $flip=1,1 "$build/ringattn" $run --checksum --backward
launch 3 $flip=-1,1 "$build/ringattn" verify --checksum "causal n=67 h=4/2 d=16 ring=3 zigzag backward mpi" \
    >said 2>&1 || { cat said; fail "checksums of messages that are right"; }
echo "a block that changed is found by its checksum"

# Files.
"$build/ringattn" run --tokens 300 --heads 4 --dim 32 --out in.npy >/dev/null
head -c 5000 in.npy >cut.npy
files="--k in.npy --v in.npy --transport mpi --timeout 5"
expect 2 "cut.npy should have .* bytes by its header but has 5000" -np 3 "$build/ringattn" run --q cut.npy \
    $files --out out.npy
mkdir small
if mount -t tmpfs -o size=64k tmpfs small 2>/dev/null; then
    trap 'umount "$dir/small"; rm -rf "$dir"' EXIT
    expect 3 "writing failed: No space left on device" -np 3 "$build/ringattn" run --q in.npy $files \
        --out small/out.npy
    echo "wrong files and full disks ($family)"
else
    echo "wrong files ($family); a full disk was not tried: no right to mount one"
fi
