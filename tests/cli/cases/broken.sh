# SPDX-License-Identifier: Apache-2.0
# .npy files that are broken or of another kind.

inputs

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
