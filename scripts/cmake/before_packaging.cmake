# Run by cpack before it packs what is installed: in a package the binary finds the library as the
# system's, so it needs no path of its own.
cmake_policy(VERSION 3.25)
file(GLOB binaries ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/program/usr/bin/troupe)
if(NOT binaries)
  message(FATAL_ERROR "cpack installs no binary into ${CPACK_TEMPORARY_INSTALL_DIRECTORY}")
endif()
foreach(binary IN LISTS binaries)
  file(RPATH_REMOVE FILE ${binary})
endforeach()
