# SPDX-License-Identifier: Apache-2.0
# Writes the style sheet and the script of reports into a file of C, so that the command needs no file.
#
#   cmake -DSOURCE=folder -DTO=file -P assets.cmake
function(asset name file)
    file(READ ${SOURCE}/${file} text)
    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "\n" "\\n\"\n    \"" text "${text}")
    set(${name} "const char asset_${name}[] =\n    \"${text}\";\n" PARENT_SCOPE)
endfunction()
asset(style page.css)
asset(script page.js)
file(WRITE ${TO} "/* Written by cmake/assets.cmake. */\n#include \"report/assets.h\"\n${style}${script}")
