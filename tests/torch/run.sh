#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests of ringattn.torch, on the library of a build folder, with the PyTorch that is here: it is
# too large to be installed for them. RINGATTN_TORCH_PYTHON names another Python that has it.
#   usage: run.sh BUILD_DIR [ARGUMENTS OF PYTEST...]
# Exit status: 0 passed, 77 there is no PyTorch, or no pytest.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:?usage: run.sh BUILD_DIR}" && pwd)
shift
python=${RINGATTN_TORCH_PYTHON:-python3}
if ! "$python" -c 'import torch, numpy, pytest' >/dev/null 2>&1; then
    echo "skipped: $python has no torch, or no pytest"
    exit 77
fi
export PYTHONPATH="$root/python${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
export RINGATTN_LIBRARY="$build/libringattn.so" RINGATTN_COMMAND="$build/ringattn"
exec "$python" -m pytest -q -p no:cacheprovider "$@" "$root/tests/torch"
