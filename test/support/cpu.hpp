// Helpers shared by the suites of the CPU device's primitives.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/support/numbers.hpp>
#include <troupe/test/support/share.hpp>

namespace troupe::test {

inline constexpr int kRoundShare = static_cast<int>(kShare);

/// A device of two workers beside one without, and draws that are the same in every run.
struct Cpu {
  WorkerPool pool{2};
  std::unique_ptr<Device> device = make_cpu_device({&pool, "cpu:0"});
  std::unique_ptr<Stream> stream = device->make_stream();
  std::unique_ptr<Device> alone = make_cpu_device();
  std::mt19937_64 random{42};

  const Primitives& p() const { return device->primitives(); }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  }
  Shape shape(int max_rank, std::int64_t max_extent, bool zeros = true) {
    Shape s;
    for (std::int64_t r = below(max_rank + 1); r > 0; --r)
      s.push_back(zeros ? below(max_extent + 1) : 1 + below(max_extent));
    return s;
  }
};

/// Convert between the index of an element of a shape and its coordinates by axis.
inline std::vector<std::int64_t> coordinates(std::int64_t i, const Shape& s) {
  std::vector<std::int64_t> c(static_cast<std::size_t>(s.rank()));
  for (int d = s.rank() - 1; d >= 0; --d) {
    c[static_cast<std::size_t>(d)] = i % s[d];
    i /= s[d];
  }
  return c;
}
inline std::int64_t position(const std::vector<std::int64_t>& c, const Shape& s) {
  std::int64_t i = 0;
  for (int d = 0; d < s.rank(); ++d) i = i * s[d] + c[static_cast<std::size_t>(d)];
  return i;
}

inline bool throws_code(Code code, auto&& f) {
  try {
    f();
  } catch (const Error& e) { return e.code() == code; }
  return false;
}

}  // namespace troupe::test
