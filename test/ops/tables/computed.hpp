// Functions of the DSL computed everywhere alike, in f64, with their gradients by differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/autodiff/check.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/ops/tables/places.hpp>
#include <troupe/test/ops/tables/table.hpp>
#include <troupe/test/support/callable.hpp>

namespace troupe::test {

inline Tensor tensor_of(const Sample& s) {
  Tensor t = Tensor::empty(s.role == Role::index   ? DType::i64
                           : s.role == Role::truth ? DType::boolean
                                                   : DType::f64,
                           s.array.shape);
  for (std::size_t i = 0; i < s.array.v.size(); ++i) {
    if (s.role == Role::index)
      static_cast<std::int64_t*>(t.raw_mutable())[i] = static_cast<std::int64_t>(s.array.v[i]);
    else if (s.role == Role::truth) static_cast<bool*>(t.raw_mutable())[i] = s.array.v[i] != 0;
    else static_cast<double*>(t.raw_mutable())[i] = s.array.v[i];
  }
  return t;
}

using Function = Callable<Expr(const Exprs&)>;

/// The function of the samples, everywhere alike; checked by differences up to `order`.
inline Array computed(const std::vector<Sample>& samples, const Function& f, int order = 2) {
  // not static: engines end before the thread that made them does
  const std::vector<Place> everywhere = places();
  std::vector<Tensor> inputs;
  for (const Sample& s : samples) inputs.push_back(tensor_of(s));
  Array first;
  for (const Place& place : everywhere) {
    Graph g;
    Exprs xs;
    Feeds feeds;
    for (const Tensor& t : inputs) {
      xs.push_back(g.input("x" + std::to_string(xs.size()), t.dtype(), t.shape()));
      feeds.emplace_back(xs.back(), t);
    }
    Array got = Array::of(place.evaluate(g, feeds, {f(xs)})[0]);
    if (&place == &everywhere[0]) first = got;
    BOOST_TEST((got.shape == first.shape), place.name);
    double worst = 0;
    for (std::size_t i = 0; i < got.v.size(); ++i)
      if (got.v[i] != first.v[i]) worst = std::max(worst, std::abs(got.v[i] - first.v[i]));
    BOOST_TEST(worst < 1e-12, place.name << " is off by " << worst);
  }
  if (order > 0) {
    CheckReport r = check_gradients([&](Graph&, const Exprs& xs) { return f(xs); }, inputs,
                                    {.tolerance = 2e-6, .order = order});
    BOOST_TEST(r.ok(), r.text);
  }
  return first;
}

inline void same(const Array& got, const Array& wanted, double tolerance = 1e-11) {
  BOOST_REQUIRE_MESSAGE(got.shape == wanted.shape, got.shape.text()
                                                       << ", not " << wanted.shape.text());
  for (std::size_t i = 0; i < got.v.size(); ++i)
    BOOST_TEST((got.v[i] == wanted.v[i] || std::abs(got.v[i] - wanted.v[i]) <=
                                               tolerance * std::max(1.0, std::abs(wanted.v[i]))),
               "[" << i << "] is " << got.v[i] << ", not " << wanted.v[i]);
}

inline void says(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    BOOST_TEST(text.find(part) != std::string::npos, "'" << part << "' is not in: " << text);
}

}  // namespace troupe::test
