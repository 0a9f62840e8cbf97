# SPDX-License-Identifier: Apache-2.0
# Patterns with lists and bitmaps.

ok run --tokens 64 --heads 3 --dim 8 --segment-lengths 8,16 --dilation-rates 1,2 --ring 3 --out by_list.npy
says "problem    dilated:8/1,16/2 n=64 h=3 d=8 ring=3"
ok run --tokens 64 --heads 3 --dim 8 --pattern dilated:8/1,16/2 --ring 3 --out by_pattern.npy
cmp -s by_list.npy by_pattern.npy && pass || fail "--segment-lengths and --pattern differ"
refused "--segment-lengths needs --dilation-rates" run --segment-lengths 4,8
refused "--dilation-rates needs --segment-lengths" run --dilation-rates 4,8
refused "has 2 numbers and --dilation-rates 1" run --segment-lengths 4,8 --dilation-rates 1
refused "leave one of them out" run --segment-lengths 4,8 --dilation-rates 1,2 --pattern full
refused "--segment-lengths: \"x\" is not a whole number" run --segment-lengths 4,x --dilation-rates 1,2
refused "--dilation-rates: 0 is out of range" run --segment-lengths 4,8 --dilation-rates 1,0
refused "pattern" run --pattern dilated:8
refused "pattern" run --pattern dilated:8/0
refused "pattern" run --pattern "dilated:8/1;sometimes"
refused "pattern" run --pattern "blocks:8;local=x"
refused "missing.npy" run --tokens 64 --pattern "blocks:16;bitmap=missing.npy"
values bits.npy '|b1' '1, 4, 4' 1 0 0 1 0 1 0 0 1 1 0 0 0 0 0 0
ok run --tokens 61 --heads 2 --dim 8 --pattern "blocks:16;bitmap=bits.npy" --ring 3 --backward
ok verify "blocks:16;bitmap=bits.npy;local=0;causal n=61 h=2 d=8 ring=2 backward"
refused "--out would overwrite bits.npy, the file of --pattern" run --tokens 61 --heads 2 \
    --pattern "blocks:16;bitmap=bits.npy;causal" --out ./bits.npy
refused "--mask would overwrite ./bits.npy, the file of --pattern" plan --tokens 61 --heads 2 \
    --pattern "blocks:16;bitmap=bits.npy" --mask ./bits.npy
refused "verify: problem 1 is empty" verify ''
refused "--list prints lines; leave out --json" verify --list --json
