#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Turns with PyTorch, from outside, with a Python that only pretends to have it:
# rivals.sh BUILD_DIR [DEVICE DRIVER]
#
# Ends with "N passed, N failed"; exit 77 without Python 3. DEVICE is where ours runs: cpu if not given; DRIVER
# is a folder with libraries of its driver (tests/cuda/driver.c).
build=$(cd "${1:?usage: rivals.sh BUILD_DIR [DEVICE DRIVER]}" && pwd)
device=${2:-cpu}
if [ -n "${3:-}" ]; then export LD_LIBRARY_PATH="$3${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"; fi
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || { echo "rivals.sh: no python3"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cp "$here/pytorch.py" "$work/python"
chmod +x "$work/python"
export RINGATTN_TORCH_PYTHON="$work/python" LOG="$work/log" FAULT=
passed=0
failed=0

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAILED: $1"; cut -c1-400 "$work/out" "$work/err" | sed 's/^/    /' | head -8; }

# run ARGUMENTS...: leaves $status, $work/out, $work/err and the commands in $LOG.
run() { rm -f "$LOG"; "$build/ringattn" "$@" >"$work/out" 2>"$work/err"; status=$?; }
case_of() { run bench case "$1 device=$device" --runs 3 --seconds 0.1 --rivals "$2" ${3:-}; }
exits() { if [ "$status" -eq "$1" ]; then pass; else fail "$2: status $status"; fi; }
says() { if grep -q -e "$1" "$work/out"; then pass; else fail "no line like: $1"; fi; }
never_says() { if grep -q -e "$1" "$work/out"; then fail "a line like: $1"; else pass; fi; }
refused() { text=$1; shift; run "$@"; exits 2 "ringattn $*"; if grep -qF -e "$text" "$work/err"; then pass; else fail "not: $text"; fi; }
equal() { if [ "$1" = "$2" ]; then pass; else fail "$3: $1 instead of $2"; fi; }

# member PASS NAME MEMBER: of a row of the last run; the name of ours is null.
member() { sed -n "/\"name\": $2,.*\"pass\": \"$1\"/s/.*\"$3\": \(\"[^\"]*\"\|[^,}]*\).*/\1/p" "$work/out"; }
# near A B: within a thousandth.
near() { if awk "BEGIN { exit !($1 > 0.999 * $2 && $1 < 1.001 * $2) }"; then pass; else fail "$3: $1 instead of $2"; fi; }
measured() { equal "$(member "$1" "\"$2\"" absent)" null "$2 $1 has figures"; equal "$(member "$1" "\"$2\"" runs)" 3 "rounds of $2 $1"; }
absent() { if member "$1" "\"$2\"" absent | grep -q -e "$3"; then pass; else fail "$2 $1 is not absent by: $3"; fi; }

problem='causal n=16 h=2 d=16 f32 backward'

# ---- Rounds, medians, ratios -------------------------------------------------------------------------

case_of "$problem" cudnn,flash
exits 0 "two rivals"
equal "$(wc -l <"$work/out")" 6 "rows"
for pass in forward backward; do
    for name in cudnn flash; do
        measured $pass $name
        near "$(member $pass "\"$name\"" seconds)" 0.3 "median of $name $pass"
        near "$(member $pass "\"$name\"" seconds_least)" 0.1 "least of $name $pass"
        near "$(member $pass "\"$name\"" seconds_most)" 0.5 "most of $name $pass"
        near "$(member $pass "\"$name\"" single_seconds)" 0.2 "single shots of $name $pass"
        # Single shots of ours are all beside the same time of theirs, so the ratio is that of medians.
        near "$(member $pass "\"$name\"" single_ratio)" "0.2 / $(member $pass null single_seconds)" "single ratio of $name $pass"
        near "$(member $pass "\"$name\"" rate_most)" "$(member $pass null work) / 0.1 * 1e-9" "rate of $name $pass"
        if awk "BEGIN { least = $(member $pass "\"$name\"" ratio_least); most = $(member $pass "\"$name\"" ratio_most)
                exit !(least * $(member $pass null seconds_most) > 0.0999 && most * $(member $pass null seconds_least) < 0.5001 &&
                       least <= $(member $pass "\"$name\"" ratio) && $(member $pass "\"$name\"" ratio) <= most) }"; then pass; else
            fail "ratios of $name $pass"; fi
        equal "$(member $pass "\"$name\"" kind)" '"rival"' "kind of $name"
        equal "$(member $pass "\"$name\"" library)" '"PyTorch 0.0"' "library of $name"
    done
    equal "$(member $pass null kind)" '"attention"' "kind of ours"
    equal "$(member $pass null ratio)" null "ours has no ratio"
