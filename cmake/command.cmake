# SPDX-License-Identifier: Apache-2.0
# The command. It carries the library inside, so build/ringattn runs wherever it is copied to. Without
# RINGATTN_BUILD_BENCH it has no verbs `bench` and `report`.

file(GLOB command_sources CONFIGURE_DEPENDS cli/*.c)
if(NOT RINGATTN_BUILD_BENCH)
    list(REMOVE_ITEM command_sources ${PROJECT_SOURCE_DIR}/cli/bench.c ${PROJECT_SOURCE_DIR}/cli/report.c)
endif()
add_executable(ringattn ${command_sources})
target_compile_definitions(ringattn PRIVATE _GNU_SOURCE CLI_HAVE_BENCH=$<BOOL:${RINGATTN_BUILD_BENCH}>)
target_link_libraries(ringattn PRIVATE $<IF:$<BOOL:${RINGATTN_BUILD_BENCH}>,ringattn_bench,ringattn_harness>)
ringattn_flags(ringattn)
