#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/peers/compare from outside: peers.sh BUILD_DIR
#
# Its own rivals, in plain Python, are right, wrong, absent, picky or short-lived; OpenBLAS is asked
# where it was built. Closes with "N passed, N failed"; exit 77 without Python 3.
build=$(cd "${1:?usage: peers.sh BUILD_DIR}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
peers=$here/../../bench/peers
command -v python3 >/dev/null || { echo "peers.sh: no python3"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAILED: $1"; sed 's/^/    /' "$work/out" | head -6; }

TMPDIR="$work/two words" # folders may have spaces in their names
export TMPDIR
mkdir "$TMPDIR"

# compare FOLDER ARGUMENTS...: leaves $status and $work/out.
compare()
{
    folder=$1
    shift
    python3 "$folder/compare" --build "$build" --python python3 --threads 1 "$@" >"$work/out" 2>&1
    status=$?
}

succeeds() { if [ "$status" -eq 0 ]; then pass; else fail "$1: status $status"; fi; }
refuses() { if [ "$status" -eq 2 ]; then pass; else fail "$1: status $status"; fi; }
says() { if grep -q -e "$1" "$work/out"; then pass; else fail "no line like: $1"; fi; }
never_says() { if grep -q -e "$1" "$work/out"; then fail "a line like: $1"; else pass; fi; }
counts() { if [ "$1" -eq "$2" ]; then pass; else fail "$3: $1 instead of $2"; fi; }

# ---- Rivals of which we know what they do ----------------------------------------------------------

mkdir "$work/fake"
cp "$peers/compare" "$peers"/*.py "$work/fake"
for name in right wrong late silent picky mute; do
    cp "$here/rival.py" "$work/fake/$name.py"
    echo "$name $name.py how to get $name" >>"$work/fake/peers.list"
done
echo "nowhere nowhere how to get nowhere" >>"$work/fake/peers.list"

compare "$work/fake" --tokens 24 --heads 2 --dims 8 --dtypes f32 --runs 3 --out "$work/result" \
    --peers right,wrong,late,silent,picky,nowhere
succeeds "own rivals"
# 4 runs of late.py: two to warm up and two of the three rounds, of the first row alone.
figure='[0-9.]* ([0-9.]*-[0-9.]*)'
says "^| 24 x 8 f32 full forward *| $figure *| $figure [0-9.]* *| $figure WRONG *| - *| $figure [0-9.]* *|"
says "^| 24 x 8 f32 causal forward *| $figure *| $figure [0-9.]* *| $figure WRONG *| - *| - *|"
says '^| 24 x 8 f32 causal forward .*| right [0-9.]* *|$'
says '^  right: f32 forward [0-9.]*e-0[678]$'
says '^  WRONG: wrong at 24 x 8 f32 full forward: difference'
says '^  late: ended by itself'
says '^  picky: never causal (24 x 8 f32 causal forward)$'
says '^  silent is absent (silent: not today). how to get silent$'
says '^  nowhere is absent (not built). how to get nowhere$'
says '^Summary: ours / best rival .* of 2 rows'
never_says 'Summary: .*wrong'
counts "$(grep -c '"peer": "right"' "$work/result/samples.jsonl")" 6 "samples of right"
counts "$(grep -c ',ours,' "$work/result/summary.csv")" 2 "lines of ours"
counts "$(grep -c ',late,' "$work/result/summary.csv")" 0 "lines of late"

# A rival whose rounds do not fit the time has no figure, and it is said.
compare "$work/fake" --tokens 640 --heads 2 --dims 8 --dtypes f32 --patterns full --peers right \
    --seconds-per-row 3
succeeds "little time"
says "^| 640 x 8 f32 full forward *| $figure *| - *| - *|$"
says '^  right: too slow: 10 rounds do not fit --seconds-per-row'
says '^Summary: no rival was measured'
compare "$work/fake" --tokens 64 --heads 2 --dims 8 --dtypes f32 --peers right --seconds-per-row 0.01
succeeds "no time"
says '^| 64 x 8 f32 causal forward *| - *| - *| - *|$'
says '^  ours: too slow: 10 rounds do not fit'

# A rival that never answers costs the patience, once.
compare "$work/fake" --tokens 24 --heads 2 --dims 8 --dtypes f32 --runs 3 --peers mute,right --patience 2
succeeds "a mute rival"
says '^  mute: ended by itself, or after 2 s without an answer'
says '^| 24 x 8 f32 causal forward .*| right [0-9.]* *|$'

# Ended from outside in the middle of a row, it leaves no tensors behind.
python3 "$work/fake/compare" --build "$build" --python python3 --threads 1 --peers right \
    --tokens 256 --dims 8 --dtypes f32 >"$work/out" 2>&1 &
until [ -n "$(ls "$TMPDIR")" ] || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
kill -TERM $!
wait $!
counts $? 130 "status when ended"
counts "$(find "$TMPDIR" -mindepth 1 -maxdepth 1 | wc -l)" 0 "folders left behind"

compare "$work/fake" --peers nobody
refuses "an unknown rival"
says "'nobody' is none of right"
compare "$work/fake" --runs 0
refuses "no runs"

# ---- The real list -----------------------------------------------------------------------------------

compare "$peers" --peers naive --tokens 128 --dims 64 --dtypes f32,bf16 --runs 3
succeeds "the real list"
if [ -x "$build/bench/peers/naive" ]; then
    says '^| 128 x 64 f32 causal forward .*| naive [0-9.]* *|$'
    says '^  naive: f32 forward [0-9.]*e-0[678]$'
    says '^  naive: f32 only (128 x 64 bf16 full forward'
else
    says '^  naive is absent (not built).*libopenblas-dev'
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
