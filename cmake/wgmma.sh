#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a compiler, and fails where ptxas says that it serialises wgmma (C75xx) or ignores setmaxnreg:
# such a kernel is right, but slow. ptxas has no switch that makes these messages errors.
#
#   usage: wgmma.sh COMPILER ARGUMENTS...
set -u
log=$("$@" 2>&1)
status=$?
[ -z "$log" ] || printf '%s\n' "$log" >&2
[ $status -eq 0 ] || exit $status
case $log in
*\(C75*|*setmaxnreg*ignored*) exit 1 ;;
esac
