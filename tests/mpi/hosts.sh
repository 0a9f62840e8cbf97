#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A ring over hosts that have nothing in common but a network: network namespaces with links of a given rate,
# by tools/virtual-hosts. Results are right, communication is hidden or reported, and a link that is cut ends the
# run on both sides of the cut.
# usage: hosts.sh BUILD LAUNCHER
# RINGATTN_LONG=1: more problems, more rates, and the link cut ten times at random moments.
set -eu
build=$1 launcher=$2
hosts=$(cd "$(dirname "$0")/../../tools" && pwd)/virtual-hosts
. "$(dirname "$0")/launch.sh"
case $("$launcher" --version 2>&1) in
*"Open MPI"* | *OpenRTE*) ;;
*) echo "skipped: hosts in network namespaces are started by Open MPI's launcher only"; exit 77 ;;
esac
[ -n "${VIRTUAL_HOSTS:-}" ] || exec "$hosts" 3 bash "$0" "$@"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export RINGATTN_PLUGINS="$build" RINGATTN_THREADS=1
ringattn=$build/ringattn timeout=2 long=${RINGATTN_LONG:-0}

# field NAME < JSON: the value of a name, up to the end of the line or list.
field() { sed -n "s/.*\"$1\": *\[\{0,1\}\([^]]*[^],]\).*/\1/p"; }

# ---- Right ---------------------------------------------------------------------------------------

launch 3 sh -c 'hostname >host.$OMPI_COMM_WORLD_RANK' # a shared folder, as a cluster has
[ "$(cat host.* | sort -u | wc -l)" -eq 3 ] || fail "three ranks are on $(cat host.* | sort -u | wc -l) hosts"

set -- "causal n=307 h=4/2 d=16 ring=3 zigzag backward mpi threads=1" \
    "full n=307 h=3/3 d=16 ring=3 ulysses backward mpi threads=1" \
    "window:64 n=307 h=4/2 d=16 ring=3 striped bf16 backward mpi threads=1"
if [ "$long" = 1 ]; then
    for n in 1 2 1000; do
        set -- "$@" "causal n=$n h=6/3 d=32 ring=3 allgather zigzag backward mpi threads=1" \
            "dilated:16/1,64/4 n=$n h=4/4 d=16 ring=3 backward mpi threads=1"
    done
