#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A timeline over processes has the events of one over threads, of every rank, and on one clock: also
# where the processes have different ones.
# usage: trace.sh BUILD LAUNCHER
set -eu
build=$1 launcher=$2
. "$(dirname "$0")/launch.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export RINGATTN_THREADS=1
problem="--tokens 400 --heads 2 --dim 16 --pattern causal --partition zigzag --strategy allgather --backward --quiet"

# events FILE: rank, name, hop and block of each
events()
{
    awk -F'[:,] *' '/"name"/ { name = $2 } /"tid"/ { tid = $2 } /"hop"/ { hop = $2 }
        /"block"/ { print tid, name, hop, $2 }' "$1" | sort
}

# shellcheck disable=SC2086
"$build/ringattn" run $problem --ring 4 --trace threads.json >/dev/null
# shellcheck disable=SC2086
launch 4 "$build/ringattn" run $problem --transport mpi --trace one.json >/dev/null
events threads.json >threads
events one.json >one
cmp threads one || { diff threads one; fail "other events than those of threads"; }
[ "$(grep -c '^3 ' one)" -gt 32 ] || fail "too few events to come in several batches"
grep -q '"clock_doubt_us": 0$' one.json || fail "in doubt about the one clock there is"

# latest FILE: when the last event began, in microseconds
latest() { awk -F'[:,] *' '/"ts"/ && $2 > most { most = $2 } END { printf "%d", most }' "$1"; }

if ! unshare --time --fork --monotonic 5000 true 2>/dev/null; then
    echo "a timeline over processes is that of threads; clocks that differ need permission: not tried"
    exit 0
fi
cat >late <<'EOF'
#!/bin/sh
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}" = 1 ] && exec unshare --time --fork --monotonic 5000 "$@"
exec "$@"
EOF
chmod +x late
# shellcheck disable=SC2086
launch 4 ./late "$build/ringattn" run $problem --transport mpi --trace two.json >/dev/null
events two.json >two
cmp one two || fail "other events under different clocks"
grep -q '"clock_doubt_us": 0$' two.json && fail "5000 seconds were taken for none"
[ "$(latest two.json)" -lt 1000000000 ] || fail "clocks were not put right: $(latest two.json) us"
echo "a timeline over processes is that of threads, on one clock"
