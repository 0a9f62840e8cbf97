# Every examples/*.c is a program that uses the public header and the shared library, as a user's would.

file(GLOB example_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
set(RINGATTN_EXAMPLE_NAMES "")
foreach(source IN LISTS example_sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    target_link_libraries(example_${name} PRIVATE ringattn_shared ${system_libraries})
    ringattn_flags(example_${name})
    set_target_properties(example_${name} PROPERTIES
        OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    list(APPEND RINGATTN_EXAMPLE_NAMES ${name})
endforeach()
