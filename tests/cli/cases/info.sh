# SPDX-License-Identifier: Apache-2.0
# What info prints.

ok info
says "device"
says "dtype f32: "
says "kernel on cpu"
says "* ring"
ok info --json
json version cores device devices dtype_auto dtype_why kernel transport strategy partition pattern order systems
