# SPDX-License-Identifier: Apache-2.0
# The plug-in for NCCL: a module that nothing links to. -DRINGATTN_NCCL=OFF leaves it out,
# -DNCCL_INCLUDE_DIR=... and -DNCCL_LIBRARY=... choose one.

option(RINGATTN_NCCL "Build the plug-in for NCCL where there is one" ${PROJECT_IS_TOP_LEVEL})
if(RINGATTN_NCCL AND TARGET ringattn_cuda)
    get_filename_component(cuda_root ${CUDAToolkit_BIN_DIR} DIRECTORY)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${cuda_root}/lib)
    mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
endif()

if(RINGATTN_NCCL AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY AND TARGET ringattn_cuda)
    file(GLOB nccl_sources CONFIGURE_DEPENDS src/transport/nccl/*.c)
    add_library(ringattn_nccl MODULE ${nccl_sources})
    target_include_directories(ringattn_nccl PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_include_directories(ringattn_nccl SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
    target_link_libraries(ringattn_nccl PRIVATE
        ringattn_internal Threads::Threads CUDA::cudart_static ${NCCL_LIBRARY})
    ringattn_flags(ringattn_nccl)
    ringattn_export_only_public(ringattn_nccl)
    set_target_properties(ringattn_nccl PROPERTIES C_VISIBILITY_PRESET hidden)
    ringattn_report(TRUE "NCCL: the transport nccl (${NCCL_LIBRARY})")
else()
    ringattn_report(FALSE "NCCL: the transport nccl is NOT BUILT (a CUDA toolkit and libnccl-dev of NVIDIA bring it)")
endif()
