#include <troupe/apps/verbs/libraries.hpp>

#include <fmt/format.h>
#include <link.h>

#include <string_view>

namespace troupe::verbs {

namespace {

/// The path of the loaded shared object whose file name starts with `prefix`; empty if there is
/// none.
std::string loaded_file(std::string_view prefix) {
  struct Search {
    std::string_view prefix;
    std::string found;
  } search{prefix, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        const std::string_view path = object->dlpi_name;
        if (path.substr(path.rfind('/') + 1).starts_with(s.prefix)) s.found = path;
        return s.found.empty() ? 0 : 1;
      },
      &search);
  return search.found;
}

}  // namespace

std::vector<Library> libraries() {
  return {{"CAF", TROUPE_CAF_VERSION, loaded_file("libcaf_core.so")},
          {"oneDNN", TROUPE_ONEDNN_VERSION, loaded_file("libdnnl.so")},
          {"Eigen", TROUPE_EIGEN_VERSION, ""},
          {"fmt", TROUPE_FMT_VERSION, loaded_file("libfmt.so")},
          {"ZeroMQ", TROUPE_ZEROMQ_VERSION, loaded_file("libzmq.so")},
          {"OpenSSL", TROUPE_OPENSSL_VERSION, loaded_file("libcrypto.so")},
          {"cpp-httplib", TROUPE_HTTPLIB_VERSION, loaded_file("libcpp-httplib.so")},
          {"libtroupe", TROUPE_VERSION, loaded_file("libtroupe.so")}};
}

std::string compiler() {
#ifdef __clang__
  return fmt::format("clang++ {}, {}", __clang_version__, TROUPE_BUILD_TYPE);
#else
  return fmt::format("g++ {}, {}", __VERSION__, TROUPE_BUILD_TYPE);
#endif
}

}  // namespace troupe::verbs
