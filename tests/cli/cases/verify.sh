# SPDX-License-Identifier: Apache-2.0
# Problems and the grid.

ok verify causal n=33 h=2 d=8 ring=3
says "passed  causal n=33 h=2 d=8 ring=3"
ok verify "full n=20 nk=30 h=4/2 d=8 dv=4 b=2 f16 ring=4 zigzag allgather local order=sequential backward seed=7 scale=0.125 threads=2 amp=20" \
    "causal;docs=0,7,14,16 n=16 h=1 d=8 ring=8 zigzag;perdoc" --quiet
says "passed  full n=20 nk=30 h=4/2 d=8 dv=4 b=2 f16 ring=4 zigzag allgather backward seed=7 scale=0.125 threads=2 amp=20"
says "passed  causal;docs=0,7,14,16 n=16 h=1 d=8 ring=8 zigzag;perdoc"
ok verify --json causal n=9 h=1 d=4
json cases failed groups failures
ok verify --list
[ "$(wc -l <"$work/out")" -ge 500 ] && pass || fail "the grid has fewer than 500 cases"
# Three subsets are the whole, and of an eighth, too.
for some in "" --quick; do
    : >"$work/subsets"
    for i in 1 2 3; do
        ok verify --list $some --subset $i/3
        cat "$work/out" >>"$work/subsets"
    done
    ok verify --list $some
    sort "$work/out" >"$work/whole"
    sort "$work/subsets" | cmp -s - "$work/whole" && pass || fail "three subsets are not the grid ($some)"
done
ok verify --quick --quiet --subset 2/3
says " 0 failed"
refused "--subset: \"4/3\" is not I/N with I from 1 to N, and N up to 999999" verify --subset 4/3
refused "--subset: \"0/3\" is not" verify --subset 0/3
refused "--subset: \"1/2x\" is not" verify --subset 1/2x
refused "about the grid" verify --subset 1/2 causal
ok verify --quick --quiet
says " 0 failed"
ok verify --quick --quiet --kernel scalar --json
says '"failed": 0'
refused "problem: \"frobnicate\" is not understood" verify causal frobnicate n=5
refused "problem: \"frobnicate\" is not understood" verify "causal n=5" "causal frobnicate n=5"
refused "problem: \"speed=9\" is not understood" verify causal speed=9
refused "comes after another word" verify causal n=5 n=6
refused "comes after another word" verify causal full
refused "n=x: \"x\" is not a whole number" verify n=x
refused "dropout=2: 2 is out of range" verify causal dropout=2
refused "bias=some: some is not a .npy file" verify causal bias=some
refused "softcap=x: \"x\" is not a number" verify causal softcap=x
refused "alibi: 1 slope for 8 query heads" verify causal n=5 alibi=1
refused "system=nonsense: " verify system=nonsense
ok verify "full n=20 h=4/2 d=8 b=2 order=shuffled:2 softcap=9 alibi bias=batch sinks dropout=0.2 ring=3 backward seed=4" \
    "causal n=20 h=2 d=8 alibi=0.5,1 bias=maskheads"
says "passed  full n=20 h=4/2 d=8 b=2 order=shuffled:2 softcap=9 alibi bias=batch sinks dropout=0.2 ring=3 backward seed=4"
says "dsinks error"
refused "the partition custom is not in this version" verify causal custom
ok verify "causal n=64 h=4/2 d=8 ring=4 ulysses backward" "full n=61 h=4 d=8 ring=6 zigzag 2d:2x3 backward"
says "ring=6 zigzag 2d:2x3"
ok verify "causal seqs=9/20,1/30,0/3,12 h=4/2 d=8 ring=3 zigzag backward" "causal n=20 nk=33 offset=-9 h=2 d=8 ring=2 backward"
says "passed  causal seqs=9/20,1/30,0/3,12 h=4/2 d=8 ring=3 zigzag backward"
says "passed  causal n=20 nk=33 offset=-9 h=2 d=8 ring=2 backward"
refused "22 queries and 65 keys together" verify "causal seqs=9/20,1/30,0/3,12 n=5"
refused "seqs=9/x: \"x\" is not a whole number" verify "causal seqs=9/x"
refused "there is no query in 0/5" verify "causal seqs=0/5"
refused "prefix: queries at positions" verify "prefix:3 n=10 nk=20 offset=-11"
refused "order=backwards: " verify causal order=backwards
refused "d=577: 577 is out of range" verify full n=8 d=577
refused "more queries (10) than keys (5)" verify prefix:3 n=10 nk=5
refused "not a multiple" verify full n=8 h=8/3
refused "about the grid" verify --list causal
