// Softmax and cross entropy along the last axis. f32 (and f16, bf16 by way of it) uses the level's
// row kernels; f64 the plain loops. Sums are in double, those of f32 of four exponentials that were
// added in float: they are at most 1.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/cpu/elements/move.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/cpu/scratch.hpp>

namespace troupe::cpu {
namespace {

// A NaN shows in the sum of exponentials.
float row_max(const float* x, std::int64_t n) { return level_kernels().top_f32(x, n); }
double row_max(const double* x, std::int64_t n) {
  double best = -INFINITY;
  for (std::int64_t i = 0; i < n; ++i) best = x[i] > best || std::isnan(x[i]) ? x[i] : best;
  return best;
}
double exp_sum(float* out, const float* x, float shift, std::int64_t n) {
  return level_kernels().exp_sum_f32(out, x, shift, n);
}
double exp_sum(double* out, const double* x, double shift, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    double e = std::exp(x[i] - shift);
    if (out) out[i] = e;
    total += e;
  }
  return total;
}
void shift_scale(float* out, const float* x, float shift, float scale, std::int64_t n) {
  level_kernels().shift_scale_f32(out, x, shift, scale, n);
}
void shift_scale(double* out, const double* x, double shift, double scale, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = (x[i] - shift) * scale;
}

// The sum of exp(x - top) over a row without element `but`: its term may be 1, beside which the
// rest would be lost. `out`, if not null, gets 0 for that element.
template <class T>
double exp_sum_of_others(T* out, const T* x, T top, std::int64_t n, std::int64_t but) {
  double total = but > 0 ? exp_sum(out, x, top, but) : 0;
  if (out) out[but] = 0;
  const std::int64_t next = but + 1;
  if (next < n) total += exp_sum(out ? out + next : out, x + next, top, n - next);
  return total;
}

// Returns the first index at which x equals `value`, or 0 if there is none, as with a NaN in x.
template <class T>
std::int64_t first_equal_to(const T* x, std::int64_t n, T value) {
  constexpr std::int64_t kPart = 64;
  for (std::int64_t i = 0; i < n; i += kPart) {
    const std::int64_t count = std::min(kPart, n - i);
    bool is_there = false;
    for (std::int64_t j = 0; j < count; ++j) is_there |= x[i + j] == value;
    if (is_there) return std::find(x + i, x + i + count, value) - x;
  }
  return 0;
}

// A row of nothing but -inf has no softmax: NaN, as the formula gives.
template <class T>
void softmax_row(T* out, const T* x, std::int64_t n, bool log) {
  T top = row_max(x, n);
  if (log) {
    // In two steps: the sum of both shifts has no digits for the second where the first is large.
    const double rest =
        exp_sum_of_others(static_cast<T*>(nullptr), x, top, n, first_equal_to(x, n, top));
    shift_scale(out, x, top, T(1), n);
    shift_scale(out, out, static_cast<T>(std::log1p(rest)), T(1), n);
  } else {
    double sum = exp_sum(out, x, top, n);
    shift_scale(out, out, T(0), static_cast<T>(1 / sum), n);
  }
}

template <class T>
double loss_of_row(const T* x, std::int64_t n, std::int64_t label) {
  const T top = row_max(x, n);
  const double rest = exp_sum_of_others(static_cast<T*>(nullptr), x, top, n, label);
  if (x[label] == top) return std::log1p(rest) + (double(top) - double(x[label]));
  const double behind = double(top) - double(x[label]);
  return behind + std::log(rest + std::exp(-behind));
}

template <class T>
void gradient_row(T* out, const T* x, std::int64_t n, std::int64_t label, double scale) {
  const T top = row_max(x, n);
  const double own = std::exp(double(x[label]) - double(top)),
               rest = exp_sum_of_others(out, x, top, n, label), sum = rest + own;
  const T factor = static_cast<T>(scale / sum), at_label = static_cast<T>(-(rest / sum) * scale);
  shift_scale(out, out, T(0), factor, n);
  out[label] = at_label;
}

// Rows as T, or, for f16 and bf16, converted to floats and back.
template <class T, class F>
void with_row(const T* in, T* out, std::int64_t n, F&& f) {
  if constexpr (std::is_floating_point_v<T>) {
    f(in, out);
  } else {
    float* row =
        reinterpret_cast<float*>(thread_scratch(2 * static_cast<std::size_t>(n) * sizeof(float)));
    for (std::int64_t i = 0; i < n; ++i) row[i] = float(in[i]);
    f(static_cast<const float*>(row), row + n);
    for (std::int64_t i = 0; out && i < n; ++i) out[i] = T(row[n + i]);
  }
}

template <class F>
void visit_floating(const char* op, DType type, F&& f) {
  switch (type) {
    case DType::f16: return f(type_tag<half>{});
    case DType::bf16: return f(type_tag<bfloat16>{});
    case DType::f32: return f(type_tag<float>{});
    case DType::f64: return f(type_tag<double>{});
    default:
      throw Error(Code::unimplemented, fmt::format("{} of {} is not defined", op, name_of(type)));
  }
}

template <class F>
void for_each_row(WorkerPool* pool, std::int64_t rows, std::int64_t n, F&& f) {
  for_rows(pool, rows, n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) f(r);
  });
}

