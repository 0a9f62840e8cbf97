# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder share. They set $log, which their commands write, $passed and $failed.

expect() { # expect WHAT COMMAND...
    what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED: $what"
        sed 's/^/    /' "$log" | tail -n 5
    fi
}
