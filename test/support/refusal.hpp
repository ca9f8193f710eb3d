// Helpers that return the text of an error.
#pragma once

#include <chrono>
#include <string>

#include <boost/test/unit_test.hpp>

#include <troupe/devices/base/error.hpp>

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

/// Like `refusal`, for an operation that needs a node which has just left: it is unavailable until
/// the caller's node has noticed.
template <class F>
std::string refusal_once_heard(F f, Code code) {
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
       std::chrono::steady_clock::now() < end;) {
    try {
      f();
    } catch (const Error& e) {
      if (e.code() == Code::unavailable) continue;
      BOOST_TEST((e.code() == code), e.what());
      return e.what();
    }
    break;
  }
  BOOST_ERROR("nothing was thrown but that it is unavailable");
  return "";
}

}  // namespace troupe::test
