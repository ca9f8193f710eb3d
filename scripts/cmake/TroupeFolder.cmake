# troupe_folder(NAME LINK libs... [HEADERS_OF FOLDER]): the sources of one code folder as an OBJECT
# library `troupe_NAME`. Sources are globbed, so that adding an op or a device touches one file.
# HEADERS_OF: the folder shares that folder's precompiled header.
function(troupe_folder name)
  cmake_parse_arguments(ARG "" "HEADERS_OF" "LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/levels/|/devices/cuda/")
  add_library(troupe_${name} OBJECT ${sources})
  target_include_directories(troupe_${name} PUBLIC $<BUILD_INTERFACE:${TROUPE_INCLUDE_DIR}>)
  target_link_libraries(troupe_${name} PUBLIC ${ARG_LINK})
  if(EXISTS ${CMAKE_SOURCE_DIR}/scripts/cmake/pch/${name}.hpp)
    # A name without the path of this clone: other clones use what ccache has of it.
    target_precompile_headers(troupe_${name} PRIVATE <troupe/pch/${name}.hpp>)
  elseif(ARG_HEADERS_OF)
    target_precompile_headers(troupe_${name} REUSE_FROM troupe_${ARG_HEADERS_OF})
  endif()
  troupe_unity(troupe_${name} ${name})
  troupe_cpu_levels(troupe_${name} ${name})
endfunction()

# Files in which test/ plants faults.
set(TROUPE_PLANTED_FILES controlflow/lower.cpp actors/executor/partition.cpp
  actors/executor/partition_calls.cpp actors/executor/token_delivery.cpp
  actors/executor/iteration_window.cpp
  actors/executor/cut_edges_out.cpp)

