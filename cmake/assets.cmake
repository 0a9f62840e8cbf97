# SPDX-License-Identifier: Apache-2.0
# Writes files into a file of C, so that the command needs none of them: asset_NAME holds the bytes of
# FILE, and a zero. As numbers, since a string of C may have 4095 letters only.
#
#   cmake -DSOURCE=folder -DASSETS=NAME=FILE;NAME=FILE -DTO=file -P assets.cmake
set(text "/* Written by cmake/assets.cmake. */\n#include \"assets.h\"\n")
foreach(asset IN LISTS ASSETS)
    string(REPLACE "=" ";" asset ${asset})
    list(GET asset 0 name)
    list(GET asset 1 file)
    file(READ ${SOURCE}/${file} bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes ${bytes})
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes ${bytes})
    string(APPEND text "const char asset_${name}[] = {\n${bytes}0 };\n")
endforeach()
file(WRITE ${TO} "${text}")