double real_at(const ConstView& v, std::int64_t i) {
  double value = 0;
  visit_floating("cross_entropy_gradient", v.dtype, [&]<class T>(type_tag<T>) {
    T x = static_cast<const T*>(v.data())[i];
    if constexpr (std::is_floating_point_v<T>) value = x;
    else value = float(x);
  });
  return value;
}

}  // namespace

void CpuPrimitives::softmax(Stream&, ConstView in, View out, bool log) const {
  if (in.elements() == 0) return;
  std::int64_t n = in.shape.rank() ? in.shape[in.shape.rank() - 1] : 1, rows = in.elements() / n;
  visit_floating("softmax", in.dtype, [&]<class T>(type_tag<T>) {
    const T* from = static_cast<const T*>(in.data());
    T* to = static_cast<T*>(out.data);
    for_each_row(pool_, rows, n, [&](std::int64_t r) {
      with_row(from + r * n, to + r * n, n,
               [&](const Wide<T>* x, Wide<T>* y) { softmax_row(y, x, n, log); });
    });
  });
}

void CpuPrimitives::cross_entropy(Stream&, ConstView logits, ConstView labels, View loss) const {
  check_index_type(labels);
  std::int64_t rows = logits.shape[0], n = logits.shape[1];
  for (std::int64_t r = 0; r < rows; ++r) check_index(index_at(labels, r), r, n);
  visit_floating("cross_entropy", logits.dtype, [&]<class T>(type_tag<T>) {
    const T* from = static_cast<const T*>(logits.data());
    T* to = static_cast<T*>(loss.data);
    for_each_row(pool_, rows, n, [&](std::int64_t r) {
      with_row(from + r * n, static_cast<T*>(nullptr), n, [&](const Wide<T>* x, Wide<T>*) {
        to[r] = T(static_cast<Wide<T>>(loss_of_row(x, n, index_at(labels, r))));
      });
    });
  });
}

void CpuPrimitives::cross_entropy_gradient(Stream&, ConstView logits, ConstView labels,
                                           ConstView scale, View out) const {
  check_index_type(labels);
  std::int64_t rows = logits.shape[0], n = logits.shape[1];
  for (std::int64_t r = 0; r < rows; ++r) check_index(index_at(labels, r), r, n);
  visit_floating("cross_entropy_gradient", logits.dtype, [&]<class T>(type_tag<T>) {
    const T* from = static_cast<const T*>(logits.data());
    T* to = static_cast<T*>(out.data);
    for_each_row(pool_, rows, n, [&](std::int64_t r) {
      with_row(from + r * n, to + r * n, n, [&](const Wide<T>* x, Wide<T>* y) {
        gradient_row(y, x, n, index_at(labels, r), real_at(scale, r));
      });
    });
  });
}

}  // namespace troupe::cpu
