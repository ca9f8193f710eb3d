// Connectionist temporal classification, forwards and backwards over the labels with blanks
// between, in logarithms of double precision (Graves et al., 2006, §4.1).
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/cpu/elements/move.hpp>
#include <troupe/devices/device/ctc.hpp>

namespace troupe::cpu {
namespace {

double log_add(double a, double b) {
  if (a == -INFINITY) return b;
  if (b == -INFINITY) return a;
  return a > b ? a + std::log1p(std::exp(b - a)) : b + std::log1p(std::exp(a - b));
}
double value_of(double x) { return x; }

// A number and its derivative in the direction: computations with it yield the second derivative of
// the loss.
struct Dual {
  double value, slope;
  Dual(double v, double s = 0) : value(v), slope(s) {}  // NOLINT
  friend Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
  friend Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
};
Dual log_add(Dual a, Dual b) {
  if (a.value == -INFINITY) return b;
  if (b.value == -INFINITY) return a;
  const double sum = log_add(a.value, b.value);
  return {sum, a.slope * std::exp(a.value - sum) + b.slope * std::exp(b.value - sum)};
}
double value_of(Dual x) { return x.value; }
/// The contribution of a state to the result; x is the logarithm of its probability.
double share_of(double x) { return std::exp(x); }
double share_of(Dual x) { return std::exp(x.value) * x.slope; }

std::int64_t length_of(const ConstView& lengths, std::int64_t item, std::int64_t most,
                       const char* of) {
  const std::int64_t n = index_at(lengths, item);
  if (n < 0 || n > most)
    throw Error(Code::out_of_range,
                fmt::format("the length {} of {} {} is outside [0, {}]", n, of, item, most));
  return n;
}

// Number: double, or Dual in a direction.
template <class T, class Number>
void ctc_of_item(const CtcArgs& a, std::int64_t item) {
  const std::int64_t time = length_of(a.time_lengths, item, a.time, "sequence"),
                     labels = length_of(a.label_lengths, item, a.most, "label row");
  const T* x = static_cast<const T*>(a.log_probabilities.data()) + item * a.time * a.classes;
  T* gradient = static_cast<T*>(a.gradient.data) + item * a.time * a.classes;
  std::memset(static_cast<void*>(gradient), 0,
              static_cast<std::size_t>(a.time * a.classes) * sizeof(T));
  [[maybe_unused]] const T* direction =
      a.direction.data() ? static_cast<const T*>(a.direction.data()) + item * a.time * a.classes
                         : nullptr;
  auto log_of = [&](std::int64_t t, std::int64_t c) -> Number {
    const std::int64_t at = t * a.classes + c;
    if constexpr (std::is_same_v<Number, Dual>)
      return {static_cast<double>(x[at]), static_cast<double>(direction[at])};
    else return static_cast<double>(x[at]);
  };
  auto tell = [&](double loss) {
    if (a.loss.data) static_cast<T*>(a.loss.data)[item] = static_cast<T>(loss);
  };

  // blank, label, blank, label … blank
  const std::int64_t states = 2 * labels + 1;
  std::vector<std::int64_t> wanted(static_cast<std::size_t>(states), 0);
  for (std::int64_t i = 0; i < labels; ++i) {
    const std::int64_t label = index_at(a.labels, item * a.most + i);
    if (label < 1 || label >= a.classes)
      throw Error(Code::out_of_range,
                  fmt::format("label {} at position {} of item {} is outside [1, {})", label, i,
                              item, a.classes));
    wanted[static_cast<std::size_t>(2 * i + 1)] = label;
  }
  if (time == 0) return tell(labels == 0 ? 0 : INFINITY);
  auto may_skip = [&](std::int64_t s) {  // from s - 2 to s
    const auto at = static_cast<std::size_t>(s);
    return s >= 2 && wanted[at] != 0 && wanted[at] != wanted[at - 2];
  };
  std::vector<Number> forward(static_cast<std::size_t>(time * states), Number(-INFINITY)),
      backward = forward;
  auto f = [&](std::int64_t t, std::int64_t s) -> Number& {
    return forward[static_cast<std::size_t>(t * states + s)];
  };
  auto b = [&](std::int64_t t, std::int64_t s) -> Number& {
    return backward[static_cast<std::size_t>(t * states + s)];
  };
  for (std::int64_t t = 0; t < time; ++t)
    for (std::int64_t s = 0; s < states; ++s) {
      Number before = t == 0 && s < 2 ? 0.0 : -INFINITY;
      if (t > 0) {
        before = f(t - 1, s);
        if (s > 0) before = log_add(before, f(t - 1, s - 1));
        if (may_skip(s)) before = log_add(before, f(t - 1, s - 2));
      }
      f(t, s) = before + log_of(t, wanted[static_cast<std::size_t>(s)]);
    }
  // Without the element's own probability, so that f + b is a path's.
  for (std::int64_t t = time; t-- > 0;)
    for (std::int64_t s = 0; s < states; ++s) {
      Number after = t == time - 1 && s >= states - 2 ? 0.0 : -INFINITY;
      if (t < time - 1) {
        auto next = [&](std::int64_t to) {
          return b(t + 1, to) + log_of(t + 1, wanted[static_cast<std::size_t>(to)]);
        };
        after = next(s);
        if (s + 1 < states) after = log_add(after, next(s + 1));
        if (s + 2 < states && may_skip(s + 2)) after = log_add(after, next(s + 2));
      }
      b(t, s) = after;
    }
  Number all = f(time - 1, states - 1);
  if (states > 1) all = log_add(all, f(time - 1, states - 2));
  tell(-value_of(all));
  // the labels do not fit into the time: no gradient leads there
  if (value_of(all) == -INFINITY) return;
  for (std::int64_t t = 0; t < time; ++t)
    for (std::int64_t s = 0; s < states; ++s)
      gradient[t * a.classes + wanted[static_cast<std::size_t>(s)]] -=
          static_cast<T>(share_of(f(t, s) + b(t, s) - all));
}

}  // namespace

void CpuPrimitives::ctc(Stream&, const CtcArgs& a) const {
  for (const ConstView* indices : {&a.labels, &a.time_lengths, &a.label_lengths})
    check_index_type(*indices);
  for_blocks(a.batch * a.time * (2 * a.most + 1) <= kSmallWork / 4 ? nullptr : pool_, a.batch,
             [&](int i) {
               visit_wide_float("ctc", a.gradient.dtype, [&]<class T>(type_tag<T>) {
                 a.direction.data() ? ctc_of_item<T, Dual>(a, i) : ctc_of_item<T, double>(a, i);
               });
             });
}

}  // namespace troupe::cpu
