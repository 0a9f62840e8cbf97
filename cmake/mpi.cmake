# SPDX-License-Identifier: Apache-2.0
# The plug-in for MPI: a module that nothing links to. -DMPI_C_COMPILER=mpicc.mpich chooses another MPI
# than the system's own, -DRINGATTN_MPI=OFF leaves it out.

option(RINGATTN_MPI "Build the plug-in for MPI where there is one" ON)
if(RINGATTN_MPI AND NOT RINGATTN_SANITIZE) # MPI itself is not made for sanitizers
    find_package(MPI 3.1 QUIET COMPONENTS C)
endif()

if(MPI_C_FOUND)
    file(GLOB mpi_sources CONFIGURE_DEPENDS src/transport/mpi/*.c)
    add_library(ringattn_mpi MODULE ${mpi_sources})
    target_include_directories(ringattn_mpi PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(ringattn_mpi PRIVATE ringattn_internal Threads::Threads MPI::MPI_C)
    ringattn_flags(ringattn_mpi)
    ringattn_export_only_public(ringattn_mpi)
    set_target_properties(ringattn_mpi PROPERTIES C_VISIBILITY_PRESET hidden)
    ringattn_report(TRUE "MPI ${MPI_C_VERSION}: the transport mpi (${MPI_C_COMPILER})")
else()
    ringattn_report(FALSE "MPI: the transport mpi is NOT BUILT (openmpi-bin and libopenmpi-dev, or mpich and libmpich-dev, bring it)")
endif()
