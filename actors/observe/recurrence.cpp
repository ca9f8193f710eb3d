#include <troupe/actors/observe/recurrence.hpp>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace troupe {
namespace {

// splitmix64's finaliser: a bijection in which every bit depends on every other (Steele, Lea and
// Flood, 2014).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

bool is_readable(const Value& value) {
  return (value.is_inline() || value.kind() == Value::Kind::tensor) &&
         value.dtype() != DType::string && value.tensor().is_on_host();
}

}  // namespace

void Recurrence::begin(std::size_t variables, std::size_t window) {
  variables_ = variables;
  open_.assign(variables == 0 ? 0 : std::bit_ceil(window + 1), {});
  mark_ = {};
  reach_ = 1, period_ = seen_ = 0;
}

void Recurrence::see(std::int64_t n, std::size_t variable, const Value& value, std::size_t& bytes) {
  if (period_ > 0 || variables_ == 0 || !is_readable(value) || value.tensor().bytes() > bytes)
    return;
  bytes -= value.tensor().bytes();
  State& state = open_[static_cast<std::size_t>(n) & (open_.size() - 1)];
  if (state.iteration != n) state = {n, 0, {}};
  const Digest of = digest(variable, value.tensor());
  state.sum.a += of.a, state.sum.b += of.b;
  if (++state.variables < variables_) return;
  ++seen_;
  compare(state);
}

void Recurrence::compare(const State& state) {
  if (mark_.iteration >= 0 && state.sum == mark_.sum) {
    period_ = std::abs(state.iteration - mark_.iteration);
  } else if (mark_.iteration < 0 || state.iteration - mark_.iteration >= reach_) {
    if (mark_.iteration >= 0) reach_ *= 2;
    mark_ = state;
  }
}

// Digests the bits of the value: a NaN equals itself, and the two zeros differ.
Recurrence::Digest Recurrence::digest(std::size_t variable, const Tensor& value) {
  Digest d{mixed(variable + 1), mixed(~static_cast<std::uint64_t>(variable))};
  const auto add = [&d](std::uint64_t word) {
    d.a = mixed(d.a ^ word) + 0x9E3779B97F4A7C15;
    d.b = mixed(d.b + word) ^ 0xD1B54A32D192ED03;
  };
  add(static_cast<std::uint64_t>(value.dtype()));
  const Shape shape = value.shape();
  for (const std::int64_t extent : shape.dims()) add(static_cast<std::uint64_t>(extent));
  const auto* bytes = static_cast<const unsigned char*>(value.raw());
  for (std::size_t left = value.bytes(), n; left > 0; bytes += n, left -= n) {
    std::uint64_t word = 0;
    n = std::min(left, sizeof word);
    std::memcpy(&word, bytes, n);
    add(word);
  }
  return d;
}

}  // namespace troupe
