# SPDX-License-Identifier: Apache-2.0
# Verbs and flags that are refused.

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
refused "--transport: the transport stream is not in this version" run --transport stream
refused "--transport: the transport stream is not in this version" run --transport stream
refused "--transport: there is no transport" run --transport pigeon
refused "strategy 2d: \"two\" is not UxR" run --strategy 2d:two
refused "strategy 2d:2x4: that is 8 ranks, but there are 6; 2d:2x3 would do" run --ring 6 --strategy 2d:2x4
refused "\"ulysses:2\" is not known" run --strategy ulysses:2
refused "bias: strategy ulysses sends queries to other ranks, and a bias stays with its rank" \
    verify "causal n=64 h=4 d=8 ring=2 ulysses bias=add"
refused "--strategy: there is no strategy" run --strategy hope
refused "--device: there is no device \"gpu\"" run --device gpu
ok info
if ! grep -q '^  [+] cuda ' "$work/out"; then
    refused "--device: the device cuda cannot be used here: " run --device cuda:1
fi
refused "--partition: there is no partition" run --partition random
refused "--partition: \";twice\" is not understood" run --partition "zigzag;twice"
refused "--kernel: there is no kernel" run --kernel abacus
refused "--dtype: there is no dtype" run --dtype f64
RINGATTN_KERNEL=hope refused 'RINGATTN_KERNEL: "hope" is not known' run --tokens 16