fi
launch 3 "$ringattn" verify "$@" >said 2>&1 || { cat said; fail "a ring over 3 hosts"; }
[ "$(grep -c '^passed' said)" -eq $# ] || { cat said; fail "not all of $# passed"; }
launch 4 "$ringattn" verify "causal n=307 h=4/2 d=16 ring=4 2d:2x2 zigzag backward mpi threads=1" >said 2>&1 ||
    { cat said; fail "2d over 3 hosts"; }
echo "$(($# + 1)) problems over 3 hosts agree with the oracle"

# ---- Hidden or reported ------------------------------------------------------------------------------

# run_at RATE BITS: two ranks over links of that rate; adds a line to `shares`.
run_at()
{
    "$hosts" rate "$1"
    launch 2 "$ringattn" run --transport mpi --tokens 6144 --heads 2 --pattern causal --partition zigzag \
        --backward --json >said 2>&1 || { cat said; fail "a run at $1"; }
    field seconds <said | head -n 1 >seconds
    # Nobody sends faster than the link is, but for one full bucket of each pass.
    field bytes_sent_per_rank <said | tr -d ' ' | tr ',' '\n' | sort -n | tail -n 1 |
        awk -v bits="$2" -v seconds="$(cat seconds)" -v rate="$1" '
            seconds < ($1 - 2 * 262144) * 8 / bits { print "faster than the link at " rate; exit 1 }' || fail "a run at $1"
    field wait_seconds_per_rank <said | tr ',' '\n' | sort -g | tail -n 1 |
        awk -v rate="$1" -v seconds="$(cat seconds)" '
            { printf "%-8s %6.2f s, exposed communication %6.2f%%\n", rate, seconds, 100 * $1 / seconds }' | tee -a shares
}

run_at 1gbit 1e9
if [ "$long" = 1 ]; then run_at 100mbit 1e8; fi
run_at 20mbit 2e7
# A block that is under way for twice the timeout is waited for.
launch 2 "$ringattn" run --transport mpi --tokens 10240 --heads 4 --pattern causal --partition zigzag \
    --timeout $timeout --json >said 2>&1 || { cat said; fail "a block that takes longer than the timeout"; }
field wait_seconds_per_rank <said | tr ',' '\n' | awk -v limit=$timeout '$1 > limit { long = 1 } END { exit !long }' ||
    { cat said; fail "nobody waited for longer than the timeout"; }
# What is measured of the last link is what it can do, give or take a bucket.
launch 2 "$ringattn" run --transport mpi --tokens 256 --heads 2 --strategy auto >said 2>&1 || { cat said; fail "auto"; }
tr -s ' \n' ' ' <said | sed -n 's/.* us (measured), \([^ ]*\) GB\/s (measured).*/\1/p' |
    awk '$1 > 0 && $1 * 8e9 < 2 * 2e7 { right = 1 } END { exit !right }' || { cat said; fail "a link of 20 Mbit/s"; }
"$hosts" rate none
# At the first rate messages take a tenth of the work's time, at the last five times as much.
awk '{ share[NR] = $NF + 0 } END { exit !(share[1] + 20 < share[NR]) }' shares ||
    fail "a link fifty times as slow exposes no more"

# ---- Cut -----------------------------------------------------------------------------------------

# Each process tells when it works, and how it ended.
cat >rank.sh <<'END_RANK'
"$@" 2>"words.$OMPI_COMM_WORLD_RANK" &
echo $! >"pid.$OMPI_COMM_WORLD_RANK"
code=0
wait $! || code=$?
echo "$(date +%s.%N) $code" >"end.$OMPI_COMM_WORLD_RANK"
exit $code
END_RANK

# MPI_Init has no timeout; who has used the CPU for two tenths of a second is past it.
works()
{
    [ -s "pid.$1" ] && [ "$(awk '{ print $14 }' "/proc/$(cat "pid.$1")/stat" 2>/dev/null || echo 0)" -ge 20 ]
}

# patiently SECONDS COMMAND...: until it succeeds.
patiently()
{
    tries=$(($1 * 20))
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}

all_work() { works 0 && works 1 && works 2; }
all_ended() { [ -s end.0 ] && [ -s end.1 ] && [ -s end.2 ]; }

# A rank on either side of the cut ends by itself. The launcher has lost a host and cannot know how it
# went there, so it is ended here.
cut()
{
    rm -f pid.* end.* words.*
    "$launcher" --enable-recovery -np 3 sh rank.sh "$ringattn" run --transport mpi --tokens 32768 \
        --timeout $timeout --out out.npy >launched 2>&1 &
    job=$!
    patiently 30 all_work || { cat launched words.*; fail "the ranks do not begin to work"; }
    sleep "$1"
    "$hosts" cut 3
    struck=$(date +%s.%N)
    patiently 20 all_ended || { cat launched words.*; fail "a cut link: not all ranks ended"; }
    "$hosts" join 3
    kill -KILL $job 2>/dev/null || true
    wait $job 2>/dev/null || true
    for rank in 0 1 2; do
        read -r at code <end.$rank
        [ "$code" = 3 ] || { cat words.$rank; fail "a cut link: rank $rank ended with status $code"; }
        case $rank in 2) lost="[01]" ;; *) lost=2 ;; esac
        grep -Eq "ringattn: rank $rank, hop [0-9]+: .*rank $lost" words.$rank ||
            { cat words.$rank; fail "a cut link: rank $rank does not say so"; }
        awk -v from="$struck" -v to="$at" -v limit=$((timeout + 4)) 'BEGIN { exit !(to - from < limit) }' ||
            fail "a cut link: rank $rank ended $from to $to, later than the timeout"
    done
    left=$(find . -name '*out.npy*')
    [ -z "$left" ] || fail "a cut link: left behind: $left"
}

cuts=1
[ "$long" != 1 ] || cuts=10
for _ in $(seq $cuts); do cut "$((RANDOM % 3)).$((RANDOM % 10))"; done
echo "the link of a host cut $cuts times: all ranks end in time, with status 3 and no file"