done
for name in null '"flash"'; do
    if [ -n "${3:-}" ]; then
        equal "$(member backward "$name" clock_mhz)" 1500 "clock beside $name"
        if awk "BEGIN { watts = $(member backward "$name" power_watts); exit !(watts > 690 && watts < 710) }"; then pass; else
            fail "power beside $name: $(member backward "$name" power_watts)"; fi
    else
        equal "$(member backward "$name" clock_mhz)" null "no clock beside $name"
        equal "$(member backward "$name" power_watts)" null "no power beside $name"
    fi
done
cmp -s "$LOG.script" "$here/../../bench/rivals/rivals.py" && pass || fail "the script is not rivals.py"

# One process for all of it; in each round one turn of everybody, forward then backward.
turns() {
    for name in $2; do
        echo "sustained $name $1"
        echo "single $name $1"
    done
}
{
    echo start
    echo problem
    for name in cudnn flash; do for pass in forward backward; do echo "prepare $name $pass"; done; done
    for round in 1 2 3; do for pass in forward backward; do turns $pass "cudnn flash"; done; done
} >"$work/expected"
sed 's/^\(start\|problem\) .*/\1/; s/^\([a-z]* [a-z]* [a-z]*\) .*/\1/' "$LOG" >"$work/commands"
cmp -s "$work/expected" "$work/commands" && pass || fail "order of the turns: $(diff "$work/expected" "$work/commands" | head -5)"

case_of 'full n=16 h=2 d=16 f32' flash
exits 0 "forward alone"
equal "$(wc -l <"$work/out")" 2 "rows of forward alone"
measured forward flash

# ---- Rivals that fail --------------------------------------------------------------------------------

FAULT='refuses prepare cudnn' case_of "$problem" cudnn,flash
exits 0 "a rival that refuses"
absent forward cudnn 'not on a Wednesday'
absent backward cudnn 'not on a Wednesday'
measured forward flash
equal "$(grep -c '^start' "$LOG")" 1 "processes where one refuses"

FAULT='dies prepare cudnn forward' case_of "$problem" cudnn,flash
exits 0 "a rival that ends its process"
absent forward cudnn 'its process ended: Segmentation fault in libwarp.so'
measured backward cudnn
measured forward flash
equal "$(grep -c '^start' "$LOG")" 2 "processes where one is ended"

FAULT='dies sustained flash backward' case_of "$problem" cudnn,flash
exits 0 "a rival that ends its process in its turn"
absent backward flash 'its process ended'
measured forward flash
measured backward cudnn

FAULT='hangs single flash backward' case_of "$problem" cudnn,flash '--timeout 6'
exits 0 "a rival that hangs"
absent backward flash 'no answer for 6 s'
measured forward flash
measured backward cudnn

FAULT='answers sustained cudnn forward' case_of "$problem" cudnn,flash
exits 0 "a rival that talks nonsense"
absent forward cudnn 'not understood: {nonsense'
measured backward cudnn

FAULT='wrong prepare flash backward' case_of "$problem" flash
exits 0 "a rival that is wrong"
absent backward flash 'its result is wrong: dq'
measured forward flash

FAULT='nan prepare flash forward' case_of "$problem" flash
absent forward flash 'its result is wrong: out'
FAULT='timeless single flash forward' case_of "$problem" flash
absent forward flash 'an answer without seconds'

FAULT='dies problem' case_of "$problem" cudnn,flash
exits 0 "a process that never works"
for name in cudnn flash; do absent forward $name 'its process ended'; done
equal "$(member forward null runs)" 3 "rounds of ours alone"

# ---- Flags -------------------------------------------------------------------------------------------

