#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests of the Python package, on the library of a build folder. Packages that they need are
# put into a virtual environment there, once; without a network those of the system are used.
#   usage: run.sh BUILD_DIR [ARGUMENTS OF PYTEST...]
# Exit status: 0 passed, 77 there is no Python, or none with what the tests need.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:?usage: run.sh BUILD_DIR}" && pwd)
shift
needs='import sys; assert sys.version_info >= (3, 10); import numpy, ml_dtypes, pytest, hypothesis'
packages='numpy ml_dtypes pytest hypothesis'
venv=$build/python-tests

can() { "$1" -c "$needs" >/dev/null 2>&1; }

python=$venv/bin/python
if ! can "$python"; then
    # shellcheck disable=SC2086
    python3 -m venv "$venv" >"$venv.log" 2>&1 &&
        "$python" -m pip install --quiet --disable-pip-version-check $packages >>"$venv.log" 2>&1 || true
fi
if ! can "$python"; then
    python=python3
    if ! can "$python"; then
        echo "skipped: there is no python3 of 3.10 or later with $packages ($venv.log)"
        exit 77
    fi
fi
export PYTHONPATH="$root/python" PYTHONDONTWRITEBYTECODE=1
export RINGATTN_LIBRARY="$build/libringattn.so" RINGATTN_COMMAND="$build/ringattn"
exec "$python" -m pytest -q -p no:cacheprovider "$@" "$root/tests/python"
