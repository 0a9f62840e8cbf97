# SPDX-License-Identifier: Apache-2.0
# Orders by name and from files.

inputs

ok run --tokens 61 --heads 2 --dim 8 --order hilbert --pattern window:5 --ring 3 --backward
says "problem    window:5 n=61 h=2 d=8 order=hilbert ring=3 backward"
ok run --tokens 65 --heads 2 --dim 8 --order hilbert:5x13 --pattern "window:6,6;causal" --ring 4 --json
json order density
says '"order": "hilbert:5x13"'
# On a 2 x 2 grid the curve visits 0, 2, 3, 1: the same order from a file, in both types.
values order32.npy '<i4' '4,' 0 0 0 0 2 0 0 0 3 0 0 0 1 0 0 0
values order64.npy '<i8' '4,' 0 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0 3 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0
ok run --tokens 4 --heads 1 --dim 4 --pattern window:1 --order hilbert:2x2 --out by_name.npy --lse by_name_lse.npy
for file in order32.npy order64.npy; do
    ok run --tokens 4 --heads 1 --dim 4 --pattern window:1 --order $file --ring 2 --strategy allgather \
        --out by_file.npy --lse by_file_lse.npy
    says "order=$file"
    cmp -s by_name_lse.npy by_file_lse.npy && cmp -s by_name.npy by_file.npy && pass || fail "--order $file"
done
ok verify window:1 n=4 h=1 d=4 order=order64.npy ring=2
# Files come and go in original order: unmasked attention is the same in every order.
ok run --q k.npy --k k.npy --v v.npy --order shuffled:3 --out shuffled.npy --verify --ring 3
ok run --q k.npy --k k.npy --v v.npy --order shuffled:3 --out shuffled1.npy --verify
[ "$(wc -c <shuffled.npy)" -eq "$(wc -c <v.npy)" ] && pass || fail "size of shuffled.npy"
refused "--order: \"backwards\" is not known" run --order backwards
refused "2x2" run --tokens 5 --order hilbert:2x2
refused "--order: hilbert needs as many queries as keys" run --tokens 5 --kv-tokens 6 --order hilbert
refused "--order: order32.npy holds 4 values on 1 axis; one axis of 5 positions" run --tokens 5 --order order32.npy
refused "--order: q.npy holds float32; int64 or int32 is needed" run --tokens 5 --order q.npy
refused "--order: cannot open missing.npy" run --tokens 5 --order missing.npy
refused "--out would overwrite order32.npy, the file of --order" run --tokens 4 --order order32.npy --out order32.npy
values twice32.npy '<i4' '4,' 0 0 0 0 2 0 0 0 2 0 0 0 1 0 0 0
refused "must hold each of 0 to 3 once; entry 2 is 2" run --tokens 4 --order twice32.npy
