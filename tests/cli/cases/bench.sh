# SPDX-License-Identifier: Apache-2.0
# The suites of bench, one configuration by itself, and the difference between two sets of results.

inputs

refused "bench: there is no suite \"frobnicate\"; there are compare, memory, scaling, extreme, ablate, kernels, all, case and diff" bench frobnicate
refused "bench: its suite is missing" bench --quick
refused "bench: no configuration contains \"zzz\" (--match)" bench memory --quick --match zzz --out d
refused "one suite at a time" bench kernels memory
refused "bench takes no --pattern" bench kernels --pattern causal
refused "--out: q.npy is not a folder" bench kernels --quick --out q.npy
refused "cannot write into nowhere" bench kernels --quick --out nowhere/here
refused "cannot be made: File name too long" bench kernels --quick --out "$(printf %0300d 0)"
refused "too long" bench kernels --quick --out "$(yes ./ | tr -d '\n' | head -c 4090)x"
refused "--kernel: there is no kernel" bench kernels --kernel abacus
refused "--runs is for bench case" bench memory --runs 3
refused "--tokens is for bench kernels" bench memory --tokens 16
refused "bench case: its problem is missing" bench case
refused "is not understood" bench case full n=16 frobnicate
refused "bench diff: two folders" bench diff a
refused "there is no ceiling" bench case ceiling:wood
refused "--runs: at least one run must count" bench case --runs 0 causal n=16

# One configuration: a row for each pass, whose members docs/BENCHMARKS.md explains.
ok bench case causal n=16 h=1 d=64 f32 backward --runs 3 --threads 1
[ "$(wc -l <"$work/out")" -eq 2 ] && pass || fail "rows of a case with gradients"
while read -r line; do printf '%s\n' "$line" | "$work/json_valid" || fail "not JSON: $line"; done <"$work/out"
says '"schema": 1,'
says '"runs": 3, "seconds": '
says '"pass": "backward"'
grep -q '"pass": "backward".*"work": 87040,' "$work/out" && pass || fail "FLOPs of a causal backward pass"
sed 's/", "/\n/g; s/, "/\n/g; s/^{"//' "$work/out" | sed -n 's/^"*\([a-z_]*\)": .*/\1/p' | sort -u >"$work/members"
for member in $(cat "$work/members"); do
    grep -q "^| \`$member\` |" "$here/../../docs/BENCHMARKS.md" && pass || fail "docs/BENCHMARKS.md lacks $member"
done
[ "$(wc -l <"$work/members")" -ge 60 ] && pass || fail "members of a row: $(wc -l <"$work/members")"
ok bench case full n=1 nk=1024 h=1 d=128 bf16 --runs 1
says '"kind": "decode"'
says '"work": 524288,'
# The baseline holds its scores twice; more than the budget is refused.
ok bench case causal n=64 h=2 d=16 f16 --standard --runs 1
says '"kind": "standard"'
says '"bytes_per_rank": 49152,'
says '"pairs": 4160,'
refused "its score matrices need 65.0 MiB; the limit is 1.00 MiB" bench case full n=2048 h=2 d=16 f32 --standard --memory 1M
refused "--standard: one rank" bench case window:4 n=64 h=1 d=16 --standard
refused "a run would take" bench case full n=65536 h=8 d=64 --limit 0.001
refused "--blocking is for --link" bench case full n=64 h=1 d=16 ring=2 --blocking
for options in "--replan" "--pool off" "--pool 1" "--link 1e9" "--link 1e9 --blocking"; do
    ok bench case full n=64 h=1 d=16 ring=2 $options --runs 2
done

# A suite, small enough for a moment; every ceiling with a figure or a reason.
ok bench kernels --quick --kernel scalar --tokens 16 --heads 1 --threads 1 --out figures
for ceiling in fma-avx2 fma-avx512 dpbf16-avx512 tdpbf16-amx exp2-avx512 read-l1 read-l2 read-memory; do
    if grep -q -e "^  $ceiling  *1 threads  *[0-9.]* .*/s$" -e "^  $ceiling .*absent: ..*" "$work/out"; then pass
    else fail "no line of the ceiling $ceiling"; fi
done
says "full n=16 h=1 d=64 f32 kernel=scalar threads=1 backward forward"
says "causal n=16 h=1 d=128 f16 kernel=scalar threads=1 backward backward"
says "full n=1 nk=256 h=1 d=128 bf16 kernel=scalar threads=1 forward"
rows=$(wc -l <figures/kernels.jsonl)
[ "$rows" -ge 24 ] && pass || fail "kernels.jsonl has $rows lines"
[ "$(wc -l <figures/kernels.csv)" -eq $((rows + 1)) ] && pass || fail "lines of kernels.csv"
[ "$(ls -A figures)" = "kernels.csv
kernels.jsonl" ] && pass || fail "files of bench: $(ls -A figures)"

# What is there is not measured again; what is not, is: also half a line that a crash left behind.
cp -r figures before
ok bench kernels --quick --kernel scalar --tokens 16 --heads 1 --threads 1 --out figures
cmp -s figures/kernels.jsonl before/kernels.jsonl && pass || fail "a finished suite changes its results"
sed '$d' before/kernels.jsonl >figures/kernels.jsonl
printf '{"schema": 1, "suite": "ker' >>figures/kernels.jsonl
ok bench kernels --quick --kernel scalar --tokens 16 --heads 1 --threads 1 --out figures
[ "$(wc -l <figures/kernels.jsonl)" -eq "$rows" ] && pass || fail "an interrupted suite does not go on"
# Results of another version are.
sed 's/"version": "[^"]*"/"version": "0.0.1"/' before/kernels.jsonl >figures/kernels.jsonl
ok bench kernels --quick --kernel scalar --tokens 16 --heads 1 --threads 1 --out figures
says "$rows rows of another version, machine or mode are measured again"

# A set of results does not differ from itself; another one does where the spreads are apart.
i=0
while [ $i -lt 10 ]; do
    ok bench diff before before
    says "no change; "
    i=$((i + 1))
done
mkdir slow
sed 's/"seconds\(_least\|_most\|\)": \([0-9]\)/"seconds\1": 9\2/g' before/kernels.jsonl >slow/kernels.jsonl
ok bench diff before slow
says "0 faster, "
says "  slower   kernels   scalar "
ok bench diff slow before
says "  faster   kernels   scalar "
# One run has no spread, so nothing is said.
mkdir once
sed 's/"runs": [0-9]*/"runs": 1/' slow/kernels.jsonl >once/kernels.jsonl
ok bench diff before once
says "no change; "
says "with too few runs to tell"
mkdir empty broken
refused "bench diff: empty has no results" bench diff before empty
echo nonsense >broken/kernels.jsonl
refused "line 1 is no row of results" bench diff before broken
sed 's/"schema": 1/"schema": 2/' before/kernels.jsonl >broken/kernels.jsonl
refused "line 1 is of schema 2; this version reads up to 1" bench diff before broken

# Every suite lists what it says it lists: every system, every script of the reports.
ok bench --help
for script in single_gpu_comparison.py memory_scaling_analysis.py comprehensive_ring_benchmark.py \
    extreme_sequence_benchmark.py generate_report.py run_all_benchmarks.sh; do says "$script"; done
