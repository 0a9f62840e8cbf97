#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails where the version of the header is not the one that README, CITATION.cff and the newest release of
# CHANGELOG name, or where a tag of git has no heading in CHANGELOG.
#
#   usage: check_version.sh [ROOT]        checks a tree (default: the one this script lies in)
set -eu
cd "${1:-$(dirname "$0")/..}"
number() { sed -n "s/^#define RA_VERSION_$1 \([0-9]*\)$/\1/p" include/ringattn.h; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)
status=0

# expect WHERE WHAT
expect()
{
    [ "$2" = "$version" ] && return
    echo "$1 says version ${2:-(none)}, include/ringattn.h $version"
    status=1
}
expect README.md "$(sed -n 's/^Version \([0-9.]*[0-9]\)\..*/\1/p' README.md)"
expect CITATION.cff "$(sed -n 's/^version: \(.*\)/\1/p' CITATION.cff)"
expect CHANGELOG.md "$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)"
for tag in $(git tag --list 'v[0-9]*' 2>/dev/null); do
    grep -q "^## ${tag#v}\b" CHANGELOG.md || { echo "CHANGELOG.md has no heading for the tag $tag"; status=1; }
done
exit $status
