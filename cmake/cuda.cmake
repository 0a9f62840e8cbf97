# SPDX-License-Identifier: Apache-2.0
# The plug-in for GPUs of NVIDIA: a module that nothing links to. -DRINGATTN_CUDA=OFF leaves it out,
# -DCMAKE_CUDA_COMPILER=/path/to/nvcc chooses a toolkit.
#
# Kernels of a folder are compiled for the GPUs they are written for. Architectures older than those
# named here run what is kept as PTX, which their driver compiles when the module is opened.

option(RINGATTN_CUDA "Build the plug-in for CUDA where there is a toolkit" ${PROJECT_IS_TOP_LEVEL})
set(RINGATTN_CUDA_SIMT 75-virtual 80-real 90-real CACHE STRING "Architectures of the kernels for any GPU")
set(RINGATTN_CUDA_MMA 80 90-real CACHE STRING "Architectures of the kernels for tensor cores")
mark_as_advanced(RINGATTN_CUDA_SIMT RINGATTN_CUDA_MMA)

if(RINGATTN_CUDA AND NOT RINGATTN_SANITIZE) # the emulation of tests/cuda is what sanitizers see
    include(CheckLanguage)
    check_language(CUDA)
endif()

# ringattn_cuda_objects(NAME ARCHITECTURES SOURCES...): kernels that are compiled alike.
function(ringattn_cuda_objects name architectures)
    add_library(${name} OBJECT ${ARGN})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    set_target_properties(${name} PROPERTIES
        CUDA_ARCHITECTURES "${architectures}" CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON
        POSITION_INDEPENDENT_CODE ON CUDA_VISIBILITY_PRESET hidden)
endfunction()

