# Builds the examples against the package:
#
#   cmake -S /usr/share/doc/libtroupe-dev/examples -B build && cmake --build build
#
# char_lm and cartpole need libcli11-dev and libfmt-dev.
cmake_minimum_required(VERSION 3.25)
project(troupe_examples LANGUAGES CXX)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(Troupe 0.1 REQUIRED)
find_package(CLI11 QUIET)
find_package(fmt QUIET)
file(GLOB examples ${CMAKE_SOURCE_DIR}/*.cpp)
foreach(file IN LISTS examples)
  get_filename_component(name ${file} NAME_WE)
  string(REGEX REPLACE "^[0-9]+_" "" name ${name})
  file(STRINGS ${file} needs REGEX "^#include <(CLI|fmt|troupe/apps)/")
  if(needs AND NOT (TARGET CLI11::CLI11 AND TARGET fmt::fmt))
    message(STATUS "without ${name}: it needs libcli11-dev and libfmt-dev")
    continue()
  endif()
  add_executable(${name} ${file})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE Troupe::troupe)
  if(needs)
    target_link_libraries(${name} PRIVATE CLI11::CLI11 fmt::fmt)
  endif()
endforeach()
