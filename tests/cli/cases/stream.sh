# SPDX-License-Identifier: Apache-2.0
# Runs that stream: files and synthetic data in blocks, .safetensors, journals and runs that were killed.

# Inputs are results of other runs.
for tensor in q k v dout; do
    ok run --tokens 700 --heads 2 --dim 16 --seed ${#tensor}$(printf %d "'$tensor") --quiet --out $tensor.npy
done
files="--q q.npy --k k.npy --v v.npy"

# Files in blocks, against the oracle; the same bits as another budget's threads and as without a journal.
ok run $files --strategy stream:128 --pattern causal --verify --quiet --out a.npy --lse a.lse.npy
says "stream:128"
says "verified"
ok run $files --strategy stream:128 --pattern causal --quiet --threads 1 --resume --out b.npy --lse b.lse.npy
cmp -s a.npy b.npy && cmp -s a.lse.npy b.lse.npy && pass || fail "stream: other bits with a journal"
ls | grep -q -e part -e journal -e sums && fail "stream: files are left" || pass
ok run $files --dout dout.npy --backward --strategy stream:128 --pattern causal --verify --quiet \
    --out a.npy --dq a.dq.npy --dk a.dk.npy --dv a.dv.npy

# Synthetic data is made where it is needed: the same values for every strategy.
ok run --tokens 500 --heads 2 --dim 16 --pattern window:50 --strategy stream:64 --quiet --out s.npy --json
json strategy units_resumed peak_rss_bytes verified
ok run --tokens 500 --heads 2 --dim 16 --order hilbert --pattern window:50 --strategy stream:64 --backward --quiet
ok run --tokens 40000 --heads 2 --dim 16 --pattern window:50 --strategy auto --memory 8M --quiet
says "stream:"

# .safetensors, bf16 from end to end.
ok run --tokens 300 --heads 2 --dim 16 --dtype bf16 --quiet --out q.safetensors:query
ok run --tokens 300 --heads 2 --dim 16 --dtype bf16 --seed 1 --quiet --strategy stream:64 --out k.safetensors
ok run --q q.safetensors:query --k k.safetensors:tensor --v k.safetensors --verify --quiet --out o.safetensors:o --json
says '"dtype": "bf16"'
ok run --q q.safetensors --k k.safetensors --v k.safetensors --verify --quiet --strategy stream:64 --out p.safetensors:o
[ "$(wc -c <q.safetensors)" -lt 19500 ] && pass || fail "stream: q.safetensors is not bf16"
refused 'has no tensor "nothing"' run --q q.safetensors:nothing --k k.safetensors --v k.safetensors
refused "--out would overwrite" run --q q.safetensors --k k.safetensors --v k.safetensors --out q.safetensors:o
head -c 100 q.safetensors >short.safetensors
refused "short.safetensors" run --q short.safetensors --k k.safetensors --v k.safetensors
printf 'no tensors here, whatever the name says' >text.safetensors
refused "is not a .safetensors file" run --q text.safetensors --k k.safetensors --v k.safetensors

# What cannot be.
refused "one rank" run --tokens 64 --ring 2 --strategy stream
refused "is not a number of positions" run --tokens 64 --strategy stream:x
refused "--resume needs --out" run --tokens 64 --strategy stream --resume
refused "--resume is for runs that stream" run --tokens 64 --resume --out r.npy

# Killed again and again, and resumed: the same bits as a run that was not. RINGATTN_KILLS says how often.
kills=${RINGATTN_KILLS:-3}
[ "${RINGATTN_LONG:-}" ] && kills=50
long="run --tokens 3000 --heads 2 --dim 16 --pattern causal --strategy stream:128 --backward --quiet --threads 1"
ok $long --out w.npy --lse w.lse.npy --dq w.dq.npy --dk w.dk.npy --dv w.dv.npy
done=0
while [ $done -lt $kills ]; do
    mark=$done
    rm -f x.*
    while :; do
        "$ringattn" $long --resume --out x.npy --lse x.lse.npy --dq x.dq.npy --dk x.dk.npy --dv x.dv.npy \
            >/dev/null 2>"$work/err" &
        process=$!
        sleep 0.$(printf %02d $(((done * 37 + 5) % 60)))
        kill -9 $process 2>/dev/null
        wait $process 2>/dev/null && break
        done=$((done + 1))
        [ -e x.npy ] && break
        [ $((done - mark)) -ge 12 ] && break
    done
    ok $long --resume --out x.npy --lse x.lse.npy --dq x.dq.npy --dk x.dk.npy --dv x.dv.npy
    for part in npy lse.npy dq.npy dk.npy dv.npy; do
        cmp -s w.$part x.$part && pass || fail "stream: x.$part has other bits after $done kills"
    done
    [ $done -gt $mark ] || done=$((done + 1))
done
ls | grep -q -e 'x.*part' -e journal -e sums && fail "stream: files are left" || pass

# A journal belongs to one run: another problem, other files or a missing part are refused.
"$ringattn" run $files --strategy stream:16 --resume --quiet --out j.npy >/dev/null 2>&1 &
process=$!
while [ ! -s j.npy.journal ] && kill -0 $process 2>/dev/null; do sleep 0.01; done
kill -9 $process 2>/dev/null
wait $process 2>/dev/null
if [ -e j.npy.journal ]; then
    refused "belongs to another run" run $files --strategy stream:32 --resume --quiet --out j.npy
    touch q.npy
    refused "belongs to another run" run $files --strategy stream:16 --resume --quiet --out j.npy
fi
rm -f j.npy*

# A disk that is full: a sentence, and what is done stays.
if [ -w /dev/shm ] && (ulimit -f 20; true) 2>/dev/null; then
    (ulimit -f 100; trap '' XFSZ; exec "$ringattn" run --tokens 3000 --heads 2 --dim 16 --strategy stream:128 \
        --resume --quiet --out f.npy >"$work/out" 2>"$work/err")
    status=$?
    if [ $status -eq 3 ] && [ ! -e f.npy ]; then pass; else fail "stream: a full disk ended with $status"; fi
fi
