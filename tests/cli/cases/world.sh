# SPDX-License-Identifier: Apache-2.0
# Processes that mpirun started, without --transport mpi: the first one prints a hint, once.

# hints COUNT VARIABLES...: a run with these variables prints so many hints, and is right.
hints() {
    count=$1
    shift
    env "$@" "$ringattn" run --tokens 8 --heads 1 --dim 4 >"$work/out" 2>"$work/all_err"
    status=$?
    keep_own_lines
    if [ $status -eq 0 ] && [ "$(wc -l <"$work/err")" -eq "$count" ] &&
        [ "$(grep -c "ringattn: hint: .* with --transport mpi they share the work" "$work/err")" -eq "$count" ]; then
        pass
    else
        fail "$count hints with $*"
        show
    fi
}

hints 1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0
hints 0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1
hints 0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0
hints 1 PMI_SIZE=4 PMI_RANK=0
hints 0 PMI_SIZE=4 PMI_RANK=3
hints 1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 PMI_SIZE=2 PMI_RANK=0
hints 0 PMI_SIZE=1
