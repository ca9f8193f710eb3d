// Shared by the suites of printed programs and of their cache.
#pragma once

#include <string>

#include <boost/test/unit_test.hpp>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/cuda/programs/nvrtc.hpp>
#include <troupe/devices/cuda/programs/print.hpp>

namespace troupe::test {

using namespace troupe::cuda;

inline ProgramForm flat_form(const ScalarProgram& p, bool is_vectorized = false,
                             bool is_wide = false) {
  return {true, is_vectorized, is_wide, 1, std::vector<bool>(p.inputs.size(), false)};
}

inline bool has_nvrtc() {
  static const bool has = [] {
    std::string looked;
    if (open_cuda_library({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}, &looked))
      return true;
    BOOST_TEST_MESSAGE("skipped: NVRTC is not installed: " << looked);
    return false;
  }();
  return has;
}

}  // namespace troupe::test
