# The CPU kernels: one folder of src/kernel/cpu each. Compiler flags belong to the folder.
#
# A folder may hold a flags.cmake that sets
#     flags   the compiler flags of its files
#     needs   macros the compiler defines when target and flags fit, e.g. __x86_64__ __AVX2__
# Without one it is compiled like the rest of the library. A folder whose flags or macros this
# compiler does not know is left out. RA__HAVE_<FOLDER> is 1 or 0 for all sources alike, which is how
# kernel.list knows its rows. A folder without .c files (shared headers) is no kernel.
#
# Sets RINGATTN_KERNEL_SOURCES and RINGATTN_KERNEL_DEFINITIONS.

include(CheckCSourceCompiles)

# ringattn_compiles_with(RESULT_NAME FLAGS NEEDS)
function(ringattn_compiles_with result flags needs)
    set(source "int main(void) { return 0; }\n")
    foreach(macro IN LISTS needs)
        string(PREPEND source "#ifndef ${macro}\n#error no ${macro}\n#endif\n")
    endforeach()
    list(JOIN flags " " CMAKE_REQUIRED_FLAGS)
    set(CMAKE_REQUIRED_QUIET ON)
    check_c_source_compiles("${source}" ${result})
endfunction()

set(RINGATTN_KERNEL_SOURCES "")
set(RINGATTN_KERNEL_DEFINITIONS "")
set(kernel_root ${PROJECT_SOURCE_DIR}/src/kernel/cpu)
file(GLOB kernel_folders CONFIGURE_DEPENDS RELATIVE ${kernel_root} ${kernel_root}/*)

foreach(folder IN LISTS kernel_folders)
    file(GLOB sources CONFIGURE_DEPENDS ${kernel_root}/${folder}/*.c)
    if(NOT sources)
        continue()
    endif()

    set(flags "")
    set(needs "")
    include(${kernel_root}/${folder}/flags.cmake OPTIONAL)
    string(TOUPPER ${folder} upper)
    # The answer is remembered by question, so that a changed flags.cmake is asked again.
    string(MD5 question "${flags}|${needs}|${CMAKE_C_FLAGS}")
    ringattn_compiles_with(RINGATTN_KERNEL_${upper}_${question} "${flags}" "${needs}")

    if(RINGATTN_KERNEL_${upper}_${question})
        set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${flags}")
        list(APPEND RINGATTN_KERNEL_SOURCES ${sources})
        list(APPEND RINGATTN_KERNEL_DEFINITIONS RA__HAVE_${upper}=1)
        ringattn_report(TRUE "kernel ${folder}")
    else()
        list(APPEND RINGATTN_KERNEL_DEFINITIONS RA__HAVE_${upper}=0)
        ringattn_report(FALSE "kernel ${folder}: this compiler or target does not have it")
    endif()
endforeach()
