# Compiler, warnings, sanitizers and the libraries Troupe stands on.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# System include directories must stay -isystem, or warnings-as-errors stops on CAF's headers.
set(CMAKE_NO_SYSTEM_FROM_IMPORTED OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(TROUPE_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")
if(TROUPE_SANITIZE)
  set(TROUPE_SANITIZED ON)
endif()
option(TROUPE_BUILD_TESTS "Build the tests" ON)
set(TROUPE_LEVELS "v2;v3;v4"
  CACHE STRING "x86-64 levels with kernels of their own; v2 is always one")
option(TROUPE_WERROR "Warnings are errors" ON)
option(TROUPE_COMPILED_LOOPS "Translate the scalar steps of loops, where xbyak is installed" ON)
option(TROUPE_UNITY "Compile small files in batches" ON)

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -finline-small-functions -g1 -fno-omit-frame-pointer")
add_compile_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(TROUPE_WERROR)
  add_compile_options(-Werror)
endif()
if(TROUPE_UNITY)
  add_compile_options(-Wno-subobject-linkage)  # takes a file in a batch for a header; `debug` asks
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Else g++ marks what a precompiled header holds again and again: a seventh of its time.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>)
endif()
if(TROUPE_SANITIZE)
  add_compile_options(-fsanitize=${TROUPE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TROUPE_SANITIZE})
  if(TROUPE_SANITIZE MATCHES undefined)
    # ASan reports uses of null pointers and accesses beyond an object.
    add_compile_options(-fno-sanitize=null,object-size)
  endif()
endif()

# Calls inside libtroupe.so go straight to their targets, not through the table that would let
# another library replace them.
if(NOT TROUPE_SANITIZED)
  add_compile_options(-fno-semantic-interposition)
  add_link_options(-Wl,-Bsymbolic-functions)
endif()

find_program(TROUPE_CCACHE ccache)
if(TROUPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/scripts/cmake/ccache.sh ${TROUPE_CCACHE})
  add_compile_options(-fpch-preprocess)
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(OneDNN REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(CAF 0.17 REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
find_package(cppzmq 4.9 REQUIRED)  # ZeroMQ with it
find_package(msgpack 4.1 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(httplib REQUIRED IMPORTED_TARGET cpp-httplib)  # its flags are part of its ABI

# Only headers: the library needs nothing of it at run time.
if(TROUPE_COMPILED_LOOPS AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  find_path(TROUPE_XBYAK_INCLUDE xbyak/xbyak.h)
  mark_as_advanced(TROUPE_XBYAK_INCLUDE)
  if(NOT TROUPE_XBYAK_INCLUDE)
    message(STATUS "loops are interpreted: there is no xbyak/xbyak.h (libxbyak-dev has it)")
  endif()
endif()

# `#include <troupe/ops/graph/graph.hpp>` reads the same in the tree and after installation:
# the build has a folder of links, beside the header that it generates.
set(TROUPE_INCLUDE_DIR ${CMAKE_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${TROUPE_INCLUDE_DIR}/troupe)
foreach(folder devices ops controlflow autodiff actors cluster apps test)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${TROUPE_INCLUDE_DIR}/troupe/${folder} SYMBOLIC)
endforeach()
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/scripts/cmake/pch ${TROUPE_INCLUDE_DIR}/troupe/pch SYMBOLIC)
foreach(header troupe cluster op)  # the three that users include
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/apps/${header}.hpp
    ${TROUPE_INCLUDE_DIR}/troupe/${header}.hpp SYMBOLIC)
endforeach()
include(TroupeFunctions)
troupe_functions(${TROUPE_INCLUDE_DIR}/troupe/functions.hpp)
