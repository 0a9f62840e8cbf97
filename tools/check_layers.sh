#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails on an #include that goes up or sideways.
#
#   usage: check_layers.sh [ROOT]        checks a tree (default: the one of this script)
#          check_layers.sh --self-test   checks that good includes pass and each kind of bad one does not
#
# A file of src/ names others as "layer/file.h" (seen from src/), or by bare name in its own folder;
# the public headers are open to all. A folder inside src/transport is a plug-in with its own rules. The
# insides of a backend are its own, and its kernels know only core.
# Outside src/ only the public headers are seen: cli/ works with bench/ and harness/, bench/ with
# harness/, examples/ with nothing; bench/lab builds GPU kernels from their sources. A file of harness/ names others as "harness/folder/file.h", and
# the folders have an order of their own. Tests may look everywhere.
set -eu

# The rules: a layer, and the layers it may include besides itself.
rules='
core
pattern     core
plan        pattern core
backend     core
transport   core
exec        plan pattern backend transport core
api         exec plan pattern backend transport core
harness/base
harness/text     base
harness/files    text base
harness/problem  files text base
harness/data     problem files text base
harness/oracle   data problem files text base
harness/options  problem text base
harness/world    options problem text base
harness/device   data problem files text base
harness/run      device world options data problem files text base
harness/check    run world oracle data problem text base
harness/grid     base
harness/report   check run world options data problem files text base
'

