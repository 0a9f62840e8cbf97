# The verb `bench`: suites, and the ceilings they measure kernels against. bench/ceilings has one
# folder for each instruction set, as in folders.cmake; BENCH_HAVE_<FOLDER> is how ceiling.list knows
# its rows.

ringattn_folders(RINGATTN_CEILING ${PROJECT_SOURCE_DIR}/bench/ceilings BENCH_HAVE_ "ceiling")

file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.c bench/ceilings/*.c)
add_library(ringattn_bench STATIC ${bench_sources} ${RINGATTN_CEILING_SOURCES})
target_include_directories(ringattn_bench PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/bench)
target_compile_definitions(ringattn_bench PRIVATE _GNU_SOURCE ${RINGATTN_CEILING_DEFINITIONS})
target_link_libraries(ringattn_bench PUBLIC ringattn_cli)
ringattn_flags(ringattn_bench)
