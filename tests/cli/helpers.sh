# SPDX-License-Identifier: Apache-2.0
# What the cases of the command share. run.sh sets $ringattn, $work, $here, $passed and $failed.

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAILED: $1"; }

# run_it ARGUMENTS...: leaves $status, $work/out and $work/err.
run_it() {
    "$ringattn" "$@" >"$work/out" 2>"$work/all_err"
    status=$?
    keep_own_lines
}

# Libraries that the command loads may have something to say too (hwloc, where there is no /sys): only
# the lines of the command and of sanitizers count.
keep_own_lines() { grep -e '^ringattn: ' -e 'runtime error' -e Sanitizer "$work/all_err" >"$work/err"; }

show() { echo "    status $status"; sed 's/^/    err: /' "$work/all_err" | head -5; }

# ok ARGUMENTS...: exit 0 and no word of its own on stderr.
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

# safetensors FILE HEADER BYTES: a .safetensors file with that header, below 256 bytes, and so many bytes of 0.
safetensors() {
    {
        byte ${#2}
        head -c 7 /dev/zero
        printf %s "$2"
        head -c "$3" /dev/zero
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

# inputs: files to read. Outputs serve as inputs: seeds 1, 2, 3 and 4 give q, k, v and dout.
inputs() {
    ok run --tokens 50 --heads 4 --dim 8 --seed 1 --out q.npy --lse lse.npy
    ok run --tokens 70 --heads 2 --dim 8 --seed 2 --out k.npy
    ok run --tokens 70 --heads 2 --dim 8 --value-dim 12 --seed 3 --out v.npy
    ok run --tokens 50 --heads 4 --dim 8 --value-dim 12 --seed 4 --out dout.npy
}
