set(flags -mamx-tile -mamx-bf16)
set(needs __x86_64__ __linux__ __AMX_TILE__ __AMX_BF16__)
