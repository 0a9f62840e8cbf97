# SPDX-License-Identifier: Apache-2.0
# What the Python package holds besides python/ringattn: the component `python`, which pyproject.toml
# installs into the package. One file for the library: wheels have no links.
add_custom_target(ringattn_python)
add_dependencies(ringattn_python ringattn_shared ringattn)
install(FILES $<TARGET_FILE:ringattn_shared> RENAME libringattn.so DESTINATION lib COMPONENT python)
install(TARGETS ringattn RUNTIME DESTINATION bin COMPONENT python)
foreach(target ringattn_cuda ringattn_cuda_maker ringattn_nccl ringattn_mpi)
    if(TARGET ${target})
        add_dependencies(ringattn_python ${target})
        install(TARGETS ${target} LIBRARY DESTINATION lib/ringattn COMPONENT python)
    endif()
endforeach()
