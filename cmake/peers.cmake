# SPDX-License-Identifier: Apache-2.0
# bench/peers: ringattn and rivals as programs that run interleaved (bench/peers/compare). `ours` is always
# built; a rival where its library is found, by itself or where tools/install-deps peers put it.

set(peers ${PROJECT_SOURCE_DIR}/bench/peers)
add_library(ringattn_peer STATIC ${peers}/peer.c)
target_compile_definitions(ringattn_peer PRIVATE _GNU_SOURCE)
target_include_directories(ringattn_peer PUBLIC ${peers})
ringattn_flags(ringattn_peer)

# ringattn_peer_program(NAME LIBRARIES...): the program NAME from NAME.c.
function(ringattn_peer_program name)
    add_executable(peer_${name} ${peers}/${name}.c)
    target_link_libraries(peer_${name} PRIVATE ${ARGN} ${system_libraries})
    ringattn_flags(peer_${name})
    set_target_properties(peer_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench/peers)
    set_property(GLOBAL APPEND PROPERTY RINGATTN_PEERS peer_${name})
endfunction()

# ringattn_rival(NAME HEADER LIBRARIES PREFIX TEXT): the same where header and libraries are found.
function(ringattn_rival name header libraries prefix text)
    find_path(RINGATTN_${name}_INCLUDE ${header} HINTS ${prefix}/include)
    mark_as_advanced(RINGATTN_${name}_INCLUDE)
    set(found ${RINGATTN_${name}_INCLUDE})
    set(paths "")
    foreach(library IN LISTS libraries)
        find_library(RINGATTN_${name}_${library} ${library} HINTS ${prefix}/lib)
        mark_as_advanced(RINGATTN_${name}_${library})
        list(APPEND paths ${RINGATTN_${name}_${library}})
        if(NOT RINGATTN_${name}_${library})
            set(found FALSE)
        endif()
    endforeach()
    ringattn_report("${found}" "${text}")
    if(found)
        ringattn_peer_program(${name} ringattn_peer ${paths})
        target_include_directories(peer_${name} SYSTEM PRIVATE ${RINGATTN_${name}_INCLUDE})
    endif()
endfunction()

ringattn_peer_program(tensors)
ringattn_peer_program(ours ringattn_peer ringattn_static)

ringattn_rival(naive cblas.h openblas "" "OpenBLAS: a rival of bench/peers")
if(TARGET peer_naive)
    # Its softmax is plain C, which the compiler is to vectorise for this machine.
    target_compile_options(peer_naive PRIVATE -O3 -march=native -fopenmp-simd)
endif()

ringattn_rival(ggml ggml-cpu.h "ggml-base;ggml-cpu" ${PROJECT_BINARY_DIR}/peers-ggml
    "ggml: a rival of bench/peers")

set(onednn_prefix $ENV{ONEDNN_DIR})
if(NOT onednn_prefix)
    set(onednn_prefix ${PROJECT_BINARY_DIR}/peers-venv)
endif()
ringattn_rival(onednn oneapi/dnnl/dnnl_graph.h dnnl "${onednn_prefix}" "oneDNN 3.x: a rival of bench/peers")
if(TARGET peer_onednn)
    # What the library itself needs lies beside it, where only an RPATH of the old kind is searched for it.
    target_compile_definitions(peer_onednn PRIVATE _GNU_SOURCE)
    target_link_libraries(peer_onednn PRIVATE ${CMAKE_DL_LIBS})
    target_link_options(peer_onednn PRIVATE -Wl,--disable-new-dtags -Wl,--allow-shlib-undefined)
endif()

get_property(peer_targets GLOBAL PROPERTY RINGATTN_PEERS)
add_custom_target(peers DEPENDS ${peer_targets})
