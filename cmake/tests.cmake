# SPDX-License-Identifier: Apache-2.0
# The tests, for ctest.
#
#   tests/unit, ring, fault         each *.c is a cmocka program; *_long.c runs in `make check` only
#   tests/support                   helpers, linked to all of these
#   tests/cli/cases                 the command, from outside; each *.sh is a test that run.sh runs
#   tests/bits                      records bits of the conformance grid, compares versions
#   tests/plan/forecast.sh          what plan predicts against what happens
#   tests/bench/peers.sh            the comparison with rivals, from outside
#   tests/bench/rivals.sh           turns with PyTorch, with a Python that pretends to have it
#   tests/fuzz                      what reads texts and files, with any bytes
#   tests/mpi                       processes, started by a launcher of MPI
#   tests/cuda                      the plug-in for GPUs on an emulated one
#   tests/cmake                     compilers, switches, ringattn inside another project
#   tests/abi                       header, exported names, installed packages
#   tests/tools                     scripts of tools/
#   examples                        each program must run and exit 0
#
# Labels: the folder's name, and `long`. With RINGATTN_LONG=1 in the environment programs may enlarge
# their grids. The time limit of programs is ctest's --timeout; scripts carry their own.

find_path(CMOCKA_INCLUDE_DIR cmocka.h)
find_library(CMOCKA_LIBRARY cmocka)
mark_as_advanced(CMOCKA_INCLUDE_DIR CMOCKA_LIBRARY)
if(CMOCKA_INCLUDE_DIR AND CMOCKA_LIBRARY)
    set(have_cmocka TRUE)
    ringattn_report(TRUE "cmocka: unit, ring and fault tests")
else()
    set(have_cmocka FALSE)
    ringattn_report(FALSE "cmocka: unit, ring and fault tests are NOT BUILT (tools/install-deps test brings it)")
endif()

# ---- Programs ------------------------------------------------------------------------------------

# What a test program is compiled with: the insides of the library, the harness and the benchmarks.
add_library(ringattn_test INTERFACE)
target_include_directories(ringattn_test INTERFACE ${PROJECT_SOURCE_DIR}/tests)
target_compile_options(ringattn_test INTERFACE -UNDEBUG)
target_link_libraries(ringattn_test INTERFACE ringattn_bench ringattn_step ringattn_internal ringattn_static)
if(have_cmocka)
    target_include_directories(ringattn_test SYSTEM INTERFACE ${CMOCKA_INCLUDE_DIR})
    target_link_libraries(ringattn_test INTERFACE ${CMOCKA_LIBRARY})
endif()

# The amx kernel once more, on tiles in plain C.
if("RA__HAVE_AMX=1" IN_LIST RINGATTN_KERNEL_DEFINITIONS)
    include(${PROJECT_SOURCE_DIR}/src/backend/cpu/kernel/amx/flags.cmake)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/support/amx_emulated.c
        PROPERTIES COMPILE_OPTIONS "${flags}")
endif()

file(GLOB support_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.c)
if(support_sources AND have_cmocka)
    add_library(ringattn_test_support STATIC ${support_sources})
    target_link_libraries(ringattn_test_support PUBLIC ringattn_test)
    ringattn_flags(ringattn_test_support)
    set(test_libraries ringattn_test_support)
else()
    set(test_libraries ringattn_test)
endif()

# ringattn_test_program(KIND SOURCE): the test kind/name, from name.c or test_name.c. Without cmocka it
# is listed as disabled.
function(ringattn_test_program kind source)
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" name ${name})
    set(target test_${kind}_${name})
    set(labels ${kind})
    if(name MATCHES "_long$")
        list(APPEND labels long)
    endif()
    if(have_cmocka)
        add_executable(${target} ${source})
        target_link_libraries(${target} PRIVATE ${test_libraries})
        ringattn_flags(${target})
        set_target_properties(${target} PROPERTIES
            OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${kind})
        add_dependencies(tests_${kind} ${target})
        add_test(NAME ${kind}/${name} COMMAND ${target})
    else()
        add_test(NAME ${kind}/${name} COMMAND ${CMAKE_COMMAND} -E false)
        set_tests_properties(${kind}/${name} PROPERTIES DISABLED TRUE)
    endif()
    set_tests_properties(${kind}/${name} PROPERTIES LABELS "${labels}")
    if(kind STREQUAL "fault")
        set_tests_properties(${kind}/${name} PROPERTIES RUN_SERIAL TRUE) # they measure time
    endif()
