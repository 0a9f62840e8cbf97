# SPDX-License-Identifier: Apache-2.0
# What info prints.

ok info
says "kernel"
says "* ring"
ok info --json
json version cores kernel transport strategy partition pattern order systems
