# SPDX-License-Identifier: Apache-2.0
# What plan prints.

ok plan --tokens 512 --heads 2 --pattern causal --ring 4 --partition zigzag --explain --rank 3 --backward
says "steps of rank 3, backward"
says "predicted"
says "ratio"
ok plan --tokens 512 --heads 2 --ring 4 --pattern "blocks:16;random=0.1;seed=3"
says "0.1 of the blocks asked for"
ok plan --tokens 512 --heads 2 --ring 4 --json
json order full problem pattern ranks strategy partition transport device dtype kernel flops density hops \
    flops_per_rank bytes_sent_per_rank peak_bytes_per_rank predicted_seconds
says '"flops": 134217728'
ok plan --tokens 512 --heads 4 --ring 4 --strategy 2d:2x2 --explain --backward
says "with rank 1, own heads -> swap out"
says "over the keys of ranks 2 to 3 in travel A"
# Half of the pairs lie on the last ranks of a ring, but all heads have the same.
ok plan --tokens 65536 --heads 8 --ring 8 --pattern causal --strategy auto
says "strategy     ulysses: predicted ulysses"
if LC_ALL=C awk 'length($0) > 100 && !/^[a-z]+ .*iB/ { wide = 1 } END { exit wide }' "$work/out"; then
    pass # bars are of letters that count for several
else
    fail "plan prints lines of over 100 columns"
fi
ok plan --tokens 65536 --heads 1 --ring 8 --pattern causal --partition zigzag --strategy auto --latency 1e-5 \
    --bandwidth 1e10 --json
json strategy strategy_why
says '"strategy": "ring"'
says "at 10 us (given), 10 GB/s (given)"
says "GFLOP/s a rank (measured)"
# A choice that has to be the same every time looks at no clock.
ok plan --tokens 4096 --ring 4 --strategy auto --deterministic --json
says "GFLOP/s a rank (assumed)"
if grep -qF "(measured)" "$work/out"; then fail "--deterministic measures"; else pass; fi
ok run --tokens 64 --heads 4 --ring 4 --strategy auto --deterministic --predict
if grep -qF "(measured)" "$work/out"; then fail "--deterministic measures"; else pass; fi
# Two ranks are enough for a link, though one has more threads than there are cores.
ok plan --tokens 64 --heads 1 --ring 3 --threads $(($(nproc) + 1)) --json
says "us (measured)"
says "GB/s (measured)"
ok plan --tokens 1048576 --heads 8 --ring 64 --latency 2e-6 --bandwidth 25e9 --flops 1e12 --json
json predicted_seconds predicted_wait_seconds predicted_with
says '"predicted_with": "2 us (given), 25 GB/s (given), 1000 GFLOP/s a rank (given)"'
ok run --tokens 64 --heads 4 --dim 8 --ring 4 --pattern causal --strategy auto --backward
says "strategy   "
ok run --tokens 64 --heads 4 --dim 8 --ring 4 --strategy ulysses --backward --predict
says "predicted  "
refused "--rank: there are ranks 0 to 3" plan --tokens 64 --ring 4 --explain --rank 4
refused "--rank is for --explain" plan --tokens 64 --rank 0
refused "--rings prints a table" plan --tokens 64 --rings 1,2 --ring 2
refused "--rings: 0 " plan --tokens 64 --rings 1,0
ok plan --tokens 4096 --rings 1,2,16

# Other machines, from the built-in table or from one that the user edits.
ok plan --tokens 4096 --machine h200 --dtype bf16
says "machine      h200: NVIDIA H200 SXM, NVLink"
says "sources      FLOP/s gemm, bytes/s datasheet; the time is a lower bound"
ok plan --tokens 4096 --machine h200 --json
json machine machine_source typical_time_error typical_memory_error ranks_asked
says '"predicted_with": "5 us (given), 450 GB/s (given), 6.7e+04 GFLOP/s a rank (given)"'
ok info --machines
{
    cat "$work/out"
    echo "mine 1e9:measured 2e9:measured 3e9:measured 4e-6:measured 5e9:datasheet 6e9:assumed 7e9:assumed a machine of mine"
} >machines.txt
ok plan --tokens 4096 --machines machines.txt --machine mine --dtype f16
says "at 4 us (given), 3 GB/s (given), 2 GFLOP/s a"
says "usually off  time by 10%, memory by 3%"
refused "there is no \"abacus\"; there are h200, h100, a100" plan --tokens 64 --machine abacus
ok plan --tokens 4096 --machines machines.txt --machine mine --strategy stream --json
says "loads at 7 GB/s (given)"
# Every figure of the built-in table says where it comes from, and a figure without a source is refused.
ok info --machines
if grep -v '^#' "$work/out" | awk '{ for (i = 2; i <= 8; i++) if ($i !~ /:(datasheet|gemm|measured|assumed)$/) exit 1 }'; then
    pass
