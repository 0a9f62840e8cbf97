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

# A digest says whether bits are the same, whatever wrote them.
same="run --tokens 512 --heads 4 --dim 16 --pattern dilated:64/1,128/2 --quiet --digest"
ok $same
whole=$(grep '^digest' "$work/out")
for how in '--strategy stream:128' '--ring 4' '--data host --strategy stream:256'; do
    ok $same $how
    [ "$(grep '^digest' "$work/out")" = "$whole" ] && pass || fail "digest: other bits with $how"
done
ok $same --seed 1
[ "$(grep '^digest' "$work/out")" != "$whole" ] && pass || fail "digest: other data, the same bits"
ok $same --json
json digest_out digest_lse
refused "--data somewhere: host or device" run --tokens 512 --strategy stream --data somewhere
refused "so many steps that these alone need up to" run --tokens 4096 --strategy stream --memory 1M
refused "--data is for runs that stream" run --tokens 512 --data host
refused "there is no module for it beside a plug-in of this device" run --tokens 512 --strategy stream --data device
refused "results go to files" run --tokens 512 --strategy stream --data device --out x.npy
refused "a backward run reads results again" run --tokens 512 --strategy stream --data device --backward
refused "a resumed run writes only a part" run --tokens 512 --strategy stream --resume --out x.npy --digest

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

# broken_off ARGUMENTS...: runs with --resume and kills the run once a unit is done.
broken_off() {
    "$ringattn" run "$@" --resume --quiet >/dev/null 2>&1 &
    process=$!
    while ! grep -qs -e ^forward j.npy.journal && kill -0 $process 2>/dev/null; do sleep 0.005; done
    kill -9 $process 2>/dev/null
    wait $process 2>/dev/null
    grep -qs -e ^forward j.npy.journal && pass || fail "stream: ended before it was killed: $*"
}

# resumes ARGUMENTS...: the run continues from what was done, to the bits of whole.npy.
resumes() {
    ok run "$@" --resume --quiet --json
    grep -q '"units_resumed": [1-9]' "$work/out" && pass || fail "stream: nothing was resumed: $*"
    cmp -s whole.npy j.npy && pass || fail "stream: other bits: $*"
}

for tensor in q k v; do
    ok run --tokens 3000 --heads 2 --dim 16 --seed $(printf %d "'$tensor") --pattern window:9 --quiet --out big.$tensor.npy
done
values sinks.npy '<f4' '2,' 0 0 128 63 0 0 0 64
input="--q big.q.npy --k big.k.npy --v big.v.npy"
run="$input --pattern causal --strategy stream:64 --sinks sinks.npy --out j.npy"
ok run $input --pattern causal --strategy stream:64 --sinks sinks.npy --out whole.npy --quiet

# A journal belongs to one run: another problem, block size or file is refused and named, and nothing is lost.
echo "what was here before" >j.npy
broken_off $run
grep -q "what was here before" j.npy && pass || fail "stream: a result has its name before it is complete"
refused "belongs to another run" run $input --pattern causal --strategy stream:32 --sinks sinks.npy --out j.npy --resume
refused "belongs to another run" run $input --pattern full --strategy stream:64 --sinks sinks.npy --out j.npy --resume
for file in big.q.npy big.v.npy sinks.npy; do # changed, by the time and by the size
    cp -p $file kept.npy
    touch $file
    refused "belongs to another run: it has" run $run --resume
    touch -r kept.npy $file
done
rm kept.npy
mv big.k.npy away.npy
refused "cannot open big.k.npy" run $run --resume
head -c 300000 away.npy >big.k.npy
refused "big.k.npy should have" run $run --resume
mv away.npy big.k.npy
mv j.npy.part away.npy
refused "j.npy.part: No such file" run $run --resume
head -c 300000 away.npy >j.npy.part
refused "j.npy.part was changed" run $run --resume
mv away.npy j.npy.part
printf 'forward 9' >>j.npy.journal # a line that was cut off does not count
resumes $run
ls -a | grep -q -e part -e journal -e sums && fail "stream: files are left" || pass

# Killed when all was done: between the names of two files, and before the journal went.
ok run $run --lse l.npy --quiet
rm j.npy l.npy
broken_off $run --lse l.npy
cp j.npy.journal kept.journal
resumes $run --lse l.npy
unit=0
sed '/^units/q' kept.journal >j.npy.journal
while [ $unit -lt 47 ]; do
    echo "forward $unit"
    unit=$((unit + 1))
done >>j.npy.journal
cp l.npy kept.l.npy
echo complete >>j.npy.journal
mv l.npy l.npy.part
ok run $run --lse l.npy --resume --quiet --json
says '"units_resumed": 47'
cmp -s whole.npy j.npy && cmp -s l.npy kept.l.npy && pass || fail "stream: other bits after names were given"
ls -a | grep -q -e part -e 'npy.journal' && fail "stream: files are left" || pass
rm -f j.npy l.npy kept.*

# An input that is cut short or changed while it is read ends the run; what is done is kept.
for change in 'head -c 150000 copy.npy >cut.npy; cat cut.npy >big.k.npy' 'touch big.k.npy'; do
    cp -p big.k.npy copy.npy
    "$ringattn" run $run --resume --quiet >"$work/out" 2>"$work/err" &
    process=$!
    while ! grep -qs -e ^forward j.npy.journal && kill -0 $process 2>/dev/null; do sleep 0.005; done
    eval "$change"
    wait $process
    status=$?
    grep -q -e 'changed while it was read' -e 'cut short' "$work/err" && grep -q 'what is done is kept' "$work/err" &&
        [ $status -eq 3 ] && [ ! -e j.npy ] && pass || { fail "stream: $change ended with $status"; cat "$work/err"; }
    cat copy.npy >big.k.npy
    touch -r copy.npy big.k.npy
    resumes $run
    rm -f j.npy
done

# A disk that is full: a sentence, what is done stays, and the run goes on when there is room.
if unshare -rm true 2>/dev/null; then
    mkdir disk
    cat >full.sh <<'END'
mount -t tmpfs -o size=250k none disk || exit 77
"$1" run $2 --out disk/j.npy --resume --quiet >out 2>err
status=$?
[ $status -eq 3 ] && [ ! -e disk/j.npy ] && [ -s disk/j.npy.journal ] && grep -q 'No space left' err &&
    grep -q 'what is done is kept' err || { echo "a full disk ended with $status"; cat err; exit 1; }
mount -o remount,size=4m disk
"$1" run $2 --out disk/j.npy --resume --quiet --json >out 2>err || { cat err; exit 1; }
grep -q '"units_resumed": [1-9]' out || { echo "nothing was resumed"; exit 1; }
cmp whole.npy disk/j.npy && [ "$(ls -A disk)" = j.npy ]
END
    unshare -rm sh full.sh "$ringattn" "$input --pattern causal --strategy stream:64 --sinks sinks.npy" >said 2>&1
    status=$?
    if [ $status -eq 77 ]; then echo "stream: no tmpfs here; a full disk was not tried"
    elif [ $status -eq 0 ]; then pass
    else fail "stream: a full disk"; cat said; fi
else
    echo "stream: no namespaces here; a full disk was not tried"
fi
# Without a journal nothing is left.
(ulimit -f 100; exec "$ringattn" run --tokens 3000 --heads 2 --dim 16 --strategy stream:128 \
    --quiet --out f.npy >"$work/out" 2>"$work/err")
status=$?
[ $status -eq 3 ] && ! ls -a | grep -q f.npy && pass || fail "stream: a file that may not grow ended with $status"
