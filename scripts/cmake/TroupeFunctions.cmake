# Collects the DSL's declarations from the op files into <troupe/functions.hpp>, so that adding an
# op touches one file. A declaration is a `TROUPE_DSL(...)`, whose further lines are indented, with
# the `///` lines above it. A comment may follow it.
function(troupe_functions output)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/ops/library/*.cpp)
  list(SORT files)
  set(body "")
  foreach(file IN LISTS files)
    set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
    # CMake lists split at ';' and mind brackets: hide them while matching.
    string(REPLACE ";" "\\#semicolon" text "${text}")
    string(REPLACE "[" "\\#open" text "${text}")
    string(REPLACE "]" "\\#close" text "${text}")
    string(REGEX REPLACE "\\) *//[^\n]*" ")" text "${text}")
    string(REGEX MATCHALL "(///[^\n]*\n)*TROUPE_DSL\\([^\n]*(\n [^\n]*)*\\)\n" found "${text}")
    foreach(item IN LISTS found)
      string(REGEX REPLACE "\n +" " " item "${item}")
      string(REGEX REPLACE "TROUPE_DSL\\(([^\n]*)\\)\n" "\\1\\\\#semicolon\n\n" item "${item}")
      string(APPEND body "${item}")
    endforeach()
  endforeach()
  string(REPLACE "\\#semicolon" ";" body "${body}")
  string(REPLACE "\\#open" "[" body "${body}")
  string(REPLACE "\\#close" "]" body "${body}")
  set(content "// The functions of the DSL, one for each operation. \
Generated from ops/library/ by the build.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <vector>

#include <troupe/ops/graph/expr.hpp>
#include <troupe/ops/families/window.hpp>

namespace troupe {

${body}}  // namespace troupe
")
  file(GENERATE OUTPUT ${output} CONTENT "${content}")
  # The text for people: `troupe ops`.
  string(REGEX REPLACE "functions\\.hpp$" "function_text.hpp" text_output ${output})
  file(GENERATE OUTPUT ${text_output} CONTENT "// What is declared in <troupe/functions.hpp>, with \
what is said of it. Generated from ops/library/ by the build.
#pragma once

namespace troupe {

inline constexpr char kFunctionText[] = R\"---(${body})---\";

}  // namespace troupe
")
endfunction()
