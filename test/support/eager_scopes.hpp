// Eager scopes for tests: alone, in engines of one and two workers, on another node; and how their
// values read.
#pragma once

#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/support/cluster/nodes.hpp>

namespace troupe::test {

using Numbers = std::vector<double>;

/// An eager value, from whichever device.
inline Tensor value_of(const Expr& e) { return dynamic_cast<Eager&>(e.reader()).on_host(e); }
inline double number(const Expr& e) { return value_of(e).at(0); }
inline Numbers numbers(const Expr& e) {
  const Tensor t = value_of(e);
  Numbers out;
  for (std::int64_t i = 0; i < t.elements(); ++i) out.push_back(t.at(i));
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

/// As `in_each_scope`, and in one that computes on another node.
template <class Test>
void in_each_place(Test test) {
  in_each_scope(test);
  BOOST_TEST_CONTEXT("on another node") {
    Nodes nodes(2, stepped(1));
    Eager e(nodes.engine());
    const auto there = e.on_device("/node:b/cpu:0");
    test(e);
  }
}

}  // namespace troupe::test
