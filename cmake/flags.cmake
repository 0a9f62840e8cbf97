# SPDX-License-Identifier: Apache-2.0
# How all our C is compiled, and what the shared library lets out.

include(CheckLinkerFlag)

# ringattn_flags(TARGET): C11, all warnings, and sums that are not contracted behind our
# back: a kernel that wants a fused multiply-add says so, and every build gives the same bits.
function(ringattn_flags target)
    set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -ffp-contract=off)
    if(RINGATTN_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
endfunction()

# Names that start with ra_ followed by a letter are public; ra__ names stay inside, like all others.
# A name that nobody defines fails here and not at the user's (sanitizers leave some open on purpose).
function(ringattn_export_only_public target)
    set(map ${PROJECT_BINARY_DIR}/ringattn.map)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/ringattn.map.in ${map} @ONLY)
    check_linker_flag(C "-Wl,--version-script=${map}" RINGATTN_HAS_VERSION_SCRIPT)
    if(RINGATTN_HAS_VERSION_SCRIPT)
        target_link_options(${target} PRIVATE -Wl,--version-script=${map})
        set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
    endif()
    check_linker_flag(C -Wl,-z,defs RINGATTN_HAS_Z_DEFS)
    if(RINGATTN_HAS_Z_DEFS AND NOT RINGATTN_SANITIZE)
        target_link_options(${target} PRIVATE -Wl,-z,defs)
    endif()
endfunction()

if(RINGATTN_SANITIZE)
    add_compile_options(-fsanitize=${RINGATTN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${RINGATTN_SANITIZE})
    ringattn_report(TRUE "sanitizers: ${RINGATTN_SANITIZE}")
endif()