check()
{
    cd "$1"
    files=$(find src harness cli bench examples -type f \
        \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.list' \) 2>/dev/null | sort)
    [ -n "$files" ] || { echo "check_layers: no sources in $1" >&2; return 2; }
    # shellcheck disable=SC2086
    awk -v rules="$rules" '
    BEGIN {
        count = split(rules, line, "\n")
        for (i = 1; i <= count; i++) {
            words = split(line[i], word, " ")
            if (!words) continue
            layer = word[1]
            may[layer] = line[i]
            sub(/^harness\//, "", word[1])
            for (j = 1; j <= words; j++) allowed[layer, word[j]] = 1
        }
    }
    function exists(path,    ignored, found) {
        found = (getline ignored < path) >= 0
        close(path)
        return found
    }
    function refuse(rule) {
        printf "%s:%d: #include %s: %s\n", FILENAME, FNR, shown, rule
        bad++
    }
    function check_inside(    layer, target) {
        layer = part[2]
        if (!(layer in may)) { refuse("src/" layer " is not a layer"); return }
        if (name !~ /\//) {
            if (!exists(folder "/" name)) refuse("neither a public header nor in " folder)
            return
        }
        target = name
        sub(/\/.*/, "", target)
        if (!((layer, target) in allowed)) refuse("src/" layer " may include only: " may[layer])
        else if (folder ~ /^src\/backend\/[^\/]+\/kernel/ && target != "core" &&
                 name !~ /^backend\/[^\/]+\/kernel\//)
            refuse("a kernel may include only: kernel core")
        else if (match(name, /^backend\/[^\/]+\//) &&
                 index(folder "/", "src/" substr(name, 1, RLENGTH)) != 1)
            refuse("the insides of a backend are its own")
        else if (match(name, /^transport\/[^\/]+\//) &&
                 index(folder "/", "src/" substr(name, 1, RLENGTH)) != 1)
            refuse("a plug-in is opened at run time and its headers are its own")
    }
    function check_harness(    layer, named) {
        layer = part[1] "/" part[2]
        if (!(layer in may)) { refuse(layer " is not a folder of the harness"); return }
        if (name !~ /\// && exists(folder "/" name)) return
        split(name, named, "/")
        if (named[1] != "harness" || !exists(name)) refuse("neither a public header nor in harness/")
        else if (!((layer, named[2]) in allowed)) refuse("may include only: " may[layer])
    }
    function check_outside() {
        if (exists(folder "/" name) || exists(part[1] "/" name)) return
        if (part[1] ~ /^(cli|bench)$/ && name ~ /^harness\// && exists(name)) return
        if (folder == "bench/lab" && name ~ /^backend\/cuda\// && exists("src/" name)) return
        if (part[1] == "cli" && name ~ /^bench\// && exists(name)) return
        refuse(part[1] "/ may include only the public headers, its own" \
               (part[1] == "examples" ? "" : part[1] == "bench" ? ", and harness/" : ", bench/ and harness/"))
    }
    FNR == 1 {
        files++
        split(FILENAME, part, "/")
        folder = FILENAME
        sub(/\/[^\/]*$/, "", folder)
    }
    /^[ \t]*#[ \t]*include/ {
        includes++
        shown = $0
        sub(/^[ \t]*#[ \t]*include[ \t]*/, "", shown)
        if (shown !~ /^["<]/) { refuse("a computed include hides its layer"); next }
        name = substr(shown, 2)
        sub(/[">].*/, "", name)
        shown = substr(shown, 1, length(name) + 2)
        if (name ~ /\.\./) { refuse("name it from the root of src/, without .."); next }
        if (name !~ /\// && exists("include/" name)) next
        if (shown ~ /^</ && !exists("src/" name)) next   # the system
        if (part[1] == "src") check_inside()
        else if (part[1] == "harness") check_harness()
        else check_outside()
    }
    END {
        if (bad) exit 1
        printf "check_layers: %d includes in %d files keep to their layers\n", includes, files
    }' $files
}

# try LABEL EXPECTED FILE INCLUDE: a tree with this one include passes (0) or is refused (1).
try()
{
    rm -rf "$tree"
    for layer in core pattern plan backend transport exec api; do
        mkdir -p "$tree/src/$layer"
        echo "/* nothing */" >"$tree/src/$layer/$layer.h"
    done
    mkdir -p "$tree/include" "$tree/cli" "$tree/bench" "$tree/examples" "$tree/src/backend/cpu/kernel/isa" \
        "$tree/src/backend/cpu" "$tree/src/backend/cuda" "$tree/src/device" "$tree/bench/lab" \
        "$tree/src/transport/plug" "$tree/harness/base" "$tree/harness/text" "$tree/harness/run"
    for header in include/ringattn.h cli/cli.h bench/bench.h harness/base/base.h harness/run/run.h \
        src/backend/cuda/gpu.h; do
        echo "/* nothing */" >"$tree/$header"
    done
    printf '/* one */\n%s\n' "#include $3" >"$tree/$2"
    status=0
    said=$(check "$tree" 2>&1) || status=$?
    if [ "$status" -ne "$1" ]; then
        echo "self-test: $2 with $3: status $status, expected $1"
        echo "$said"
        failed=$((failed + 1))
    elif [ "$status" -eq 1 ]; then
        case $said in
        "$2:2: "*) ;;
        *) echo "self-test: $2 with $3: the message names no file and line: $said"; failed=$((failed + 1)) ;;
        esac
    fi
    tried=$((tried + 1))
}

self_test()
{
    tree=$(mktemp -d)
    trap 'rm -rf "$tree"' EXIT
    failed=0 tried=0
    try 0 src/core/x.c '"ringattn.h"'
    try 0 src/core/x.c '<stdio.h>'
    try 0 src/core/x.c '<sys/types.h>'
    try 0 src/plan/x.c '"pattern/pattern.h"'
    try 0 src/plan/x.c '"plan.h"'
    try 0 src/backend/cpu/kernel/isa/x.c '"backend/cpu/kernel/kernel.h"'
    try 0 src/backend/cpu/x.c '"backend/cpu/kernel/kernel.h"'
    try 0 src/backend/cpu/x.c '"backend/backend.h"'
    try 0 src/exec/x.c '"transport/transport.h"'
    try 0 src/exec/x.c '"backend/backend.h"'
    try 0 src/transport/plug/x.c '"transport/transport.h"'
    try 0 src/transport/plug/x.c '"transport/plug/x.h"'
    try 0 src/api/x.c '"exec/exec.h"'
    try 0 cli/x.c '"cli.h"'
    try 0 cli/x.c '"harness/run/run.h"'
    try 0 cli/x.c '"bench/bench.h"'
    try 0 bench/x.c '"harness/run/run.h"'
    try 0 bench/lab/x.cu '"backend/cuda/gpu.h"'
    try 0 harness/run/x.c '"run.h"'
    try 0 harness/run/x.c '"harness/base/base.h"'
    try 0 harness/run/x.c '"ringattn.h"'
    try 0 examples/x.c '<ringattn.h>'
    try 1 src/core/x.c '"plan/plan.h"'
    try 1 src/pattern/x.c '"plan/plan.h"'
    try 1 src/plan/x.c '"backend/cpu/kernel/kernel.h"'
    try 1 src/plan/x.h '"exec/exec.h"'
    try 1 src/backend/cpu/kernel/x.c '"transport/transport.h"'
    try 1 src/backend/cpu/kernel/isa/x.c '"pattern/pattern.h"'
    try 1 src/backend/cpu/kernel/isa/x.c '"backend/backend.h"'
    try 1 src/backend/cpu/kernel/isa/x.c '"backend/cpu/cpu.h"'
    try 1 src/api/x.c '"backend/cpu/kernel/kernel.h"'
    try 1 src/backend/x.c '"backend/cpu/cpu.h"'
    try 1 src/backend/cpu/x.c '"plan/plan.h"'
    try 1 src/backend/cpu/x.c '"pattern/pattern.h"'
    try 1 src/backend/cpu/x.c '"transport/transport.h"'
    try 1 src/backend/x.h '"exec/exec.h"'
    try 1 src/plan/x.c '"backend/backend.h"'
    try 1 src/device/x.c '"core/core.h"'
    try 1 src/transport/x.list '"backend/backend.h"'
    try 1 src/transport/x.c '<plan/plan.h>'
    try 1 src/exec/x.c '"api/api.h"'
    try 1 src/exec/x.c '"transport/plug/x.h"'
    try 1 src/transport/x.c '"transport/plug/x.h"'
    try 1 src/transport/plug/x.c '"exec/exec.h"'
    try 1 src/api/x.c '"../../cli/cli.h"'
    try 1 src/api/x.c '"cli/cli.h"'
    try 1 src/api/x.c '"cli.h"'
    try 1 src/core/x.c 'RA__HEADER'
    try 1 cli/x.c '"core/core.h"'
    try 1 bench/x.c '"core/core.h"'
    try 1 bench/x.c '"backend/cuda/gpu.h"'
    try 1 bench/lab/x.cu '"core/core.h"'
    try 1 bench/x.c '"cli.h"'
    try 1 bench/x.c '"cli/cli.h"'
    try 1 harness/text/x.c '"harness/run/run.h"'
    try 1 harness/text/x.c '"base.h"'
    try 1 harness/run/x.c '"base/base.h"'
    try 1 harness/run/x.c '"core/core.h"'
    try 1 harness/run/x.c '"cli/cli.h"'
    try 1 harness/run/x.c '"bench/bench.h"'
    try 1 harness/x.c '"harness/base/base.h"'
    try 1 src/api/x.c '"harness/base/base.h"'
    try 1 examples/x.c '"harness/base/base.h"'
    try 1 examples/x.c '"cli/cli.h"'
    try 1 examples/x.c '"../src/core/core.h"'
    try 1 examples/x.c '<core/core.h>'
    [ "$failed" -eq 0 ] || return 1
    echo "check_layers: self-test: $tried cases as expected"
}

case ${1:-} in
--self-test) self_test ;;
*) check "${1:-$(dirname "$0")/..}" ;;
esac
