// What an error says.
#pragma once

#include <string>

#include <boost/test/unit_test.hpp>

#include <troupe/devices/error.hpp>

namespace troupe::test {

/// The message of the error that `f` throws, which must have that code; empty if it throws none.
template <class F>
std::string refusal(F f, Code code) {
  try {
    f();
  } catch (const Error& e) {
    BOOST_TEST((e.code() == code), e.what());
    return e.what();
  }
  BOOST_ERROR("nothing was thrown");
  return "";
}

}  // namespace troupe::test
