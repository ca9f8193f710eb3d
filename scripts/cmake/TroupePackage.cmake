# Installation: libtroupe.so, public headers, the binary, a CMake package, a pkg-config file, a .deb.
#
#   cmake --install build/release --prefix /opt/troupe
#   cpack --config build/release/CPackConfig.cmake          # build/release/troupe_<version>_<arch>.deb
#
# The tree is relocatable: the binary finds the library, and both package files find the headers,
# relative to themselves.
include(CMakePackageConfigHelpers)

set(TROUPE_LIB_DIR lib)
set(TROUPE_CMAKE_DIR ${TROUPE_LIB_DIR}/cmake/Troupe)

install(TARGETS troupe EXPORT TroupeTargets LIBRARY DESTINATION ${TROUPE_LIB_DIR})
if(TARGET troupe_binary)
  set_target_properties(troupe_binary PROPERTIES INSTALL_RPATH "$ORIGIN/../${TROUPE_LIB_DIR}")
  install(TARGETS troupe_binary RUNTIME DESTINATION bin)
  foreach(shell_file IN ITEMS bash:bash-completion/completions/troupe zsh:zsh/vendor-completions/_troupe fish:fish/vendor_completions.d/troupe.fish)
    string(REGEX MATCH "^([a-z]+):(.*)/([^/]+)$" _ ${shell_file})
    set(shell ${CMAKE_MATCH_1})
    set(folder ${CMAKE_MATCH_2})
    set(file ${CMAKE_MATCH_3})
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/completions/${shell}/${file}
                       COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/completions/${shell}
                       COMMAND troupe_binary completions ${shell} > ${CMAKE_BINARY_DIR}/completions/${shell}/${file} DEPENDS troupe_binary VERBATIM)
    list(APPEND completions ${CMAKE_BINARY_DIR}/completions/${shell}/${file})
    install(FILES ${CMAKE_BINARY_DIR}/completions/${shell}/${file} DESTINATION share/${folder})
  endforeach()
  add_custom_target(troupe_completions ALL DEPENDS ${completions})
endif()

# Which headers are public follows from what they include, so it is found out when installing.
install(CODE "set(TROUPE_HEADERS_FROM ${TROUPE_INCLUDE_DIR})")
install(SCRIPT ${CMAKE_SOURCE_DIR}/scripts/cmake/InstallHeaders.cmake)

install(EXPORT TroupeTargets NAMESPACE Troupe:: DESTINATION ${TROUPE_CMAKE_DIR})
configure_package_config_file(${CMAKE_SOURCE_DIR}/scripts/cmake/TroupeConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/TroupeConfig.cmake INSTALL_DESTINATION ${TROUPE_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TroupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TroupeConfig.cmake ${CMAKE_BINARY_DIR}/TroupeConfigVersion.cmake
        DESTINATION ${TROUPE_CMAKE_DIR})
configure_file(${CMAKE_SOURCE_DIR}/scripts/cmake/troupe.pc.in ${CMAKE_BINARY_DIR}/troupe.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/troupe.pc DESTINATION ${TROUPE_LIB_DIR}/pkgconfig)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION share/doc/troupe RENAME copyright)
# systemd finds a package's units in lib/systemd/system of its prefix; the manifests are examples.
install(FILES ${CMAKE_SOURCE_DIR}/scripts/systemd/troupe-node.service DESTINATION lib/systemd/system)
install(FILES ${CMAKE_SOURCE_DIR}/scripts/kubernetes/troupe.yaml DESTINATION share/doc/troupe/examples)
install(FILES ${CMAKE_SOURCE_DIR}/scripts/grafana/troupe.json ${CMAKE_SOURCE_DIR}/scripts/grafana/prometheus.yml DESTINATION share/doc/troupe/examples)
install(PROGRAMS ${CMAKE_SOURCE_DIR}/scripts/slurm/troupe.sbatch DESTINATION share/doc/troupe/examples)
install(FILES ${CMAKE_SOURCE_DIR}/CHANGELOG.md ${CMAKE_SOURCE_DIR}/README.md DESTINATION share/doc/troupe)
# What `--json` prints has every field in the one, and why a run is said to hang stands in the other.
install(FILES ${CMAKE_SOURCE_DIR}/cluster/inspect/INSPECTION.md DESTINATION share/doc/troupe)
install(FILES ${CMAKE_SOURCE_DIR}/actors/observe/INSPECTION.md DESTINATION share/doc/troupe RENAME HANGS.md)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME troupe)
set(CPACK_PACKAGE_CONTACT "The Troupe authors <troupe@localhost>")
set(CPACK_PACKAGE_DESCRIPTION "Library, headers and the troupe binary. A program is a graph; partitions of it are actors
that fire when their inputs have arrived.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
include(CPack)
