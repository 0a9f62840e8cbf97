# SPDX-License-Identifier: Apache-2.0
# Installs header, libraries, command, man page, pkg-config file and CMake package: below whatever prefix
# the installation is given, which may be another one than when configuring.

include(CMakePackageConfigHelpers)

install(TARGETS ringattn_shared ringattn_static EXPORT ringattn
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET ringattn)
    install(TARGETS ringattn RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    install(FILES docs/ringattn.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(FILES include/ringattn.h include/ringattn_transport.h include/ringattn_stream.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET ringattn_cuda)
    install(TARGETS ringattn_cuda LIBRARY DESTINATION ${RINGATTN_PLUGIN_LIBDIR})
    install(FILES include/ringattn_cuda.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TARGET ringattn_cuda_maker)
    install(TARGETS ringattn_cuda_maker LIBRARY DESTINATION ${RINGATTN_PLUGIN_LIBDIR})
endif()
if(TARGET ringattn_nccl)
    install(TARGETS ringattn_nccl LIBRARY DESTINATION ${RINGATTN_PLUGIN_LIBDIR})
    install(FILES include/ringattn_nccl.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TARGET ringattn_mpi)
    install(TARGETS ringattn_mpi LIBRARY DESTINATION ${RINGATTN_PLUGIN_LIBDIR})
    install(FILES include/ringattn_mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()

# pkg-config: the prefix is seen from the folder of the .pc file, and paths below it from the prefix.
set(PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
    set(PC_PREFIX "\${pcfiledir}/${up}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
    if(IS_ABSOLUTE ${CMAKE_INSTALL_${dir}})
        set(PC_${dir} ${CMAKE_INSTALL_${dir}})
    else()
        set(PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
    endif()
endforeach()
set(PC_LIBS_PRIVATE ${CMAKE_THREAD_LIBS_INIT})
foreach(library IN LISTS CMAKE_DL_LIBS)
    string(APPEND PC_LIBS_PRIVATE " -l${library}")
endforeach()
if(RINGATTN_LIBM)
    string(APPEND PC_LIBS_PRIVATE " -lm")
endif()
configure_file(cmake/ringattn.pc.in ringattn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ringattn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# find_package(ringattn) gives ringattn::ringattn (shared) and ringattn::static.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ringattn)
configure_package_config_file(cmake/ringattnConfig.cmake.in ringattnConfig.cmake
    INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ringattnConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ringattnConfig.cmake ${PROJECT_BINARY_DIR}/ringattnConfigVersion.cmake
    DESTINATION ${package_dir})
install(EXPORT ringattn NAMESPACE ringattn:: FILE ringattnTargets.cmake DESTINATION ${package_dir})
