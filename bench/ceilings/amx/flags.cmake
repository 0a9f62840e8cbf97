# SPDX-License-Identifier: Apache-2.0
set(flags -mamx-tile -mamx-bf16)
set(needs __x86_64__ __linux__)
set(calls "_tile_dpbf16ps(0, 1, 2)") # compilers disagree about the names of AMX's macros
