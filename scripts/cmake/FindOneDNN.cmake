# Debian's dnnl package file asks for OpenCL, which the CPU library does not need; this finds the
# library itself and names it dnnl::dnnl.
find_path(OneDNN_INCLUDE_DIR dnnl.hpp)
find_library(OneDNN_LIBRARY dnnl)
# dnnl_version.h stands in oneapi/dnnl since 2.0.
find_file(OneDNN_VERSION_FILE
  NAMES oneapi/dnnl/dnnl_version.h dnnl_version.h HINTS ${OneDNN_INCLUDE_DIR})
if(OneDNN_VERSION_FILE)
  file(STRINGS ${OneDNN_VERSION_FILE} lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
  list(JOIN numbers "." OneDNN_VERSION)
endif()
mark_as_advanced(OneDNN_VERSION_FILE)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR
                                  VERSION_VAR OneDNN_VERSION)
if(OneDNN_FOUND AND NOT TARGET dnnl::dnnl)
  add_library(dnnl::dnnl UNKNOWN IMPORTED)
  set_target_properties(dnnl::dnnl PROPERTIES IMPORTED_LOCATION ${OneDNN_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE_DIR})
endif()
