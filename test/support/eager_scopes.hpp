// Eager scopes for tests, alone and in engines of one and two workers, and how their values read.
#pragma once

#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/ops/eager/eager.hpp>

namespace troupe::test {

using Numbers = std::vector<double>;

inline double number(const Expr& e) { return e.value().at(0); }
inline Numbers numbers(const Expr& e) {
  Numbers out;
  for (std::int64_t i = 0; i < e.value().elements(); ++i) out.push_back(e.value().at(i));
  return out;
}
inline Expr matrix(Eager& e, std::initializer_list<double> v, const Shape& shape) {
  return e.constant(Tensor::of<double>(v, shape));
}

/// Has the error this code, and its message all these parts?
inline bool says(const Error& e, Code code, std::initializer_list<std::string> parts) {
  const std::string text = e.what();
  bool has_all = e.code() == code;
  for (const std::string& p : parts) has_all = has_all && text.find(p) != std::string::npos;
  if (!has_all) BOOST_TEST_MESSAGE(text);
  return has_all;
}

template <class Test>
void in_each_scope(Test test) {
  BOOST_TEST_CONTEXT("without an engine") {
    Eager e;
    test(e);
  }
  for (const int workers : {1, 2}) BOOST_TEST_CONTEXT("in an engine of " << workers) {
      EngineOptions options;
      options.workers = workers;
      Engine engine(options);
      Eager e(engine);
      test(e);
    }
}

}  // namespace troupe::test
