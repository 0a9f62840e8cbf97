#!/bin/sh
# Golden tests of the command, from outside: run.sh BUILD_DIR
#
# Prints each failure and a closing line "N passed, N failed". Needs a C compiler (exit 77 without one)
# for the JSON checker; the rest is sh and the usual tools.

build=${1:?usage: run.sh BUILD_DIR}
here=$(cd "$(dirname "$0")" && pwd)
ringattn=$(cd "$build" && pwd)/ringattn
cc=${CC:-cc}
command -v "$cc" >/dev/null || { echo "run.sh: no C compiler"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/files"
cd "$work/files" || exit 1
"$cc" -O1 -o "$work/json_valid" "$here/json_valid.c" || exit 1

passed=0
failed=0
unset RINGATTN_KERNEL RINGATTN_PIN RINGATTN_PLUGINS RINGATTN_THREADS
# A world of one may be root's, in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# ---- Helpers ---------------------------------------------------------------------------------------

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAILED: $1"; }

# run_it ARGUMENTS...: leaves $status, $work/out and $work/err.
run_it() { "$ringattn" "$@" >"$work/out" 2>"$work/err"; status=$?; }

show() { echo "    status $status"; sed 's/^/    err: /' "$work/err" | head -5; }

# ok ARGUMENTS...: exit 0 and silence on stderr.
ok() {
    run_it "$@"
    if [ $status -eq 0 ] && [ ! -s "$work/err" ]; then pass; else fail "ringattn $*"; show; fi
}

# refused TEXT ARGUMENTS...: exit 2, one line on stderr that holds TEXT, nothing on stdout, and no file
# made or changed.
refused() {
    text=$1
    shift
    before=$(ls -la)
    run_it "$@"
    if [ $status -eq 2 ] && grep -qF -e "$text" "$work/err" && [ ! -s "$work/out" ] &&
        [ "$(wc -l <"$work/err")" -eq 1 ] && [ "$(ls -la)" = "$before" ]; then
        pass
    else
        fail "ringattn $* (should be refused: $text)"
        show
    fi
}

# says TEXT: the last run printed TEXT on stdout.
says() {
    if grep -qF -e "$1" "$work/out"; then pass; else fail "output lacks: $1"; sed 's/^/    /' "$work/out" | head -12; fi
}

# json MEMBERS...: the last run printed valid JSON with these members.
json() {
    if "$work/json_valid" <"$work/out"; then pass; else fail "not JSON"; head -5 "$work/out"; fi
    for member; do
        if grep -q "\"$member\":" "$work/out"; then pass; else fail "JSON lacks $member"; fi
    done
}

# byte N: one byte of that value.
byte() { printf "\\$(printf %03o "$1")"; }

# npy FILE VERSION HEADER BYTES: a .npy file with that dictionary and so many bytes of data, all of
# them small positive numbers as f16 and f32.
npy() {
    length=${#3}
    {
        printf '\223NUMPY'
        byte "$2"
        byte 0
        byte $((length % 256))
        byte $((length / 256))
        [ "$2" -eq 2 ] && { byte 0; byte 0; }
        printf %s "$3"
        [ "$4" -eq 0 ] || yes '234567890123456' | tr '\n' '5' | head -c "$4"
    } >"$1"
}

# values FILE TYPE SHAPE BYTE...: a .npy file that holds these bytes.
values() {
    npy "$1" 1 "$(header "$2" False "$3")" 0
    file=$1
    shift 3
    for value; do byte "$value"; done >>"$file"
}

# header TYPE ORDER SHAPE
header() { printf "{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }" "$1" "$2" "$3"; }

# ---- Help and version ---------------------------------------------------------------------------------

ok --version
says "ringattn 0."
ok --help
for verb in run verify plan info bench demo; do says "  $verb "; done
for verb in run verify plan info bench demo; do
    ok help $verb
    cp "$work/out" "$work/help_$verb"
    ok $verb --help
    if cmp -s "$work/out" "$work/help_$verb"; then pass; else fail "two helps of $verb"; fi
done
# Every flag of every verb: in its help, and known to its parser.
for pair in \
    run:"--pattern --tokens --kv-tokens --heads --kv-heads --dim --value-dim --batch --dtype --scale
        --order --system --segment-lengths --dilation-rates --softcap --alibi --sinks --bias --dropout
        --backward --seed --q --k --v --dout --dlse --out --lse --dq --dk --dv --dsinks --ring --ring-size
        --strategy --latency --bandwidth --flops --partition --transport --device --kernel --threads --memory
        --timeout --checksum --warmup --deterministic --verify --predict --trace --json --quiet" \
    verify:"--kernel --threads --timeout --checksum --deterministic --list --quick --json --quiet" \
    plan:"--pattern --tokens --kv-tokens --heads --kv-heads --dim --value-dim --batch --dtype --scale
        --order --system --segment-lengths --dilation-rates --softcap --alibi --sinks --bias --dropout
        --backward --ring --ring-size --strategy --latency --bandwidth --flops --partition --transport --device
        --kernel --threads --memory --rings --explain --rank --mask --head --json --quiet" \
    info:"--json --systems" demo:"--kernel --threads --quiet" \
    bench:"--tokens --heads --kernel --threads --quick --out --quiet"; do
    verb=${pair%%:*}
    for flag in ${pair#*:}; do
        if grep -q -e "^  $flag " "$work/help_$verb"; then pass; else fail "help $verb lacks $flag"; fi
    done
done

run_it
[ $status -eq 2 ] && pass || fail "no verb: status $status"

# ---- Verbs and flags that are refused --------------------------------------------------------------------

refused "not in this version" report DIR
refused "did you mean run" rnu
refused "there is no verb" frobnicate
refused "there is no verb" help frobnicate
refused "did you mean --tokens" run --token 5
refused "there is no flag --frobnicate" run --frobnicate
refused "there is no flag -x" run -x
refused "is not a flag" run 4096
refused "value N is missing" run --tokens
refused "takes no value" run --json=yes
refused "is given already" run --ring 2 --ring-size 3
refused "--json is given twice" run --json --json
refused "from 1 to 576" run --dim 577
refused "from 1 to 4096" plan --ring 4097
refused "from 1 to 1024" run --threads 1025
refused "verify takes no --tokens" verify --tokens 5
refused "plan takes no --out" plan --out x.npy
refused "--transport: the transport nccl is not in this version" run --transport nccl
refused "--transport: the transport stream is not in this version" run --transport stream
refused "--transport: there is no transport" run --transport pigeon
refused "strategy 2d: \"two\" is not UxR" run --strategy 2d:two
refused "strategy 2d:2x4: that is 8 ranks, but there are 6; 2d:2x3 would do" run --ring 6 --strategy 2d:2x4
refused "\"ulysses:2\" is not known" run --strategy ulysses:2
refused "bias: strategy ulysses sends queries to other ranks, and a bias stays with its rank" \
    verify "causal n=64 h=4 d=8 ring=2 ulysses bias=add"
refused "--strategy: there is no strategy" run --strategy hope
refused "--device: the device cuda:1 is not in this version" run --device cuda:1
refused "--partition: there is no partition" run --partition random
refused "--partition: \";twice\" is not understood" run --partition "zigzag;twice"
refused "--kernel: there is no kernel" run --kernel abacus
refused "--dtype: there is no dtype" run --dtype f64

# ---- Absurd numbers ----------------------------------------------------------------------------------------

for value in -5 0 99999999999999999999 1099511627777; do
    refused "--tokens: $value is out of range" run --tokens=$value
done
for value in "" 12x 1e6 0x10 nan inf " 5" 5.5 --json; do
    refused "--tokens: \"$value\" is not a whole number" run --tokens "$value"
done
for flag in --heads --kv-heads --dim --value-dim --batch --ring --threads; do
    refused "$flag: 0 is out of range" run $flag 0
    refused "$flag: \"many\" is not a whole number" run $flag many
done
refused "--kv-tokens: -1 is out of range" run --kv-tokens=-1
refused "--kv-tokens: \"many\" is not a whole number" run --kv-tokens many
refused "--heads: \"8x\" is not a whole number" run --heads 8x/2
refused "--scale: \"nan\" is not a number" run --scale nan
refused "--scale: -1 is out of range" run --scale -1
refused "--scale: 1e999 is out of range" run --scale 1e999
refused "--timeout: 0 is out of range" run --timeout 0
refused "--memory: \"12Q\" is not a size" run --memory 12Q
refused "--memory: \"-1\" is not a size" run --memory -1
refused "--memory: 0 is out of range" run --memory 0
refused "--memory: 99999999T is out of range" run --memory 99999999T
refused "not a multiple" run --heads 3 --kv-heads 2 --tokens 8

# ---- Sizes that overflow, budgets, documents -----------------------------------------------------------------

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

# ---- Synthetic runs -------------------------------------------------------------------------------------------

ok run --tokens 65 --heads 2 --dim 8
says "verified   all 130 rows"
ok run --tokens 65 --heads 4 --kv-heads 2 --dim 8 --value-dim 12 --batch 2 --pattern causal --ring 3 \
    --partition zigzag --strategy allgather --dtype bf16 --backward --deterministic --device cpu \
    --transport local --order sequential --scale 0.3 --threads 1 --memory 64M --timeout 30 --quiet --seed 9
says "problem    causal n=65 h=4/2 d=8 dv=12 b=2 bf16 ring=3 zigzag allgather backward seed=9 scale=0.3"
ok run --tokens 40 --kv-tokens 60 --heads 1 --dim 8 --pattern "window:5,2" --ring=2 --json
json problem pattern ranks strategy partition transport device dtype kernel flops density hops \
    flops_per_rank bytes_sent_per_rank peak_bytes_per_rank seconds tokens_per_second gflops peak_rss_bytes verified
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

# ---- Files ------------------------------------------------------------------------------------------------------

# Outputs serve as inputs: seeds 1, 2, 3 and 4 give q, k, v and dout.
ok run --tokens 50 --heads 4 --dim 8 --seed 1 --out q.npy --lse lse.npy
ok run --tokens 70 --heads 2 --dim 8 --seed 2 --out k.npy
ok run --tokens 70 --heads 2 --dim 8 --value-dim 12 --seed 3 --out v.npy
ok run --tokens 50 --heads 4 --dim 8 --value-dim 12 --seed 4 --out dout.npy
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
refused ".safetensors files are not in this version" run --q m.safetensors:q --k k.npy --v v.npy

# ---- Orders ----------------------------------------------------------------------------------------------------

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

# ---- Patterns: dilated, blocks ---------------------------------------------------------------------------------

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
refused "--out: o.safetensors: .safetensors files are not in this version" run --tokens 4 --out o.safetensors
refused "verify: problem 1 is empty" verify ''
refused "--list prints lines; leave out --json" verify --list --json

# ---- Score terms -----------------------------------------------------------------------------------------------

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

# ---- Systems ---------------------------------------------------------------------------------------------------

ok run --tokens 61 --heads 2 --dim 8 --system hILBERTringATTENTION --ring 2
says "system HilbertRingAttention: "
says "--order hilbert"
says "problem    full n=61 h=2 d=8 order=hilbert ring=2"
ok run --tokens 61 --heads 2 --dim 8 --system HilbertRingAttention --order sequential --strategy allgather
says "--order sequential --strategy allgather --partition contiguous" # what is in force
says "problem    full n=61 h=2 d=8 allgather"
ok plan --tokens 61 --heads 2 --dim 8 --system hilbertringattention --json
json system system_flags order
says '"system": "HilbertRingAttention"'
ok plan --tokens 64 --json
says '"system": null'
ok verify system=hilbertringattention n=20 h=1 d=4 ring=2
says "passed  full n=20 h=1 d=4 order=hilbert ring=2"
refused "--system: \"nonsense\" is not known" run --system nonsense
# With MPI a process alone is a world of one; without, what needs it is refused.
if [ -f "$(dirname "$ringattn")/libringattn_mpi.so" ]; then
    ok run --system distributedringattention --tokens 64
    says "ranks      1 (ring, contiguous, mpi)"
    refused "a ring of 4 over mpi needs as many processes; there is 1" run --transport mpi --ring 4
    ok run --transport mpi --tokens 64 --heads 1 --dim 8 --trace t.json
    refused "a ring of 2 over mpi" verify causal n=20 ring=2 mpi
    ok verify "causal n=20 h=2 d=8 mpi"
    ok run --tokens 20 --heads 2 --dim 8 --transport mpi --out mpi-out.npy
else
    refused "it needs" run --system distributedringattention
    refused "--transport: the transport mpi cannot be used here: libringattn_mpi.so was not found" run --transport mpi
fi
ok info --systems
says "HilbertRingAttention"
says "BlockSparseRingAttention"
ok info --systems --json
json systems name pattern order missing

# ---- Broken files -----------------------------------------------------------------------------------------------

# broken NAME TEXT: --q NAME is refused with TEXT.
broken() { refused "$2" run --q "$1" --k k.npy --v v.npy --out never.npy; }

: >empty.npy
broken empty.npy "empty.npy is empty"
broken missing.npy "cannot open missing.npy"
broken . "not a regular file"
printf 'PK\003\004 this is a zip file, more or less' >zip.npy
broken zip.npy "is not a .npy file"
printf '\223NUMPY\001' >short.npy
broken short.npy "cut short"
npy huge.npy 1 "$(header '<f4' False '1, 2, 3, 4')" 96
{ printf '\223NUMPY\002\000\377\377\377\177'; cat huge.npy; } >huge_header.npy
broken huge_header.npy "claims 2147483647 bytes"
{ printf '\223NUMPY\001\000\377\377'; cat huge.npy; } >long_header.npy
broken long_header.npy "cut short"
npy version3.npy 3 "$(header '<f4' False '1, 2, 3, 4')" 96
broken version3.npy "version 3"
head -c 2000 q.npy >truncated.npy
broken truncated.npy "should have"
{ cat q.npy; echo; } >longer.npy
broken longer.npy "should have"
npy f64.npy 1 "$(header '<f8' False '1, 2, 3, 4')" 192
broken f64.npy "holds float64"
npy int.npy 1 "$(header '<i4' False '1, 2, 3, 4')" 96
broken int.npy "holds int32"
npy bool.npy 1 "$(header '|b1' False '1, 2, 3, 4')" 24
broken bool.npy "holds bool"
npy big.npy 1 "$(header '>f4' False '1, 2, 3, 4')" 96
broken big.npy "big-endian"
npy struct.npy 1 "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 2, 3, 4), }" 96
broken struct.npy "structured"
npy fortran.npy 1 "$(header '<f4' True '1, 2, 3, 4')" 96
broken fortran.npy "Fortran order"
npy flat.npy 1 "$(header '<f4' False '24,')" 96
broken flat.npy "1 axes where 3 or 4 are needed"
npy five.npy 1 "$(header '<f4' False '1, 1, 2, 3, 4')" 96
broken five.npy "more than 4 axes"
npy zero.npy 1 "$(header '<f4' False '1, 0, 3, 4')" 0
broken zero.npy "axis 1 has length 0"
npy overflow.npy 1 "$(header '<f4' False '4294967296, 4294967296, 4294967296, 4')" 96
broken overflow.npy "2^63"
npy huge_axis.npy 1 "$(header '<f4' False '99999999999999999999, 1, 1')" 96
broken huge_axis.npy "63 bits"
npy negative.npy 1 "$(header '<f4' False '1, -2, 3, 4')" 96
broken negative.npy "shape in the header"
npy twice.npy 1 "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }" 96
broken twice.npy "header of twice.npy is not understood"
npy less.npy 1 "{'descr': '<f4', 'shape': (1, 2, 3, 4), }" 96
broken less.npy "header of less.npy is not understood"
npy words.npy 1 "hello, world" 96
broken words.npy "header of words.npy is not understood"
[ -e never.npy ] && fail "never.npy was written" || pass

# ---- Interruption: exit 3, nothing left behind -----------------------------------------------------------------

mkdir "$work/cut"
"$ringattn" run --tokens 300000 --heads 1 --dim 16 --kernel scalar --out "$work/cut/o.npy" \
    >"$work/out" 2>"$work/err" &
child=$!
sleep 1
kill -TERM $child
wait $child
status=$?
if [ $status -eq 3 ] && grep -q "interrupted by SIGTERM" "$work/err" && [ -z "$(ls -A "$work/cut")" ]; then
    pass
else
    fail "interrupted run"
    show
    ls -la "$work/cut"
fi

# ---- Plan, info ---------------------------------------------------------------------------------------------------

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
ok plan --tokens 5 --kv-tokens 7 --pattern causal --mask mask.npy
mask=$(tail -c 35 mask.npy | od -An -v -tu1 | tr -d ' \n')
[ "$mask" = 11100001111000111110011111101111111 ] && pass || fail "mask.npy: $mask"
refused "must end in .npy, .png or .pgm" plan --tokens 5 --mask mask.jpg
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
refused "--rank: there are ranks 0 to 3" plan --tokens 64 --ring 4 --explain --rank 4
refused "--rank is for --explain" plan --tokens 64 --rank 0
refused "--rings prints a table" plan --tokens 64 --rings 1,2 --ring 2
refused "--rings: 0 " plan --tokens 64 --rings 1,0
ok plan --tokens 4096 --rings 1,2,16
ok info
says "kernel"
says "* ring"
ok info --json
json version cores kernel transport strategy partition pattern order systems

# ---- Verify -----------------------------------------------------------------------------------------------------

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
ok verify --quick --quiet
says " 0 failed"
ok verify --quick --quiet --kernel scalar --json
says '"failed": 0'
refused "problem: \"frobnicate\" is not understood" verify causal frobnicate n=5
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
refused "the transport nccl is not in this version" verify causal nccl
ok verify "causal n=64 h=4/2 d=8 ring=4 ulysses backward" "full n=61 h=4 d=8 ring=6 zigzag 2d:2x3 backward"
says "ring=6 zigzag 2d:2x3"
refused "order=backwards: " verify causal order=backwards
refused "d=577: 577 is out of range" verify full n=8 d=577
refused "more queries (10) than keys (5)" verify prefix:3 n=10 nk=5
refused "not a multiple" verify full n=8 h=8/3
refused "about the grid" verify --list causal

# ---- Bench ------------------------------------------------------------------------------------------------------

for suite in compare memory scaling extreme ablate all; do
    refused "bench: '$suite' is not in this version" bench $suite
done
refused "bench: there is no suite \"frobnicate\"" bench frobnicate
refused "bench: its suite is missing" bench --quick
refused "one suite at a time" bench kernels memory
refused "bench takes no --pattern" bench kernels --pattern causal
refused "--out: q.npy is not a folder" bench kernels --quick --out q.npy
refused "cannot write into nowhere" bench kernels --quick --out nowhere/here
refused "--kernel: there is no kernel" bench kernels --kernel abacus
# Small enough for a moment; every kernel, and every ceiling with a figure or a reason.
ok bench kernels --quick --tokens 16 --heads 1 --threads 1 --out figures
says "median of 3 runs (--quick"
for ceiling in fma-avx2 fma-avx512 dpbf16-avx512 tdpbf16-amx exp2-avx512 read-l1 read-l2 read-memory; do
    if grep -q -e "^  $ceiling  *1  *[0-9.]* .*/s " -e "^  $ceiling  *absent: ..*" "$work/out"; then pass
    else fail "no line of the ceiling $ceiling"; fi
done
says "scalar      f32     64 forward   full         16   1"
says "scalar      f16    128 backward  causal       16   1"
says "scalar      bf16   128 decode    full        256   1"
lines=0
while read -r line; do
    lines=$((lines + 1))
    printf '%s\n' "$line" | "$work/json_valid" || fail "line $lines of kernels.jsonl is not JSON"
done <figures/kernels.jsonl
[ "$lines" -ge 36 ] && pass || fail "kernels.jsonl has $lines lines"
[ "$(wc -l <figures/kernels.csv)" -eq $((lines + 1)) ] && pass || fail "lines of kernels.csv"
[ "$(ls -A figures)" = "kernels.csv
kernels.jsonl" ] && pass || fail "files of bench: $(ls -A figures)"
for member in version machine threads runs rate_least ceiling_rate share; do
    grep -q "^{.*\"$member\": .*}$" figures/kernels.jsonl && pass || fail "kernels.jsonl lacks $member"
done
grep -q '"name": "scalar".*"dtype": "f32", "pass": "backward", "pattern": "causal", "dim": 64, "heads": 1, "queries": 16, "keys": 16, "work": 87040,' figures/kernels.jsonl &&
    pass || fail "FLOPs of a causal backward pass"
grep -q '"kind": "decode", "name": "scalar".*"dtype": "bf16", .*"dim": 128, "heads": 1, "queries": 1, "keys": 256, "work": 131072,' figures/kernels.jsonl &&
    pass || fail "bytes of a decode"
rm -r figures

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
