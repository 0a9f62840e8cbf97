# SPDX-License-Identifier: Apache-2.0
# launch.sh - sourced by the tests of the mpi transport: `launch P COMMAND...` runs processes of the MPI
# whose launcher is $launcher, for $launch_limit seconds at most (100). Skips with a clear word where there is none.

if [ -z "${launcher:-}" ] || ! command -v "$launcher" >/dev/null; then
    echo "skipped: no launcher of MPI (mpirun)"
    exit 77
fi

# More processes than cores, as root in a container, several jobs at a time: all fine in a test.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

launch()
{
    processes=$1
    shift
    timeout "${launch_limit:-100}" "$launcher" -np "$processes" "$@"
}

fail()
{
    echo "FAILED: $*"
    exit 1
}
