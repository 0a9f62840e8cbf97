# SPDX-License-Identifier: Apache-2.0
# The suites of the verb `bench`, and the ceilings they measure kernels against. bench/ceilings has one
# folder for each instruction set, as in folders.cmake; BENCH_HAVE_<FOLDER> is how ceiling.list knows
# its rows.

ringattn_folders(RINGATTN_CEILING ${PROJECT_SOURCE_DIR}/bench/ceilings BENCH_HAVE_ "ceiling")

# Rows of results name the commit they were measured with.
set(generated ${PROJECT_BINARY_DIR}/generated)
add_custom_target(ringattn_commit BYPRODUCTS ${generated}/commit.c
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DTO=${generated}/commit.c
            -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake)

# Files that the program carries.
set(assets style=bench/report/page.css script=bench/report/page.js rivals=bench/rivals/rivals.py)
string(REGEX REPLACE "[a-z]+=" "${PROJECT_SOURCE_DIR}/" asset_files "${assets}")
add_custom_command(OUTPUT ${generated}/assets.c
    DEPENDS ${asset_files} ${PROJECT_SOURCE_DIR}/cmake/assets.cmake
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} "-DASSETS=${assets}" -DTO=${generated}/assets.c
            -P ${PROJECT_SOURCE_DIR}/cmake/assets.cmake VERBATIM)

file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.c bench/ceilings/*.c bench/suites/*.c bench/report/*.c
    bench/rivals/*.c)
add_library(ringattn_bench STATIC ${bench_sources} ${RINGATTN_CEILING_SOURCES}
    ${generated}/commit.c ${generated}/assets.c)
add_dependencies(ringattn_bench ringattn_commit)
target_include_directories(ringattn_bench PRIVATE ${PROJECT_SOURCE_DIR}/bench)
target_compile_definitions(ringattn_bench PRIVATE _GNU_SOURCE ${RINGATTN_CEILING_DEFINITIONS})
target_link_libraries(ringattn_bench PUBLIC ringattn_harness)
ringattn_flags(ringattn_bench)
# The baseline multiplies and adds in one instruction, as GEMM libraries do.
set_source_files_properties(bench/standard.c PROPERTIES COMPILE_OPTIONS -ffp-contract=fast)

# What `make perf` counts; bench/perf/run.sh drives it.
add_library(ringattn_step STATIC bench/perf/step.c)
target_compile_definitions(ringattn_step PRIVATE _GNU_SOURCE)
ringattn_flags(ringattn_step)
add_executable(ringattn_perf bench/perf/count.c bench/perf/jobs.c)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
string(STRIP "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${build_type}} ${RINGATTN_SANITIZE}" perf_flags)
target_compile_definitions(ringattn_perf PRIVATE _GNU_SOURCE
    PERF_COMPILER="${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION} ${perf_flags}")
target_link_libraries(ringattn_perf PRIVATE ringattn_harness ringattn_step)
ringattn_flags(ringattn_perf)
