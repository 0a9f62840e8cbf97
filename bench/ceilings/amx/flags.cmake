set(flags -mamx-tile -mamx-bf16)
set(needs __x86_64__ __linux__) # compilers disagree about the names of the macros
