# SPDX-License-Identifier: Apache-2.0
# Sizes that overflow, budgets, documents.

refused "2^63" run --tokens 1099511627776 --heads 65536
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
