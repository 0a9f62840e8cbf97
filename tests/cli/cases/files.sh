# SPDX-License-Identifier: Apache-2.0
# Tensors from files and into files.

inputs
[ -f q.npy ] && [ "$(wc -c <q.npy)" -eq $((128 + 50 * 4 * 8 * 4)) ] && pass || fail "size of q.npy"
[ "$(wc -c <lse.npy)" -eq $((128 + 50 * 4 * 4)) ] && pass || fail "size of lse.npy"
ok run --q q.npy --k k.npy --v v.npy --out o.npy
says "verified   no"
ln -s elsewhere.npy link.npy
refused "link.npy is a link" run --q q.npy --k k.npy --v v.npy --out link.npy
refused "--out would overwrite ./q.npy, the file of --q" run --q ./q.npy --k k.npy --v v.npy --out q.npy
refused "--trace would overwrite k.npy" run --q q.npy --k k.npy --v v.npy --trace ./k.npy
refused "--out and --lse name the same file" run --tokens 8 --out new.npy --lse ./new.npy
mkfifo pipe.npy
refused "pipe.npy is not a regular file" run --q pipe.npy --k k.npy --v v.npy
rm link.npy pipe.npy
npy k3.npy 1 "$(header '<f4' False '1, 70, 3, 8')" 6720
refused "--k: 3 heads, by which the 4 heads of --q cannot be divided" run --q q.npy --k k3.npy --v v.npy
rm k3.npy
ok run --q q.npy --k k.npy --v v.npy --verify --json --pattern causal --ring 4 --partition striped
json verified
says '"verified": true'
says '"problem": "causal n=50 nk=70 h=4/2 d=8 dv=12 ring=4 striped"'
ok run --q q.npy --k k.npy --v v.npy --out o1.npy --lse l1.npy --strategy allgather
ok run --q q.npy --k k.npy --v v.npy --out o5.npy --lse l5.npy --strategy allgather --ring 5 \
    --partition zigzag
cmp -s o1.npy o5.npy && cmp -s l1.npy l5.npy && pass || fail "allgather on 1 and 5 ranks, other bits"
ok run --q q.npy --k k.npy --v v.npy --dtype bf16 --verify --ring 2
says "bf16"
ok run --q q.npy --k k.npy --v v.npy --backward --dout dout.npy --dlse lse.npy --dq dq.npy --dk dk.npy \
    --dv dv.npy --verify --ring 3
says "dk     error"
[ "$(wc -c <dk.npy)" -eq "$(wc -c <k.npy)" ] && pass || fail "size of dk.npy"
[ "$(wc -c <dq.npy)" -eq "$(wc -c <q.npy)" ] && pass || fail "size of dq.npy"
ok run --q q.npy --k k.npy --v v.npy --backward --dout dout.npy --dq dq1.npy --verify
cmp -s dq.npy dq1.npy && fail "dlse changes nothing" || pass
ok run --tokens 64 --heads 2 --dim 8 --ring 2 --backward --warmup 2 --json
says '"warmup": 2'
says '"verified": true'
says '"flops": 917504'
ok run --tokens 64 --heads 1 --dim 8 --ring 2 --trace t.json
cp t.json "$work/out"
json traceEvents ph ts dur
npy half.npy 2 "$(header '<f2' False '1, 30, 2, 4')" 480
npy half3.npy 1 "$(header '<f2' False '30, 2, 4')" 480
ok run --q half.npy --k half3.npy --v half.npy --verify --ring 2
says "f16"
npy float.npy 1 "$(header '<f4' False '1, 30, 2, 4')" 960
refused "--k holds f32 but --q holds f16; say which with --dtype" run --q half.npy --k float.npy --v half.npy
ok run --q half.npy --k float.npy --v half.npy --dtype f32 --verify
refused "belong together; --v is missing" run --q q.npy --k k.npy
refused "--heads is for synthetic data" run --q q.npy --k k.npy --v v.npy --heads 4
refused "--backward needs --dout" run --q q.npy --k k.npy --v v.npy --backward
refused "--dout is for --backward" run --q q.npy --k k.npy --v v.npy --dout dout.npy
refused "--dq is for --backward" run --tokens 8 --dq x.npy
refused "name the same file" run --tokens 8 --out x.npy --lse x.npy
refused "cannot write into" run --tokens 8 --out nowhere/x.npy
refused "not a regular file" run --tokens 8 --out /dev/null
refused "not a regular file" run --tokens 8 --out "$work"
refused "--k: shape" run --q q.npy --k half3.npy --v v.npy --dtype f32
refused "--v: shape" run --q q.npy --k q.npy --v v.npy
refused "--dout: shape" run --q q.npy --k k.npy --v v.npy --backward --dout q.npy
refused "cannot open m.safetensors" run --q m.safetensors:q --k k.npy --v v.npy

# NaN in a file: the rows that it reaches must be NaN, and the report says how many were.
values nan.npy '<f4' '3, 1, 1' 0 0 192 127  0 0 128 63  0 0 0 64
values numbers.npy '<f4' '3, 1, 1' 0 0 0 63  0 0 128 63  0 0 0 64
ok run --q nan.npy --k numbers.npy --v numbers.npy --verify
says "verified   all 3 rows (1 NaN, like their input) against the fp64 oracle"
ok run --q numbers.npy --k numbers.npy --v nan.npy --verify --pattern causal --json
says '"nan_rows": 3,'
ok run --q numbers.npy --k numbers.npy --v numbers.npy --verify
says "verified   all 3 rows against the fp64 oracle"

