# SPDX-License-Identifier: Apache-2.0
# Systems by name; the transport of MPI.

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
refused "--system: \"nonsense\" is not known; there are StandardAttention, DilatedAttention, " run --system nonsense
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
