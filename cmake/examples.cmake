# SPDX-License-Identifier: Apache-2.0
# Every examples/*.c is a program that uses the public headers and the shared library, as a user's would.
# examples/mpi.c is built where there is MPI.

file(GLOB example_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
set(RINGATTN_EXAMPLE_NAMES "")
foreach(source IN LISTS example_sources)
    get_filename_component(name ${source} NAME_WE)
    if(name STREQUAL "mpi" AND NOT TARGET ringattn_mpi)
        continue()
    endif()
    add_executable(example_${name} ${source})
    target_link_libraries(example_${name} PRIVATE ringattn_shared ${system_libraries})
    if(name STREQUAL "mpi")
        target_link_libraries(example_${name} PRIVATE MPI::MPI_C)
        add_dependencies(example_${name} ringattn_mpi)
    endif()
    ringattn_flags(example_${name})
    set_target_properties(example_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    list(APPEND RINGATTN_EXAMPLE_NAMES ${name})
endforeach()
