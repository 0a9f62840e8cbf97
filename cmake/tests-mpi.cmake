# SPDX-License-Identifier: Apache-2.0
# Tests of the mpi transport: programs that a launcher starts several of, and scripts that do so.

ringattn_test_script(mpi/plugin 120 sh ${tests}/mpi/plugin.sh ${PROJECT_BINARY_DIR} ${CMAKE_C_COMPILER})
if(NOT TARGET ringattn_mpi)
    return()
endif()

# ringattn_mpi_program(NAME LIBRARIES...): tests/mpi/NAME.c.
function(ringattn_mpi_program name)
    add_executable(test_mpi_${name} ${tests}/mpi/${name}.c)
    target_link_libraries(test_mpi_${name} PRIVATE ${ARGN})
    ringattn_flags(test_mpi_${name})
    set_target_properties(test_mpi_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/mpi)
endfunction()

# Debian has mpicc.mpich beside mpirun.mpich; CMake finds the system's own launcher for both.
set(mpi_launcher ${MPIEXEC_EXECUTABLE})
if(MPI_C_COMPILER MATCHES "mpicc(\\.[a-z]+)$")
    find_program(RINGATTN_MPIRUN mpirun${CMAKE_MATCH_1})
    mark_as_advanced(RINGATTN_MPIRUN)
    set(mpi_launcher ${RINGATTN_MPIRUN})
endif()
ringattn_mpi_program(problems ringattn_static)
foreach(name aware flip halt) # what scripts load before MPI and the C library
    add_library(test_mpi_${name} MODULE ${tests}/mpi/${name}.c)
    target_link_libraries(test_mpi_${name} PRIVATE MPI::MPI_C ${CMAKE_DL_LIBS})
    ringattn_flags(test_mpi_${name})
    set_target_properties(test_mpi_${name} PROPERTIES
        OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/mpi)
endforeach()
foreach(processes 1 2 3 4 8)
    ringattn_test_script(mpi/grid-${processes} 600
        sh ${tests}/mpi/grid.sh ${PROJECT_BINARY_DIR} "${mpi_launcher}" ${processes})
endforeach()
ringattn_test_script(mpi/faults 1800 bash ${tests}/mpi/faults.sh ${PROJECT_BINARY_DIR} "${mpi_launcher}")
ringattn_test_script(mpi/files 120 sh ${tests}/mpi/files.sh ${PROJECT_BINARY_DIR} "${mpi_launcher}")
ringattn_test_script(mpi/trace 120 sh ${tests}/mpi/trace.sh ${PROJECT_BINARY_DIR} "${mpi_launcher}")
ringattn_mpi_program(idle MPI::MPI_C)
ringattn_test_script(mpi/memory 1800 sh ${tests}/mpi/memory.sh ${PROJECT_BINARY_DIR} "${mpi_launcher}")
ringattn_test_script(mpi/hosts 600 bash ${tests}/mpi/hosts.sh ${PROJECT_BINARY_DIR} "${mpi_launcher}")
set(mpi_rows mpi/grid-1 mpi/grid-2 mpi/grid-3 mpi/grid-4 mpi/grid-8 mpi/faults mpi/files mpi/trace mpi/memory mpi/hosts)
if(have_cmocka)
    ringattn_mpi_program(link ${test_libraries})
    ringattn_mpi_program(levels ${test_libraries} MPI::MPI_C)
    ringattn_mpi_program(late ${test_libraries} MPI::MPI_C)
    set_target_properties(test_mpi_late PROPERTIES ENABLE_EXPORTS ON) # its MPI_Test is the plug-in's
    ringattn_test_script(mpi/programs 120
        sh ${tests}/mpi/programs.sh ${PROJECT_BINARY_DIR} "${mpi_launcher}")
    ringattn_test_script(mpi/families 180 sh ${tests}/mpi/families.sh ${PROJECT_BINARY_DIR})
    list(APPEND mpi_rows mpi/programs mpi/families)
endif()
if(TARGET ringattn_cuda_emulated)
    ringattn_test_script(cuda/mpi 300 sh ${tests}/cuda/mpi.sh ${PROJECT_BINARY_DIR} "${mpi_launcher}")
    add_dependencies(tests_cuda ringattn_mpi test_mpi_aware)
    list(APPEND mpi_rows cuda/mpi)
endif()
# They have more processes than there are cores, and some measure time.
set_tests_properties(${mpi_rows} PROPERTIES RUN_SERIAL TRUE)