# An empty cache: no keys in the files.
npy none.npy 1 "$(header '<f4' False '1, 0, 2, 4')" 0
npy none3.npy 1 "$(header '<f2' False '0, 2, 4')" 0
ok run --q float.npy --k none.npy --v none.npy --verify --out zeros.npy --lse minus.npy
says "problem    full n=30 nk=0 h=2 d=4"
[ "$(tail -c 960 zeros.npy | tr -d '\0' | wc -c)" -eq 0 ] && pass || fail "results without keys"
ok run --q float.npy --k none.npy --v none3.npy --dtype f16 --verify --ring 2
for way in "--ring 3 --pattern causal" "--strategy stream" "--strategy stream:16 --dtype bf16"; do
    ok run --q float.npy --k none.npy --v none.npy --backward --dout float.npy --dk dk0.npy --verify $way
    [ "$(wc -c <dk0.npy)" -eq 128 ] && pass || fail "size of dk0.npy"
done
ok run --q float.npy --k none.npy --v none.npy --backward --dout float.npy --dk none.safetensors:k
ok run --q float.npy --k none.safetensors:k --v none.npy --verify
says "problem    full n=30 nk=0 h=2 d=4"
refused "--q: none.npy is empty: axis 1 has length 0" run --q none.npy --k none.npy --v none.npy
npy headless.npy 1 "$(header '<f4' False '1, 0, 0, 4')" 0
refused "--k: headless.npy is empty: axis 2 has length 0" run --q float.npy --k headless.npy --v none.npy
refused "--v: shape" run --q float.npy --k none.npy --v float.npy

# Whatever is written as .npy is written as .safetensors too, in the dtype it has.
values sinks.npy '<f4' '4,' 0 0 128 63 0 0 0 64 0 0 0 0 0 0 128 191
ok run --q q.npy --k k.npy --v v.npy --sinks sinks.npy --dtype bf16 --backward --dout dout.npy --out o.safetensors:o \
    --lse l.safetensors --dq dq.safetensors --dk dk.safetensors:dk --dv dv.safetensors --dsinks ds.safetensors:sinks \
    --quiet
for file in 'o.safetensors "o":{"dtype":"BF16","shape":[1,50,4,12],"data_offsets":[0,4800]}' \
    'l.safetensors "tensor":{"dtype":"F32","shape":[1,50,4],"data_offsets":[0,800]}' \
    'dq.safetensors "tensor":{"dtype":"BF16","shape":[1,50,4,8],' \
    'dk.safetensors "dk":{"dtype":"BF16","shape":[1,70,2,8],' \
    'dv.safetensors "tensor":{"dtype":"BF16","shape":[1,70,2,12],' \
    'ds.safetensors "sinks":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}'; do
    grep -qF -e "${file#* }" "${file%% *}" && pass || fail "header of ${file%% *}"
done
# The values are those of .npy: f32 is the same bits, after a header of another length.
ok run --q q.npy --k k.npy --v v.npy --out o.npy
ok run --q q.npy --k k.npy --v v.npy --out o.safetensors:o
tail -c 9600 o.npy >o.1 && tail -c 9600 o.safetensors >o.2
cmp -s o.1 o.2 && pass || fail "values of o.safetensors"
ok plan --tokens 8 --heads 1 --pattern causal --mask mask.safetensors:seen
grep -qF '"seen":{"dtype":"U8","shape":[8,8],"data_offsets":[0,64]}' mask.safetensors && pass || fail "mask.safetensors"
ok plan --tokens 8 --heads 1 --pattern causal --mask mask.npy
tail -c 64 mask.npy >m.1 && tail -c 64 mask.safetensors >m.2
cmp -s m.1 m.2 && pass || fail "values of mask.safetensors"
refused "without quotes" run --tokens 8 --out 'x.safetensors:a"b'
refused "__metadata__ is not the name" plan --tokens 8 --mask x.safetensors:__metadata__
refused "hold tensors" run --tokens 8 --trace x.safetensors

# Headers that say too little, or two things at once.
entry='"dtype":"F32","shape":[1,2,1,1],"data_offsets":[0,8]'
safetensors good.safetensors "{\"q\":{$entry,\"more\":[{\"a\":null}]},\"__metadata__\":{\"k\":\"}\"}}  " 8
ok run --q good.safetensors --k good.safetensors:q --v good.safetensors --verify --quiet
for text in '"shape":[1,2,1,1],"data_offsets":[0,8]' '"dtype":"F32","data_offsets":[0,8]' \
    '"dtype":"F32","shape":[1,2,1,1]' "$entry,\"shape\":[1]" "$entry," "$entry,\"more\":]"; do
    safetensors odd.safetensors "{\"q\":{$text}}" 8
    refused "the header of odd.safetensors is not understood" run --q odd.safetensors --k good.safetensors --v good.safetensors
done
safetensors odd.safetensors "{\"q\":{$entry},\"q\":{$entry}}" 8
refused 'more than one tensor "q"' run --q odd.safetensors:q --k good.safetensors --v good.safetensors
refused "has 2 tensors; name one" run --q odd.safetensors --k good.safetensors --v good.safetensors
for text in '[1,2,1,1],"data_offsets":[0,4]' '[1,2,1,1],"data_offsets":[8,16]' '[1,4,1,1],"data_offsets":[0,8]' \
    '[4294967296,4294967296,1,1],"data_offsets":[0,8]'; do
    safetensors odd.safetensors "{\"q\":{\"dtype\":\"F32\",\"shape\":$text}}" 8
    refused "does not agree with its bytes" run --q odd.safetensors --k good.safetensors --v good.safetensors
done
