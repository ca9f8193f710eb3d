// Arrays of doubles and what is computed on them slowly and plainly: the references that ops are
// compared with. Nothing here shares code with kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include <troupe/devices/base/shape.hpp>
#include <troupe/devices/tensor/tensor.hpp>
#include <troupe/test/support/callable.hpp>

namespace troupe::test {

using Index = std::vector<std::int64_t>;

struct Array {
  Shape shape;
  std::vector<double> v;

  static Array filled(const Shape& shape, double value) {
    return {shape, std::vector<double>(static_cast<std::size_t>(shape.elements()), value)};
  }
  static Array of(const Tensor& t) {
    Array a{t.shape(), {}};
    for (std::int64_t i = 0; i < t.elements(); ++i) a.v.push_back(t.at(i));
    return a;
  }
  std::size_t position(const Index& i) const {
    std::int64_t p = 0;
    for (int k = 0; k < shape.rank(); ++k) p = p * shape[k] + i[static_cast<std::size_t>(k)];
    return static_cast<std::size_t>(p);
  }
  double& operator[](const Index& i) { return v[position(i)]; }
  double operator[](const Index& i) const { return v[position(i)]; }
  /// The element that broadcasting puts at `i` of a larger shape.
  double broadcast_at(const Index& i) const {
    Index own(i.end() - shape.rank(), i.end());
    for (int k = 0; k < shape.rank(); ++k)
      if (shape[k] == 1) own[static_cast<std::size_t>(k)] = 0;
    return (*this)[own];
  }
};

/// Calls f with every index of `shape`, in row-major order.
inline void for_each_index(const Shape& shape, const Callable<void(const Index&)>& f) {
  if (shape.elements() == 0) return;
  Index i(static_cast<std::size_t>(shape.rank()), 0);
  for (std::int64_t n = shape.elements(); n > 0; --n) {
    f(i);
    for (int k = shape.rank() - 1; k >= 0; --k) {
      if (++i[static_cast<std::size_t>(k)] < shape[k]) break;
      i[static_cast<std::size_t>(k)] = 0;
    }
  }
}

/// Each element of `shape` from its index.
inline Array tabulate(const Shape& shape, const Callable<double(const Index&)>& f) {
  Array out{shape, {}};
  for_each_index(shape, [&](const Index& i) { out.v.push_back(f(i)); });
  return out;
}

/// Reduces the axes marked in `reduced` with `f`, which sees all elements that meet in one result.
inline Array reduce_with(const Array& x, std::vector<bool> reduced, bool keep_dims,
                         const Callable<double(const std::vector<double>&)>& f) {
  Shape out, kept;
  for (int k = 0; k < x.shape.rank(); ++k) {
    bool gone = reduced[static_cast<std::size_t>(k)];
    kept.push_back(gone ? 1 : x.shape[k]);
    if (!gone || keep_dims) out.push_back(gone ? 1 : x.shape[k]);
  }
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(kept.elements()));
  Array where{kept, {}};
  for_each_index(x.shape, [&](const Index& i) {
    Index own = i;
    for (std::size_t k = 0; k < own.size(); ++k)
      if (reduced[k]) own[k] = 0;
    groups[where.position(own)].push_back(x[i]);
  });
  Array result{out, {}};
  for (const auto& g : groups) result.v.push_back(f(g));
  return result;
}

}  // namespace troupe::test