endfunction()

# tests_KIND builds the programs of a folder.
foreach(kind unit ring fault)
    add_custom_target(tests_${kind})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${kind}/*.c)
    foreach(source IN LISTS sources)
        ringattn_test_program(${kind} ${source})
    endforeach()
endforeach()

# Programs on the Hopper kernels: what the host makes of them is plain C, and needs no GPU.
add_custom_target(tests_cuda)
ringattn_test_program(cuda ${PROJECT_SOURCE_DIR}/tests/cuda/test_sm90_bridge.c)
ringattn_test_program(cuda ${PROJECT_SOURCE_DIR}/tests/cuda/test_sm90_schedule.c)
if(TARGET test_cuda_sm90_bridge)
    set(sm90 ${PROJECT_SOURCE_DIR}/src/backend/cuda/sm90)
    file(GLOB sources CONFIGURE_DEPENDS ${sm90}/*.c)
    target_sources(test_cuda_sm90_bridge PRIVATE ${sources})
    target_sources(test_cuda_sm90_schedule PRIVATE ${sm90}/schedule.c ${sm90}/order.c)
endif()

if(TARGET test_unit_meet) # it is of a plug-in
    target_sources(test_unit_meet PRIVATE ${PROJECT_SOURCE_DIR}/src/transport/nccl/meet.c)
endif()
if(TARGET test_unit_engine)
    target_link_options(test_unit_engine PRIVATE LINKER:--wrap=ra_plan_create) # it counts plans
endif()

# ---- Scripts -------------------------------------------------------------------------------------

# ringattn_test_script(NAME SECONDS COMMAND...). A script that lacks a tool exits with 77: skipped.
# Sanitizers take several times as long, and so does the search for races.
function(ringattn_test_script name seconds)
    string(REGEX REPLACE "/.*" "" label ${name})
    if(RINGATTN_SANITIZE OR RINGATTN_EMULATED_RACES)
        math(EXPR seconds "3 * ${seconds}")
    endif()
    add_test(NAME ${name} COMMAND ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${seconds} SKIP_RETURN_CODE 77)
endfunction()

# The Python package on this build's library. Its tests start threads and processes of their own.
if(NOT RINGATTN_SANITIZE) # Python itself is not built for sanitizers
    ringattn_test_script(python/tests 300 sh ${PROJECT_SOURCE_DIR}/tests/python/run.sh ${PROJECT_BINARY_DIR})
    ringattn_test_script(python/torch 900 sh ${PROJECT_SOURCE_DIR}/tests/torch/run.sh ${PROJECT_BINARY_DIR})
endif()

set(tests ${PROJECT_SOURCE_DIR}/tests)
file(GLOB cli_cases CONFIGURE_DEPENDS ${tests}/cli/cases/*.sh)
foreach(case IN LISTS cli_cases)
    get_filename_component(name ${case} NAME_WE)
    ringattn_test_script(cli/${name} 600 sh ${tests}/cli/run.sh ${PROJECT_BINARY_DIR} ${name})
    if(name STREQUAL "signals")
        set_tests_properties(cli/${name} PROPERTIES RUN_SERIAL TRUE) # it measures time
    endif()
endforeach()
add_executable(test_bits ${tests}/bits/bits.c)
target_compile_definitions(test_bits PRIVATE _GNU_SOURCE)
target_link_libraries(test_bits PRIVATE ringattn_harness)
ringattn_flags(test_bits)
set_target_properties(test_bits PROPERTIES
    OUTPUT_NAME bits RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bits)
ringattn_test_script(bits/run 300 sh ${tests}/bits/run.sh ${PROJECT_BINARY_DIR})
foreach(name IN LISTS RINGATTN_EXAMPLE_NAMES)
    ringattn_test_script(examples/${name} 60 example_${name})
endforeach()
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
    add_subdirectory(tests/cuda)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/tests-fuzz.cmake)
if(NOT RINGATTN_SANITIZE) # it measures memory and time
    ringattn_test_script(plan/forecast 600 sh ${tests}/plan/forecast.sh ${PROJECT_BINARY_DIR})
    set_tests_properties(plan/forecast PROPERTIES RUN_SERIAL TRUE)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/tests-mpi.cmake)

if(TARGET peers)
    ringattn_test_script(bench/peers 120 sh ${tests}/bench/peers.sh ${PROJECT_BINARY_DIR})
endif()

ringattn_test_script(bench/rivals 200 sh ${tests}/bench/rivals.sh ${PROJECT_BINARY_DIR})

# These look at sources and at what users link against; sanitizers have nothing to add.
if(NOT RINGATTN_SANITIZE)
    set(check_layers ${PROJECT_SOURCE_DIR}/tools/check_layers.sh)
    ringattn_test_script(layers/includes 30 sh ${check_layers})
    ringattn_test_script(layers/self-test 120 sh ${check_layers} --self-test)
    ringattn_test_script(layers/license 60 sh ${PROJECT_SOURCE_DIR}/tools/check_license.sh)
    ringattn_test_script(layers/version 30 sh ${PROJECT_SOURCE_DIR}/tools/check_version.sh)
    ringattn_test_script(layers/width 30 sh ${PROJECT_SOURCE_DIR}/tools/check_width.sh)
    ringattn_test_script(layers/docs 60 sh ${PROJECT_SOURCE_DIR}/tools/check_docs.sh)

    find_program(RINGATTN_CXX NAMES $ENV{CXX} c++ g++ clang++)
    find_program(RINGATTN_PKG_CONFIG NAMES pkg-config pkgconf)
    mark_as_advanced(RINGATTN_CXX RINGATTN_PKG_CONFIG)
    ringattn_report("${RINGATTN_CXX}" "C++ compiler: the header as C++11")
    ringattn_report("${RINGATTN_PKG_CONFIG}" "pkg-config: the installed .pc file")

    ringattn_test_script(cmake/compilers 120 sh ${tests}/cmake/compilers.sh ${PROJECT_BINARY_DIR} ${CMAKE_COMMAND})
    foreach(name switches subproject)
        ringattn_test_script(cmake/${name} 900 sh ${tests}/cmake/${name}.sh
            ${PROJECT_BINARY_DIR} ${CMAKE_COMMAND} ${CMAKE_C_COMPILER})
    endforeach()
    ringattn_test_script(abi/header 60 sh ${tests}/abi/header.sh ${CMAKE_C_COMPILER} ${RINGATTN_CXX})
    ringattn_test_script(abi/symbols 60 sh ${tests}/abi/symbols.sh $<TARGET_FILE:ringattn_shared>)
    ringattn_test_script(abi/consumers 180
        sh ${tests}/abi/consumers.sh ${PROJECT_BINARY_DIR} ${CMAKE_COMMAND} ${CMAKE_C_COMPILER})
    ringattn_test_script(docs/api 30 sh ${PROJECT_SOURCE_DIR}/tools/make-api-doc --check)
    ringattn_test_script(tools/sum-tests 30 sh ${tests}/tools/sum-tests.sh)
    ringattn_test_script(adding/run 900 sh ${tests}/adding/run.sh)
    ringattn_test_script(mutants/list 60 sh ${tests}/mutants/run.sh -n)
    ringattn_test_script(mutants/run 5400 sh ${tests}/mutants/run.sh)
    set_tests_properties(mutants/run PROPERTIES LABELS "mutants;long" RUN_SERIAL TRUE)
endif()

# The longest ones first, so that no core is idle at the end; seconds, roughly. Tests of tests/cuda are
# of another folder, and say it there.
foreach(test unit/thin:90 unit/numbers:50 adding/run:80 unit/plan:20 unit/exchange:20 unit/terms_shapes:20
        ring/truth:30 ring/grid:25 ring/decode:20 cli/verify:25 cli/bench:20 fault/stall:20)
    string(REPLACE ":" ";" parts ${test})
    list(GET parts 0 name)
    list(GET parts 1 seconds)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES COST ${seconds})
    endif()
endforeach()
