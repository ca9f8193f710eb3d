# Installation, and the Debian packages:
#
#   troupe          the binary, its service, manual pages, completions, examples for operators
#   libtroupe0.1    libtroupe.so.0.1
#   libtroupe-dev   public headers, a CMake package, a pkg-config file, example programs
#   troupe-cuda     the plug-in for NVIDIA GPUs, where the build has it; the others need none of it
#
#   cmake --install build/release --prefix /opt/troupe
#   cpack --config build/release/CPackConfig.cmake -B packages      # packages/*.deb
#
# The tree is relocatable: the binary finds the library, and both package files find the headers,
# relative to themselves. Components `program`, `library`, `development` and `gpu` become the
# packages; what only a Debian package has is in its component alone, and `cmake --install` leaves
# it out.
include(CMakePackageConfigHelpers)

set(TROUPE_LIB_DIR lib)
if(CMAKE_LIBRARY_ARCHITECTURE)
  set(TROUPE_LIB_DIR lib/${CMAKE_LIBRARY_ARCHITECTURE})
endif()
set(TROUPE_CMAKE_DIR ${TROUPE_LIB_DIR}/cmake/Troupe)
set(debian ${CMAKE_SOURCE_DIR}/scripts/debian)
set(soname_package libtroupe${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

install(TARGETS troupe EXPORT TroupeTargets
        LIBRARY DESTINATION ${TROUPE_LIB_DIR} COMPONENT library NAMELINK_COMPONENT development)

# --- troupe
# Files that the binary writes about itself: completions and manual pages.
if(TARGET troupe_binary)
  set_target_properties(troupe_binary PROPERTIES INSTALL_RPATH "$ORIGIN/../${TROUPE_LIB_DIR}")
  install(TARGETS troupe_binary RUNTIME DESTINATION bin COMPONENT program)
  foreach(shell_file IN ITEMS bash:bash-completion/completions/troupe
                              zsh:zsh/vendor-completions/_troupe
                              fish:fish/vendor_completions.d/troupe.fish)
    string(REGEX MATCH "^([a-z]+):(.*)/([^/]+)$" _ ${shell_file})
    set(shell ${CMAKE_MATCH_1})
    set(folder ${CMAKE_MATCH_2})
    set(file ${CMAKE_BINARY_DIR}/completions/${shell}/${CMAKE_MATCH_3})
    add_custom_command(OUTPUT ${file}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/completions/${shell}
      COMMAND troupe_binary completions ${shell} > ${file} DEPENDS troupe_binary VERBATIM)
    list(APPEND own_files ${file})
    install(FILES ${file} DESTINATION share/${folder} COMPONENT program)
  endforeach()
  file(GLOB man_texts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/scripts/man/*.man)
  set(man_pages ${CMAKE_SOURCE_DIR}/scripts/man/man_pages.sh)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/man/pages
    COMMAND ${man_pages} $<TARGET_FILE:troupe_binary> ${CMAKE_BINARY_DIR}/man
    DEPENDS troupe_binary ${man_pages} ${man_texts} ${debian}/changelog
    COMMENT "The manual pages" VERBATIM)
  add_custom_target(troupe_completions ALL DEPENDS ${own_files} ${CMAKE_BINARY_DIR}/man/pages)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION share/man/man1 COMPONENT program
          FILES_MATCHING PATTERN "*.1.gz")
endif()
# systemd finds a package's units in lib/systemd/system of its prefix.
install(FILES ${CMAKE_SOURCE_DIR}/scripts/systemd/troupe-node.service
        DESTINATION lib/systemd/system COMPONENT program)
# Below /usr, configuration is in /etc.
install(CODE "
if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
  set(etc /etc)
else()
  set(etc \${CMAKE_INSTALL_PREFIX}/etc)
endif()
file(INSTALL DESTINATION \${etc}/default TYPE FILE RENAME troupe-node
     FILES ${debian}/troupe-node.default)" COMPONENT program)
set(documents share/doc/troupe)
install(FILES ${CMAKE_SOURCE_DIR}/scripts/kubernetes/troupe.yaml
              ${CMAKE_SOURCE_DIR}/scripts/kubernetes/training.yaml
              ${CMAKE_SOURCE_DIR}/scripts/kubernetes/Dockerfile
              ${CMAKE_SOURCE_DIR}/scripts/grafana/troupe.json
              ${CMAKE_SOURCE_DIR}/scripts/grafana/prometheus.yml
              ${CMAKE_SOURCE_DIR}/scripts/grafana/troupe-alerts.yml
        DESTINATION ${documents}/examples COMPONENT program)
install(PROGRAMS ${CMAKE_SOURCE_DIR}/scripts/slurm/troupe.sbatch
        DESTINATION ${documents}/examples COMPONENT program)
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/cluster/OPERATING.md
        DESTINATION ${documents} COMPONENT program)
# INSPECTION.md describes each field of `--json`, HANGS.md why a run is reported as hanging.
install(FILES ${CMAKE_SOURCE_DIR}/cluster/inspect/INSPECTION.md
        DESTINATION ${documents} COMPONENT program)
install(FILES ${CMAKE_SOURCE_DIR}/actors/observe/INSPECTION.md
        DESTINATION ${documents} RENAME HANGS.md COMPONENT program)

# --- libtroupe-dev
# Includes decide which headers are public, so the installation finds them.
install(CODE "set(TROUPE_HEADERS_FROM ${TROUPE_INCLUDE_DIR})" COMPONENT development)
install(SCRIPT ${CMAKE_SOURCE_DIR}/scripts/cmake/InstallHeaders.cmake COMPONENT development)
install(EXPORT TroupeTargets NAMESPACE Troupe:: DESTINATION ${TROUPE_CMAKE_DIR}
        COMPONENT development)
configure_package_config_file(${CMAKE_SOURCE_DIR}/scripts/cmake/TroupeConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/TroupeConfig.cmake
                              INSTALL_DESTINATION ${TROUPE_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TroupeConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TroupeConfig.cmake ${CMAKE_BINARY_DIR}/TroupeConfigVersion.cmake
        DESTINATION ${TROUPE_CMAKE_DIR} COMPONENT development)
file(RELATIVE_PATH TROUPE_PREFIX_FROM_PC /${TROUPE_LIB_DIR}/pkgconfig /)
configure_file(${CMAKE_SOURCE_DIR}/scripts/cmake/troupe.pc.in ${CMAKE_BINARY_DIR}/troupe.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/troupe.pc DESTINATION ${TROUPE_LIB_DIR}/pkgconfig
        COMPONENT development)
# The example programs, which a CMakeLists.txt of theirs builds against the package.
set(examples share/doc/libtroupe-dev/examples)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/apps/examples/ DESTINATION ${examples} COMPONENT development
        FILES_MATCHING PATTERN "*.cpp" PATTERN char_lm EXCLUDE PATTERN cartpole EXCLUDE)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/apps/examples/char_lm
                  ${CMAKE_SOURCE_DIR}/apps/examples/cartpole
        DESTINATION ${examples}/troupe/apps/examples COMPONENT development
        FILES_MATCHING PATTERN "*.hpp")
install(FILES ${CMAKE_SOURCE_DIR}/scripts/debian/examples.cmake DESTINATION ${examples}
        RENAME CMakeLists.txt COMPONENT development)

# --- troupe-cuda
# libtroupe looks for plug-ins in its own folder's `troupe/`. CUDA's libraries are opened when they
# are first used, so that the package needs none of them.
set(packages troupe:program ${soname_package}:library libtroupe-dev:development)
set(components program library development)
if(TARGET troupe_cuda)
  install(TARGETS troupe_cuda LIBRARY DESTINATION ${TROUPE_LIB_DIR}/troupe COMPONENT gpu)
  list(APPEND packages troupe-cuda:gpu)
  list(APPEND components gpu)
endif()

# --- what Debian demands of each package
set(documented ${CMAKE_BINARY_DIR}/debian)
add_custom_command(OUTPUT ${documented}/changelog.gz ${documented}/changelog.Debian.gz
  COMMAND ${CMAKE_COMMAND} -E make_directory ${documented}
  COMMAND gzip -9nc ${CMAKE_SOURCE_DIR}/CHANGELOG.md > ${documented}/changelog.gz
  COMMAND gzip -9nc ${debian}/changelog > ${documented}/changelog.Debian.gz
  DEPENDS ${CMAKE_SOURCE_DIR}/CHANGELOG.md ${debian}/changelog VERBATIM)
add_custom_target(troupe_changelogs ALL
  DEPENDS ${documented}/changelog.gz ${documented}/changelog.Debian.gz)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/CHANGELOG.md
        DESTINATION ${documents} COMPONENT unpackaged)
foreach(package IN LISTS packages)
  string(REGEX MATCH "^(.*):(.*)$" _ ${package})
  set(name ${CMAKE_MATCH_1})
  set(component ${CMAKE_MATCH_2})
  install(FILES ${debian}/copyright ${documented}/changelog.Debian.gz DESTINATION share/doc/${name}
          COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${documented}/changelog.gz DESTINATION share/doc/${name}
          COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${debian}/lintian-overrides DESTINATION share/lintian/overrides
          RENAME ${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

# The changelog has the version and the maintainer of the packages.
file(STRINGS ${debian}/changelog entry LIMIT_COUNT 1)
file(STRINGS ${debian}/changelog signature REGEX "^ -- " LIMIT_COUNT 1)
string(REGEX MATCH "^troupe \\(([0-9.]+)-([^)]+)\\)" _ "${entry}")
if(NOT CMAKE_MATCH_1 STREQUAL PROJECT_VERSION)
  message(FATAL_ERROR "scripts/debian/changelog begins with version '${CMAKE_MATCH_1}', and the "
                      "project has ${PROJECT_VERSION}; add an entry")
endif()
set(revision ${CMAKE_MATCH_2})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${debian}/changelog)
string(REGEX REPLACE "^ -- (.*>)  .*$" "\\1" maintainer "${signature}")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME troupe)
set(CPACK_PACKAGE_CONTACT "${maintainer}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
set(CPACK_STRIP_FILES ON)
# The contents of a package do not depend on the umask of the user that builds it.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/scripts/cmake/before_packaging.cmake)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SOURCE troupe)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${revision})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(exactly "(= ${PROJECT_VERSION}-${revision})")

# The first line of a description is the package's own.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(about "Troupe runs tensor programs as graphs. Partitions of a graph are actors,
which fire when their inputs have arrived, on one machine or on many.
.")
# CPack 3.25 has no variable for this field, and writes a section as it is given.
set(multiarch "\nMulti-Arch: same")

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME troupe)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "${soname_package} ${exactly}")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA
    ${debian}/conffiles ${debian}/postinst ${debian}/prerm ${debian}/postrm)
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "distributed tensor dataflow engine: nodes and tools
${about}
This package has the program troupe: a node of a cluster, also as a service,
and verbs that show the state of nodes and runs.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${soname_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION "libs${multiarch}")
# Files named postinst and postrm keep CPack from writing its own, which call ldconfig; a trigger
# does that. They do not exist, so CPack leaves them out.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA
    ${debian}/triggers ${debian}/none/postinst ${debian}/none/postrm)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "distributed tensor dataflow engine: shared library
${about}
This package has the library that programs of Troupe need.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtroupe-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION "libdevel${multiarch}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${soname_package} ${exactly}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "g++, cmake, pkg-config, troupe")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "distributed tensor dataflow engine: headers
${about}
This package has the public headers, files for CMake and pkg-config, and
examples.")

set(CPACK_DEBIAN_GPU_PACKAGE_NAME troupe-cuda)
set(CPACK_DEBIAN_GPU_PACKAGE_SECTION contrib/science)
set(CPACK_DEBIAN_GPU_PACKAGE_DEPENDS "${soname_package} ${exactly}")
set(CPACK_DEBIAN_GPU_DESCRIPTION "distributed tensor dataflow engine: NVIDIA GPUs
${about}
This package has the plug-in for the device gpu:0. It needs NVIDIA's driver,
and opens cuBLASLt and NVRTC of CUDA 12 or 13, and cuDNN 9, when they are
first used.")
include(CPack)
