# SPDX-License-Identifier: Apache-2.0
# The suites of bench.

inputs

for suite in compare memory scaling extreme ablate all; do
    refused "bench: '$suite' is not in this version" bench $suite
done
refused "bench: there is no suite \"frobnicate\"" bench frobnicate
refused "bench: its suite is missing" bench --quick
refused "one suite at a time" bench kernels memory
refused "bench takes no --pattern" bench kernels --pattern causal
refused "--out: q.npy is not a folder" bench kernels --quick --out q.npy
refused "cannot write into nowhere" bench kernels --quick --out nowhere/here
refused "--kernel: there is no kernel" bench kernels --kernel abacus
# Small enough for a moment; every kernel, and every ceiling with a figure or a reason.
ok bench kernels --quick --tokens 16 --heads 1 --threads 1 --out figures
says "median of 3 runs (--quick"
for ceiling in fma-avx2 fma-avx512 dpbf16-avx512 tdpbf16-amx exp2-avx512 read-l1 read-l2 read-memory; do
    if grep -q -e "^  $ceiling  *1  *[0-9.]* .*/s " -e "^  $ceiling  *absent: ..*" "$work/out"; then pass
    else fail "no line of the ceiling $ceiling"; fi
done
says "scalar      f32     64 forward   full         16   1"
says "scalar      f16    128 backward  causal       16   1"
says "scalar      bf16   128 decode    full        256   1"
lines=0
while read -r line; do
    lines=$((lines + 1))
    printf '%s\n' "$line" | "$work/json_valid" || fail "line $lines of kernels.jsonl is not JSON"
done <figures/kernels.jsonl
[ "$lines" -ge 36 ] && pass || fail "kernels.jsonl has $lines lines"
[ "$(wc -l <figures/kernels.csv)" -eq $((lines + 1)) ] && pass || fail "lines of kernels.csv"
[ "$(ls -A figures)" = "kernels.csv
kernels.jsonl" ] && pass || fail "files of bench: $(ls -A figures)"
for member in version machine threads runs rate_least ceiling_rate share; do
    grep -q "^{.*\"$member\": .*}$" figures/kernels.jsonl && pass || fail "kernels.jsonl lacks $member"
done
grep -q '"name": "scalar".*"dtype": "f32", "pass": "backward", "pattern": "causal", "dim": 64, "heads": 1, "queries": 16, "keys": 16, "work": 87040,' figures/kernels.jsonl &&
    pass || fail "FLOPs of a causal backward pass"
grep -q '"kind": "decode", "name": "scalar".*"dtype": "bf16", .*"dim": 128, "heads": 1, "queries": 1, "keys": 256, "work": 131072,' figures/kernels.jsonl &&
    pass || fail "bytes of a decode"
rm -r figures
