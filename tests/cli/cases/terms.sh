# SPDX-License-Identifier: Apache-2.0
# Softcap, ALiBi, sinks, bias, dropout.

inputs

npy half.npy 2 "$(header '<f2' False '1, 30, 2, 4')" 480
ok run --tokens 33 --heads 2 --dim 8 --softcap 5 --alibi --dropout 0.1 --seed 3 --pattern causal --ring 2 --backward
says "problem    causal n=33 h=2 d=8 softcap=5 alibi dropout=0.1 ring=2 backward seed=3"
values sinks.npy '<f4' '2,' 0 0 128 63 0 0 0 63
values bias.npy '<f4' '2, 3' 0 0 128 63 0 0 0 63 0 0 0 0 0 0 128 191 0 0 0 0 0 0 128 255
values mask3.npy '|u1' '2, 2, 3' 1 0 1 1 1 0 0 0 0 0 1 1
values mask4.npy '|b1' '1, 1, 2, 3' 1 0 1 1 1 0
ok run --tokens 2 --kv-tokens 3 --heads 2 --dim 4 --alibi=0.5,0.25 --sinks sinks.npy --bias bias.npy --backward \
    --dsinks dsinks.npy --ring 2
says "alibi=0.5,0.25 bias=bias.npy sinks=sinks.npy"
says "dsinks error"
[ "$(wc -c <dsinks.npy)" -eq $((128 + 2 * 4)) ] && pass || fail "size of dsinks.npy"
for file in mask3.npy mask4.npy; do
    ok run --tokens 2 --kv-tokens 3 --heads 2 --dim 4 --bias $file --backward --ring 2
done
# The same dropout from files, by --seed; another seed drops others.
ok run --q q.npy --k k.npy --v v.npy --dropout 0.5 --seed 1 --out drop1.npy --verify
ok run --q q.npy --k k.npy --v v.npy --dropout 0.5 --seed 1 --out drop1_ring.npy --verify --ring 3
ok run --q q.npy --k k.npy --v v.npy --dropout 0.5 --seed 2 --out drop2.npy --verify
cmp -s drop1.npy drop2.npy && fail "dropout does not depend on --seed" || pass
refused "--seed is for synthetic data and dropout" run --q q.npy --k k.npy --v v.npy --seed 1
refused "--softcap: its value X is missing" run --softcap
refused "--softcap: 0 is out of range" run --softcap 0
refused "--softcap: \"many\" is not a number" run --softcap many
refused "--alibi: its value is empty" run --alibi=
refused "--alibi: \"x\" is not a number" run --alibi=0.5,x
refused "--alibi: 2 slopes for 3 query heads" run --tokens 4 --heads 3 --alibi=1,2
refused "--alibi takes its value after an equals sign: --alibi=1" run --alibi 1
refused "--dropout: 1 would drop every weight" run --dropout 1
refused "--dropout: -1 is out of range" run --dropout -1
refused "--sinks: \"z\" is not a .npy file" run --sinks z
refused "--sinks: cannot open missing.npy" run --tokens 4 --heads 2 --sinks missing.npy
refused "--sinks: sinks.npy holds 2 values on 1 axis; one axis of 3 query heads" run --tokens 4 --heads 3 --sinks sinks.npy
refused "--sinks: mask4.npy holds bool; f32 is needed" run --tokens 4 --heads 2 --sinks mask4.npy
refused "--bias: half.npy holds float16; f32, bool or uint8 is needed" run --tokens 4 --bias half.npy
refused "--bias: shape [1, 1, 2, 3] where [1 or 1, 1 or 2, 3, 3] is needed" run --tokens 3 --heads 2 --bias bias.npy
refused "--bias: shape [1, 2, 2, 3]" run --tokens 2 --kv-tokens 3 --heads 3 --bias mask3.npy
refused "--dsinks is for --backward" run --tokens 4 --dsinks x.npy
refused "--dsinks needs --sinks" run --tokens 4 --backward --dsinks x.npy
refused "--out would overwrite sinks.npy, the file of --sinks" run --tokens 4 --heads 2 --sinks sinks.npy --out sinks.npy
refused "--bias is given twice" run --bias a.npy --bias b.npy
