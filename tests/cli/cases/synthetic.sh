# SPDX-License-Identifier: Apache-2.0
# Runs of synthetic data.

ok run --tokens 65 --heads 2 --dim 8
says "verified   all 130 rows"
ok run --tokens 65 --heads 4 --kv-heads 2 --dim 8 --value-dim 12 --batch 2 --pattern causal --ring 3 \
    --partition zigzag --strategy allgather --dtype bf16 --backward --deterministic --device cpu \
    --transport local --order sequential --scale 0.3 --threads 1 --memory 64M --timeout 30 --quiet --seed 9
says "problem    causal n=65 h=4/2 d=8 dv=12 b=2 bf16 ring=3 zigzag allgather backward seed=9 scale=0.3"
ok run --tokens 40 --kv-tokens 60 --heads 1 --dim 8 --pattern "window:5,2" --ring=2 --json
json problem pattern ranks strategy partition transport device dtype kernel flops density hops \
    flops_per_rank bytes_sent_per_rank peak_bytes_per_rank device_bytes_per_rank seconds tokens_per_second gflops peak_rss_bytes verified
says '"verified": true'
says '"ranks": 2'
ok run --tokens 3 --heads 1 --dim 4 --ring 8 --pattern causal
ok run --tokens 6000 --heads 2 --dim 64 --pattern causal --ring 2 --backward
says "verified   32 rows and 8 keys against the fp64 oracle, spread over the sequence"

# An empty cache.
ok run --tokens 8 --kv-tokens 0 --heads 2 --dim 8 --ring 2 --backward --json
json problem verified
says '"density": 0'
ok plan --tokens 8 --kv-tokens 0 --heads 2 --dim 8 --ring 2 --json
json predicted_seconds
ok verify "causal n=8 nk=0 h=4/2 d=16 ring=3 backward" "full n=1 nk=0 h=2 d=8 bf16"
refused "there are no keys to look at" plan --tokens 8 --kv-tokens 0 --mask mask.png
refused "more queries (8) than keys (0)" run --tokens 8 --kv-tokens 0 --pattern prefix:4

# Sums of dq in any order: a choice of the caller, which --deterministic contradicts.
ok run --tokens 65 --heads 2 --dim 8 --backward --any-order
says "problem    full n=65 h=2 d=8 backward any-order"
refused "--any-order" run --tokens 65 --backward --any-order --deterministic
