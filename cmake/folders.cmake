# SPDX-License-Identifier: Apache-2.0
# Folders whose files need compiler flags of their own, one for each instruction set.
#
# A folder may hold a flags.cmake that sets
#     flags   the compiler flags of its files
#     needs   macros the compiler defines when target and flags fit, e.g. __x86_64__ __AVX2__
#     calls   a call of <immintrin.h> that must compile with these flags, where there is no such macro
# Without one it is compiled like everything else. A folder whose flags, macros or call this compiler
# does not know is left out. PREFIX<FOLDER> is then 0, otherwise 1, for a .list to know its rows by. A
# folder without .c files (shared headers) does not count.

include(CheckCSourceCompiles)

# ringattn_compiles_with(RESULT_NAME FLAGS NEEDS CALLS)
function(ringattn_compiles_with result flags needs calls)
    set(source "int main(void) { return 0; }\n")
    if(calls)
        set(source "#include <immintrin.h>\nint main(void) { ${calls}; return 0; }\n")
    endif()
    foreach(macro IN LISTS needs)
        string(PREPEND source "#ifndef ${macro}\n#error no ${macro}\n#endif\n")
    endforeach()
    list(JOIN flags " " CMAKE_REQUIRED_FLAGS)
    set(CMAKE_REQUIRED_QUIET ON)
    check_c_source_compiles("${source}" ${result})
endfunction()

# ringattn_folders(NAME ROOT PREFIX WHAT): sets NAME_SOURCES and NAME_DEFINITIONS. WHAT is what the
# report at the end calls a folder. Where NAME_ONLY is a list, other folders are left out.
function(ringattn_folders name root prefix what)
    set(all_sources "")
    set(definitions "")
    file(GLOB folders CONFIGURE_DEPENDS RELATIVE ${root} ${root}/*)
    foreach(folder IN LISTS folders)
        file(GLOB sources CONFIGURE_DEPENDS ${root}/${folder}/*.c)
        if(NOT sources)
            continue()
        endif()

        if(${name}_ONLY AND NOT folder IN_LIST ${name}_ONLY)
            string(TOUPPER ${folder} upper)
            list(APPEND definitions ${prefix}${upper}=0)
            ringattn_report(FALSE "${what} ${folder}: not asked for")
            continue()
        endif()

        set(flags "")
        set(needs "")
        set(calls "")
        include(${root}/${folder}/flags.cmake OPTIONAL)
        string(TOUPPER ${folder} upper)
        # The answer is remembered by question, so that a changed flags.cmake is asked again.
        string(MD5 question "${flags}|${needs}|${calls}|${CMAKE_C_FLAGS}")
        ringattn_compiles_with(${name}_${upper}_${question} "${flags}" "${needs}" "${calls}")

        if(${name}_${upper}_${question})
            set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${flags}")
            list(APPEND all_sources ${sources})
            list(APPEND definitions ${prefix}${upper}=1)
            ringattn_report(TRUE "${what} ${folder}")
        else()
            list(APPEND definitions ${prefix}${upper}=0)
            ringattn_report(FALSE "${what} ${folder}: this compiler or target does not have it")
        endif()
    endforeach()
    set(${name}_SOURCES "${all_sources}" PARENT_SCOPE)
    set(${name}_DEFINITIONS "${definitions}" PARENT_SCOPE)
endfunction()