else
    fail "info --machines: a figure without a source"
fi
echo "mine 1e9 2e9:measured 3e9:measured 4e-6:measured 5e9:datasheet 6e9:assumed 7e9:assumed" >broken.txt
refused "broken.txt: line 1 is no machine" plan --tokens 64 --machine mine --machines broken.txt
refused "there is no \"abacus\"; there are h200" plan --tokens 64 --machine abacus --machines machines.txt
refused "--machines is the table of --machine" plan --tokens 64 --machines machines.txt
echo "broken measured 1 2" >broken.txt
refused "broken.txt: line 1 is no machine" plan --tokens 64 --machine x --machines broken.txt

# What fits: the ring and the length that it says do, and one step further does not.
ok plan --tokens 65536 --heads 8 --fit 100M --machine h200 --ring 4 --json
json fit ring_bytes_per_rank tokens_bytes_per_rank
number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$work/out" | tail -n 1; }
ring=$(number ring) tokens=$(number tokens)
ok plan --tokens 65536 --heads 8 --memory 100M --machine h200 --ring "$ring"
refused "bytes" plan --tokens 65536 --heads 8 --memory 100M --machine h200 --ring $((ring - 1))
ok plan --tokens "$tokens" --heads 8 --memory 100M --machine h200 --ring 4
refused "bytes" plan --tokens $((tokens + tokens / 500)) --heads 8 --memory 100M --machine h200 --ring 4
ok plan --tokens 4096 --pattern "causal;docs=0,100,4096" --fit 100M --machine h200
says "this problem has one length"
refused "leave out --fit" plan --tokens 64 --rings 1,2 --fit 1M

# Of thousands of ranks some are asked, and the sums are as if all were.
ok plan --tokens 65536 --heads 1 --ring 1024 --machine h200
says "256 of 1024 ranks were asked"
ok plan --tokens 65536 --heads 1 --ring 1024 --machine h200 --json
says '"pairs": 4294967296,'
# The plan of thousands of ranks is larger than this, that of ten is not. Kernels and threads differ in
# the workspace that they take.
ok plan --tokens 4096 --heads 1 --dim 8 --fit 150K --machine h200 --kernel scalar --threads 1
says "ring         10 for 4,096 tokens"

# A stream: loads and stores with their bytes, and what the whole loads, stores and takes.
stream="--tokens 512 --heads 2 --dim 16 --pattern causal --strategy stream:256 --backward"
ok plan $stream --explain
says "streamed     716 KiB loaded, 292 KiB stored; blocks of 256 positions, 4 units"
says "load     unit 1, 135168 bytes  [after "
says "partial dQ B 256 to 511 -> sums of dQ, 32768 bytes"
says "store    unit 1, 34816 bytes  [after "
says "LSE 256 to 511 <- next LSE, 2048 bytes"
ok run $stream --quiet --json # as many as it said
says '"bytes_loaded": 733184'
says '"bytes_stored": 299008'
# Memory within the budget, and a time: that of the loads where these are slow.
ok plan --tokens 1048576 --heads 1 --dtype bf16 --pattern causal --strategy stream --memory 64M --flops 1e12 \
    --latency 1e-6 --bandwidth 1e9 --load 1e6 --json
json block units bytes_loaded bytes_stored predicted_seconds peak_bytes_per_rank
says "loads at 0.001 GB/s (given)"
total=$(sed -n 's/.*"peak_bytes_per_rank": \[\([0-9]*\)\].*/\1/p' "$work/out")
[ "$total" -gt 30000000 ] && [ "$total" -le 67108864 ] && pass || fail "plan: a stream of $total bytes in 64 MiB"
if awk '/"bytes_loaded"/ { gsub(/[^0-9]/, ""); bytes += $0 } /"bytes_stored"/ { gsub(/[^0-9]/, ""); bytes += $0 }
    /"predicted_seconds"/ { sub(/.*: /, ""); seconds = $0 + 0 }
    END { exit !(seconds >= bytes / 1e6 && seconds < 1.05 * bytes / 1e6) }' "$work/out"; then
    pass
else
    fail "plan: a stream that only loads takes as long as its loads"
fi