if(RINGATTN_CUDA AND CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    file(GLOB cuda_sources CONFIGURE_DEPENDS src/backend/cuda/*.c src/backend/cuda/simt/*.c)
    file(GLOB cuda_any CONFIGURE_DEPENDS src/backend/cuda/*.cu src/backend/cuda/simt/*.cu)
    file(GLOB cuda_mma CONFIGURE_DEPENDS src/backend/cuda/mma/*.cu)
    ringattn_cuda_objects(ringattn_cuda_any "${RINGATTN_CUDA_SIMT}" ${cuda_any})
    ringattn_cuda_objects(ringattn_cuda_mma "${RINGATTN_CUDA_MMA}" ${cuda_mma})
    if(RINGATTN_CUDA_MMA STREQUAL "90-real") # shapes for GPUs with less shared memory are left out
        target_compile_definitions(ringattn_cuda_mma PRIVATE RA__MMA_LARGE_ONLY=1)
    endif()
    set(plugins ringattn_cuda)
    add_library(ringattn_cuda MODULE ${cuda_sources})
    # Kernels for Hopper alone. One that spills registers or whose wgmma is serialised is an error.
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.5)
        file(GLOB cuda_sm90 CONFIGURE_DEPENDS src/backend/cuda/sm90/*.cu)
        file(GLOB cuda_sm90_host CONFIGURE_DEPENDS src/backend/cuda/sm90/*.c)
        ringattn_cuda_objects(ringattn_cuda_sm90 90a-real ${cuda_sm90})
        target_compile_options(ringattn_cuda_sm90 PRIVATE "SHELL:-Xptxas -warn-spills,-Werror")
        set_target_properties(ringattn_cuda_sm90 PROPERTIES
            CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/wgmma.sh)
        # The same in racecheck/, for racecheck of compute-sanitizer: every lane of a warp arrives.
        ringattn_cuda_objects(ringattn_cuda_sm90_racecheck 90a-real ${cuda_sm90})
        target_compile_definitions(ringattn_cuda_sm90_racecheck PRIVATE RA__SM90_EVERY_LANE=1)
        add_library(ringattn_cuda_racecheck MODULE ${cuda_sources})
        set_target_properties(ringattn_cuda_sm90_racecheck ringattn_cuda_racecheck PROPERTIES EXCLUDE_FROM_ALL ON)
        set_target_properties(ringattn_cuda_racecheck PROPERTIES OUTPUT_NAME ringattn_cuda
            LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/racecheck)
        list(APPEND plugins ringattn_cuda_racecheck)
        foreach(kind "" _racecheck)
            target_sources(ringattn_cuda${kind} PRIVATE ${cuda_sm90_host} $<TARGET_OBJECTS:ringattn_cuda_sm90${kind}>)
            target_compile_definitions(ringattn_cuda${kind} PRIVATE RA__HAVE_SM90=1)
        endforeach()
    else()
        add_custom_target(ringattn_cuda_racecheck) # its kernels are those of sm90
    endif()
    foreach(plugin IN LISTS plugins)
        target_sources(${plugin} PRIVATE $<TARGET_OBJECTS:ringattn_cuda_any> $<TARGET_OBJECTS:ringattn_cuda_mma>)
        target_include_directories(${plugin} PRIVATE ${PROJECT_SOURCE_DIR}/include)
        target_link_libraries(${plugin} PRIVATE ringattn_internal Threads::Threads CUDA::cudart_static)
        ringattn_flags(${plugin})
        ringattn_export_only_public(${plugin})
        set_target_properties(${plugin} PROPERTIES C_VISIBILITY_PRESET hidden LINKER_LANGUAGE C)
        target_link_libraries(${plugin} PRIVATE stdc++)
    endforeach()
    ringattn_report(TRUE "CUDA ${CUDAToolkit_VERSION}: the device cuda (${CMAKE_CUDA_COMPILER})")
else()
    ringattn_report(FALSE "CUDA: the device cuda is NOT BUILT (nvcc of a CUDA toolkit builds it)")
endif()

# What the command does on a GPU beside attention: synthetic data, digests and ceilings.
if(TARGET ringattn_cuda AND RINGATTN_BUILD_CLI)
    set(maker ${PROJECT_SOURCE_DIR}/harness/device/cuda)
    ringattn_cuda_objects(ringattn_cuda_ceiling_mma "${RINGATTN_CUDA_MMA}" ${maker}/ceiling_mma.cu)
    add_library(ringattn_cuda_maker MODULE ${maker}/maker.cu ${maker}/ceilings.cu
        $<TARGET_OBJECTS:ringattn_cuda_ceiling_mma>)
    set(maker_parts ringattn_cuda_maker ringattn_cuda_ceiling_mma)
    if(TARGET ringattn_cuda_sm90)
        ringattn_cuda_objects(ringattn_cuda_ceiling_wgmma 90a-real ${maker}/ceiling_wgmma.cu)
        target_sources(ringattn_cuda_maker PRIVATE $<TARGET_OBJECTS:ringattn_cuda_ceiling_wgmma>)
        target_compile_definitions(ringattn_cuda_maker PRIVATE MAKER_HAVE_WGMMA=1)
        list(APPEND maker_parts ringattn_cuda_ceiling_wgmma)
    endif()
    foreach(part IN LISTS maker_parts)
        target_include_directories(${part} PRIVATE ${PROJECT_SOURCE_DIR})
    endforeach()
    target_link_libraries(ringattn_cuda_maker PRIVATE CUDA::cudart_static Threads::Threads)
    set_target_properties(ringattn_cuda_maker PROPERTIES
        CUDA_ARCHITECTURES "${RINGATTN_CUDA_SIMT}" CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON
        CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static)
endif()

# What bench/gpu/table.py calls.
if(TARGET ringattn_cuda AND RINGATTN_BUILD_BENCH)
    add_library(ringattn_gpu_bench SHARED EXCLUDE_FROM_ALL bench/gpu/shim.c)
    target_link_libraries(ringattn_gpu_bench PRIVATE ringattn_shared)
    ringattn_flags(ringattn_gpu_bench)
    set_target_properties(ringattn_gpu_bench PROPERTIES C_VISIBILITY_PRESET hidden)
endif()

# What tools/gpu-check runs: faults of a real GPU.
if(TARGET ringattn_cuda)
    add_executable(ringattn_gpu_faults EXCLUDE_FROM_ALL tests/cuda/device_faults.c)
    target_link_libraries(ringattn_gpu_faults PRIVATE ringattn_shared Threads::Threads CUDA::cudart_static)
    ringattn_flags(ringattn_gpu_faults)
endif()