# The build compiles files in batches of about eleven, which halves a cold build, because headers
# dominate small files. The hash of a path chooses the batch, so that a new file mostly recompiles
# one batch. Names in anonymous namespaces must therefore be unique within a top-level folder, or
# within devices/cpu, ops/library and ops/passes. The preset `debug` compiles each file by itself.
function(troupe_unity target name)
  if(NOT TROUPE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(TROUPE_SANITIZE MATCHES undefined)
    # they hold only Eigen's code, which takes minutes to compile with the checks
    set_source_files_properties(${CMAKE_SOURCE_DIR}/devices/cpu/products/thin_svd.cpp
      ${CMAKE_SOURCE_DIR}/devices/cpu/levels/gemm.cpp
      PROPERTIES COMPILE_OPTIONS -fno-sanitize=undefined)
    # mostly Eigen's code: without the checks of each access
    set_source_files_properties(${CMAKE_SOURCE_DIR}/devices/cpu/products/algebra.cpp
      PROPERTIES COMPILE_OPTIONS -fno-sanitize=alignment,vptr,pointer-overflow)
  endif()
  file(GLOB_RECURSE files RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${name}/*.cpp)
  # Two kinds of files have objects of their own: files that take long by themselves, and files in
  # which test/ plants faults. A test links other objects in place of the latter.
  list(FILTER files EXCLUDE REGEX "^devices/cpu/(level|products/(algebra|thin_svd))[.]cpp$")
  list(REMOVE_ITEM files ${TROUPE_PLANTED_FILES})
  list(FILTER files EXCLUDE REGEX "/levels/|^devices/cuda/")
  # A batch gathers files of several sub-folders, so that a small one costs no batch of its own.
  set(groups ${files})
  list(TRANSFORM groups
    REPLACE "^(devices/(cpu|sim)|(ops|controlflow)/library|ops/(passes|format)|[a-z]+)/.*" "\\1")
  foreach(file group IN ZIP_LISTS files groups)
    set(here ${groups})
    list(FILTER here INCLUDE REGEX "^${group}$")
    list(LENGTH here count)
    math(EXPR batches "(${count} + 10) / 11")
    if(group STREQUAL ops/library)
      set(batches 5)  # many small ones
    endif()
    string(MD5 hash ${file})
    string(SUBSTRING ${hash} 0 4 digits)
    math(EXPR batch "0x${digits} % ${batches}")
    if(file MATCHES "^cluster/inspect/(inspection_|http_acceptor)")
      set(batch json)  # three seconds of headers, which the others do without
    endif()
    string(MAKE_C_IDENTIFIER ${group} group)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/${file}
      PROPERTIES UNITY_GROUP ${group}_${batch})
  endforeach()
endfunction()

# Files in `NAME/**/levels/` are compiled once per x86-64 level, each copy in a namespace of its own
# (TROUPE_LEVEL, and Eigen renamed), and chosen at run time. -march=native mis-tunes on g++ 12
# (it takes Zen 5 for znver3; Eigen loses 25 %), so the levels are the generic ones.
function(troupe_cpu_levels target name)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER kernels INCLUDE REGEX "/levels/")
  if(NOT kernels)
    return()
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(levels ${TROUPE_LEVELS})
    foreach(level IN LISTS levels)
      string(TOUPPER ${level} upper)
      set_property(SOURCE ${CMAKE_SOURCE_DIR}/devices/cpu/level.cpp
        APPEND PROPERTY COMPILE_DEFINITIONS TROUPE_HAS_${upper})
    endforeach()
  else()
    set(levels portable)
  endif()
  foreach(level IN LISTS levels)
    set(lib ${target}_${level})
    add_library(${lib} OBJECT ${kernels})
    target_include_directories(${lib} PRIVATE ${TROUPE_INCLUDE_DIR})
    target_link_libraries(${lib} PRIVATE Eigen3::Eigen)
    target_compile_definitions(${lib} PRIVATE TROUPE_LEVEL=${level} Eigen=Eigen_${level})
    if(NOT TROUPE_SANITIZED)
      target_compile_options(${lib} PRIVATE -O3)
    endif()
    # No contraction: a fused multiply-add in one level only would change results between levels.
    # Integers wrap, as documented.
    target_compile_options(${lib} PRIVATE -ffp-contract=off -fno-math-errno -fwrapv)
    if(NOT level STREQUAL portable)
      target_compile_options(${lib} PRIVATE -march=x86-64-${level})
    endif()
    set_target_properties(${lib} PROPERTIES UNITY_BUILD ${TROUPE_UNITY} UNITY_BUILD_MODE GROUP)
    set_property(GLOBAL APPEND PROPERTY TROUPE_LEVEL_OBJECTS $<TARGET_OBJECTS:${lib}>)
  endforeach()
  # The small ones are one batch; the others take longer than their headers.
  list(FILTER kernels EXCLUDE REGEX "/(arithmetic|casts|functions|gemm|recurrent)[.]cpp$")
  set_source_files_properties(${kernels} PROPERTIES UNITY_GROUP small)
endfunction()

# troupe_library(NAME folders...): the shared library users link.
function(troupe_library name)
  set(objects)
  set(links)
  foreach(folder IN LISTS ARGN)
    list(APPEND objects $<TARGET_OBJECTS:troupe_${folder}>)
    list(APPEND links troupe_${folder})
  endforeach()
  get_property(levels GLOBAL PROPERTY TROUPE_LEVEL_OBJECTS)
  add_library(${name} SHARED ${objects} ${levels})
  set_target_properties(${name} PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  foreach(folder IN LISTS ARGN)
    get_target_property(libs troupe_${folder} LINK_LIBRARIES)
    target_link_libraries(${name} PRIVATE ${libs})
  endforeach()
  target_include_directories(${name}
    INTERFACE $<BUILD_INTERFACE:${TROUPE_INCLUDE_DIR}> $<INSTALL_INTERFACE:include>)
  target_compile_features(${name} INTERFACE cxx_std_20)
  target_link_libraries(${name} INTERFACE Threads::Threads)
endfunction()
