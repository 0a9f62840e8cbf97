# SPDX-License-Identifier: Apache-2.0
# Interruption: every verb ends soon, with exit 3 and its sentence, and leaves nothing behind.

# interrupted SIGNAL WORD ARGUMENTS...: gone within 2 seconds (1 is promised; the machine may be busy) of
# a signal that comes after half a second. WORD is what the sentence calls it.
interrupted() {
    signal=$1
    word=$2
    shift 2
    mkdir "$work/cut" "$work/tmp"
    start=$(date +%s%N)
    (cd "$work/cut" && TMPDIR=$work/tmp exec timeout --foreground --preserve-status -s "$signal" -k 60 0.5 "$ringattn" "$@") \
        >"$work/out" 2>"$work/all_err"
    status=$?
    taken=$((($(date +%s%N) - start) / 1000000))
    keep_own_lines
    if [ $status -eq 3 ] && [ $taken -ge 500 ] && [ $taken -le 2500 ] && grep -q "interrupted by $word" "$work/err" &&
        [ -z "$(ls -A "$work/cut" "$work/tmp" | grep -v -e ':$' -e '^$')" ]; then
        pass
    else
        fail "ringattn $* (should end by $signal; took $taken ms)"
        show
        ls -A "$work/cut" "$work/tmp"
    fi
    rm -rf "$work/cut" "$work/tmp"
}

# Passes, tensors to fill, and a row of the oracle that takes seconds.
interrupted TERM SIGTERM run --tokens 300000 --heads 1 --dim 16 --kernel scalar --out o.npy --lse l.npy
interrupted INT Ctrl-C run --tokens 300000 --heads 1 --dim 16 --kernel scalar --out o.npy
interrupted HUP SIGHUP run --tokens 300000 --heads 1 --dim 16 --kernel scalar --ring 4 --out o.npy
interrupted TERM SIGTERM run --tokens 3000000 --heads 1 --dim 64 --pattern window:1 --out o.npy
interrupted TERM SIGTERM verify
interrupted INT Ctrl-C verify --json
interrupted TERM SIGTERM verify "causal n=6000 h=4 d=64 backward"
# Plans of many ranks, one after another and each by itself.
interrupted TERM SIGTERM plan --tokens 1048576 --ring 4096 --pattern "blocks:64;random=0.1" --latency 1e-6 \
    --bandwidth 1e9 --flops 1e9
interrupted INT Ctrl-C plan --tokens 1048576 --rings 4096,4095,4094,4093,4092,4091,4090,4089 --pattern dilated:2048/1,4096/3
interrupted TERM SIGTERM bench kernels
interrupted TERM SIGTERM demo
