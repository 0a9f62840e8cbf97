# SPDX-License-Identifier: Apache-2.0
# Writes bench_commit, the commit of the sources, into a file of C; run at every build, and the file
# changes only when the commit does. "" where the sources are no git tree.
#
#   cmake -DSOURCE=folder -DTO=file -P commit.cmake
set(commit "")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE}/.git)
    execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
        OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "/* Written by cmake/commit.cmake. */\n#include \"commit.h\"\nconst char bench_commit[] = \"${commit}\";\n")
set(old "")
if(EXISTS ${TO})
    file(READ ${TO} old)
endif()
if(NOT old STREQUAL text)
    file(WRITE ${TO} "${text}")
endif()
