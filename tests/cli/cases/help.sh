# SPDX-License-Identifier: Apache-2.0
# Help and version; every flag of every verb.

ok --version
says "ringattn 0."
ok --help
for verb in run verify plan info bench report demo; do says "  $verb "; done
for verb in run verify plan info bench report demo; do
    ok help $verb
    cp "$work/out" "$work/help_$verb"
    ok $verb --help
    if cmp -s "$work/out" "$work/help_$verb"; then pass; else fail "two helps of $verb"; fi
done
cp "$work/help_run" "$work/out"
says "Examples:"
says "  ringattn run --q q.npy --k k.npy --v v.npy --out o.npy"
# Every flag of every verb: in its help, and known to its parser.
for pair in \
    run:"--pattern --tokens --kv-tokens --query-offset --sequences --heads --kv-heads --dim --value-dim --batch --dtype --scale
        --order --system --segment-lengths --dilation-rates --softcap --alibi --sinks --bias --dropout
        --backward --seed --q --k --v --dout --dlse --out --lse --dq --dk --dv --dsinks --ring --ring-size
        --strategy --latency --bandwidth --flops --partition --transport --device --kernel --threads --memory
        --timeout --checksum --warmup --deterministic --any-order --verify --predict --trace --json --quiet" \
    verify:"--kernel --threads --timeout --checksum --deterministic --list --quick --subset --json --quiet" \
    plan:"--pattern --tokens --kv-tokens --query-offset --sequences --heads --kv-heads --dim --value-dim --batch --dtype --scale
        --order --system --segment-lengths --dilation-rates --softcap --alibi --sinks --bias --dropout
        --backward --ring --ring-size --strategy --latency --bandwidth --flops --partition --transport --device
        --kernel --threads --memory --machine --machines --fit --rings --explain --rank --mask --head --json --quiet" \
    info:"--json --systems --machines" demo:"--kernel --threads --quiet" \
    bench:"--tokens --heads --kernel --threads --runs --seconds --limit --memory --pool --replan --standard --link --blocking
        --timeout --quick --match --out --quiet" \
    report:"--out --quiet"; do
    verb=${pair%%:*}
    for flag in ${pair#*:}; do
        if grep -q -e "^  $flag " "$work/help_$verb"; then pass; else fail "help $verb lacks $flag"; fi
    done
done

run_it
[ $status -eq 2 ] && pass || fail "no verb: status $status"