refused 'there is no rival "warp"; there are cudnn' bench case "$problem" --rivals flash,warp
refused 'there is no rival "warp"; there are cudnn' bench kernels --rivals warp
refused 'there is no rival ""' bench case "$problem" --rivals flash,
refused '--rivals: one rank' bench case "$problem ring=2" --rivals flash
refused '--rivals: one rank' bench case "$problem softcap=5" --rivals flash
refused 'at least 3 rounds' bench case "$problem" --rivals flash --runs 2
refused '--rivals is for bench kernels, all and case' bench memory --rivals flash
refused '--rivals is not for --standard' bench case 'full n=16 h=1 d=16' --rivals flash --standard

# ---- The suite ---------------------------------------------------------------------------------------

# Kernels by themselves have their name after the dtype.
one='full n=32 h=1 d=64 f32 backward'
suite() { run bench kernels --quick --device "$device" --tokens 32 --heads 1 --quiet --match "$one" "$@"; }

suite --rivals all --out "$work/results"
exits 0 "the suite"
says '^kernels: rivals$'
says '^  ours  .*n=32 h=1 d=64 f32 .* forward .* single '
says '^  [a-z]*  .*n=32 h=1 d=64 .* forward .* ratio [0-9.]*  [0-9.]* to [0-9.]*  single 200.* ms, ratio [0-9.]*'
rows=$(wc -l <"$work/results/kernels.jsonl")
suite --rivals all --out "$work/results"
says 'are in .* already'
equal "$(wc -l <"$work/results/kernels.jsonl")" "$rows" "rows after the suite goes on"
run bench diff "$work/results" "$work/results"
says 'no change'
run report "$work/results" --out "$work/report.html"
exits 0 "a report"
grep -q 'Beside rivals, in turns' "$work/report.md" && pass || fail "the report has no rivals"

FAULT=absent suite --rivals all
exits 0 "no PyTorch"
says '^kernels: rivals are left out: .*/python: no PyTorch (by request); RINGATTN_TORCH_PYTHON names another'
RINGATTN_TORCH_PYTHON=$work/nowhere suite --rivals all
exits 0 "no Python"
says 'rivals are left out: .*nowhere cannot be started: No such file'
refused 'no configuration contains' bench kernels --quick --device "$device" --match "$one" --rivals no
[ ! -e "$LOG" ] && pass || fail "--rivals no starts Python"
if [ "$device" = cpu ]; then # unless they are asked for
    run bench kernels --quick --kernel scalar --tokens 16 --heads 1 --threads 1
    [ ! -e "$LOG" ] && pass || fail "the suite on a CPU starts Python"
    never_says 'rivals'
fi

if [ "$device" != cpu ]; then # each problem beside those that can do it
    FAULT='refuses prepare' run bench kernels --quick --device "$device" --tokens 32 --heads 1 --quiet --match rivals
    exits 0 "all problems"
    for text in 'cudnn .*full .*d=256 bf16' 'flash .*causal .*d=128 bf16' 'efficient .*causal .*d=128 f32' \
        'flex .*window:8 .*d=64 bf16' 'flex .*full;docs=0,4,8,12,16,20,24,28,32 .*d=64 bf16' 'flex .*blocks:64;local=8 '; do
        says "^  $text.* absent: not on a Wednesday"
    done
    never_says 'cudnn .*\(window\|f32\)'
fi

# An interruption ends the other process too, whatever it does. (Ctrl-C is ignored by what a script starts
# in the background.)
rm -f "$LOG"
FAULT='hangs prepare' "$build/ringattn" bench kernels --quick --device "$device" --tokens 32 --heads 1 --quiet \
    --match "$one" --rivals all >"$work/out" 2>"$work/err" &
for i in $(seq 200); do grep -q prepare "$LOG" 2>/dev/null && break; sleep 0.05; done
kill -TERM $!
wait $!
status=$?
exits 3 "a suite that is interrupted"
pids=$(sed -n 's/^start .* //p' "$LOG")
[ -n "$pids" ] && pass || fail "no process was started"
is_alive() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | grep -q '^[^ZX]'; } # a zombie is not
for pid in $pids; do
    for i in $(seq 60); do is_alive "$pid" || break; sleep 0.05; done
    if is_alive "$pid"; then fail "process $pid is left"; else pass; fi
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
