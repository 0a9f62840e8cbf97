# SPDX-License-Identifier: Apache-2.0
# Who sees whom as a file: plan --mask.

ok plan --tokens 5 --kv-tokens 7 --pattern causal --mask mask.npy
mask=$(tail -c 35 mask.npy | od -An -v -tu1 | tr -d ' \n')
[ "$mask" = 11100001111000111110011111101111111 ] && pass || fail "mask.npy: $mask"
refused "must end in .npy, .safetensors, .png or .pgm" plan --tokens 5 --mask mask.jpg
refused "too large" plan --tokens 5000 --mask mask2.npy
refused "name one with --head" plan --tokens 4096 --heads 32 --mask mask2.npy --head all
refused "--head is for --mask" plan --tokens 5 --head 1
refused "--head: 8 is out of range; from 0 to 7" plan --tokens 5 --mask mask2.npy --head 8
refused "--head: \"each\" is not a whole number" plan --tokens 5 --mask mask2.npy --head each
# Head 1 starts at an offset of 1; a key of two branches counts twice.
ok plan --tokens 8 --heads 2 --pattern dilated:4/2 --mask mask2.npy --head 1
mask=$(tail -c 64 mask2.npy | od -An -v -tu1 | tr -d ' \n')
[ "$mask" = 0000000001010000000000000101000000000000000001010000000000000101 ] && pass || fail "head 1: $mask"
ok plan --tokens 8 --heads 2 --pattern dilated:4/2,8/2 --mask mask2.npy --head all
mask=$(tail -c 128 mask2.npy | head -c 8 | od -An -v -tu1 | tr -d ' \n')
[ "$mask" = 20201010 ] && pass || fail "two branches: $mask"
# Under an order the picture still shows original positions: index 1 holds position 2.
ok plan --tokens 4 --heads 1 --pattern window:1 --order hilbert:2x2 --mask mask2.npy
mask=$(tail -c 16 mask2.npy | od -An -v -tu1 | tr -d ' \n')
[ "$mask" = 1000010110100011 ] && pass || fail "window under an order: $mask"
if command -v python3 >/dev/null; then
    for picture in mask.png mask.pgm; do
        for head in 1 all; do
            for what in "--tokens 7 --kv-tokens 9 --pattern causal" "--tokens 300 --pattern dilated:16/1,64/2"; do
                # shellcheck disable=SC2086
                ok plan --heads 3 $what --head $head --mask $picture
                # shellcheck disable=SC2086
                ok plan --heads 3 $what --head $head --mask mask3.npy
                if python3 "$here/picture.py" $picture mask3.npy; then pass; else fail "$picture: $what"; fi
            done
        done
    done
fi
