# SPDX-License-Identifier: Apache-2.0
# Sizes that overflow, budgets, documents.

refused "2^63" run --tokens 1099511627776 --heads 65536
refused "1099511627776 queries x 1099511627776 keys are more than 2^63 pairs" run \
    --tokens 1099511627776 --heads 1
refused "are more than 2^63 pairs" plan --tokens 3037000500 --heads 1
refused "are more than 2^63 pairs" plan --tokens 4294967296 --heads 1 --mask m.png
refused "are more than 2^63 pairs" verify "full n=4294967296 h=1 d=8"
refused "heads x queries x the keys that each may see exceeds 2^63" plan --tokens 1073741824 --heads 8
# Of patterns whose queries see few keys, the pairs there are count.
ok plan --tokens 1073741824 --heads 8 --dim 64 --dtype bf16 --pattern dilated:2048/1,4096/2 --latency 1e-6 --bandwidth 1e10 --flops 1e12
says '26,388,279,066,624 pairs'
ok plan --tokens 1073741824 --heads 8 --dim 64 --dtype bf16 --pattern window:99 --latency 1e-6 --bandwidth 1e10 --flops 1e12
# Just below: more FLOPs than 63 bits hold are printed as they are.
ok plan --tokens 3037000499 --heads 1 --dim 64 --latency 1e-6 --bandwidth 1e10 --flops 1e12 --json
says '"pairs": 9223372030926249001,'
says '"flops": 23611832399171197'
# With so much memory, pairs are what limits the length.
ok plan --tokens 64 --heads 1 --dim 1 --fit 900T --latency 1e-6 --bandwidth 1e10 --flops 1e12
says "longest      3,03"
refused "batch" run --tokens 8 --batch 1099511627776
refused "bytes" run --tokens 100000000 --heads 64 --dim 576
refused "needs" run --tokens 4096 --memory 1M --out o.npy
refused "the budget is 1.00 MiB (1048576 bytes): shard 32.0 MiB, " plan --tokens 4096 --memory 1M
refused "6 query heads are not a multiple of 4 KV heads" run --tokens 16 --heads 6 --kv-heads 4
refused "last bound is 9" run --tokens 16 --pattern "causal;docs=0,7,9"
refused "documents" run --tokens 16 --pattern "causal;docs=1,16"
refused "documents" run --tokens 16 --pattern "causal;docs=0,9,7,16"
refused "documents" run --tokens 16 --pattern "causal;docs=0,x,16"
refused "documents" run --tokens 16 --kv-tokens 32 --pattern "causal;docs=0,16"
refused "documents" run --tokens 16 --ring 2 --partition "zigzag;perdoc"
refused "pattern" run --pattern nonsense
refused "pattern" run --pattern window:
refused "pattern" run --pattern window:-3
refused "pattern" run --pattern "causal;sometimes"
refused "prefix" run --pattern prefix:4 --tokens 16 --kv-tokens 8
# The ring that fits is found for the problem as it is, with its own numbers of queries and keys.
ok plan --sequences 1/40,2/30 --heads 2 --dim 8 --fit 1M --flops 1e9
says "ring         1 for 3 tokens"
