// Short names for the arrays, samples and tensors that tests of single functions are given.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <troupe/test/ops/tables/computed.hpp>

namespace troupe::test {

using Floats = std::vector<double>;

inline Sample given(const Shape& shape, Floats v, Role role = Role::value) {
  return {{shape, std::move(v)}, role};
}

inline Array vector_of(Floats v) {
  return {Shape{static_cast<std::int64_t>(v.size())}, std::move(v)};
}

inline Tensor doubles(const Shape& s, const Floats& v) { return Tensor::of(v, s); }

}  // namespace troupe::test
