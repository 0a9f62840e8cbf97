# SPDX-License-Identifier: Apache-2.0
# The list of optional parts that configuring ends with: a tick for what is there, a cross for what
# is not, and why it matters.

# ringattn_report(FOUND TEXT): one line, to be printed at the end. FOUND is a value, not a name.
function(ringattn_report found text)
    if(found)
        string(PREPEND text "✓ ")
    else()
        string(PREPEND text "✗ ")
    endif()
    set_property(GLOBAL APPEND PROPERTY RINGATTN_REPORT_LINES "${text}")
endfunction()

function(ringattn_print_report)
    get_property(lines GLOBAL PROPERTY RINGATTN_REPORT_LINES)
    message(STATUS "ringattn ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
    foreach(line IN LISTS lines)
        message(STATUS "  ${line}")
    endforeach()
endfunction()
