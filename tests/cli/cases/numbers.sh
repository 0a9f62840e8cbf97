# SPDX-License-Identifier: Apache-2.0
# Absurd numbers.

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
