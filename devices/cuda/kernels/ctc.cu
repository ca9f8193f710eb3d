// Connectionist temporal classification: a block an item, a thread for some states, which are the
// labels with blanks between. The block goes forwards over the time, keeping all sums, and then
// backwards with the sums of two times (Graves et al., 2006, §4.1). Sums are logarithms of double
// precision. States of one class add up in their order, by the thread of the first.
#include <troupe/devices/cuda/kernels/ctc.hpp>
#include <troupe/devices/cuda/kernels/grid.hpp>
#include <troupe/devices/cuda/kernels/launch.hpp>

namespace troupe::cuda {
namespace {

__device__ inline double log_add(double a, double b) {
  if (a == -INFINITY) return b;
  if (b == -INFINITY) return a;
  return a > b ? a + log1p(exp(b - a)) : b + log1p(exp(a - b));
}
__device__ inline double value_of(double x) { return x; }
__device__ inline double share_of(double x) { return exp(x); }

// A number and its derivative along the direction.
struct Dual {
  double value, slope;
};
__device__ inline Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
__device__ inline Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
__device__ inline Dual log_add(Dual a, Dual b) {
  if (a.value == -INFINITY) return b;
  if (b.value == -INFINITY) return a;
  const double sum = log_add(a.value, b.value);
  return {sum, a.slope * exp(a.value - sum) + b.slope * exp(b.value - sum)};
}
__device__ inline double value_of(Dual x) { return x.value; }
__device__ inline double share_of(Dual x) { return exp(x.value) * x.slope; }

template <class Number>
__device__ Number constant(double value) {
  if constexpr (std::is_same_v<Number, Dual>) return {value, 0};
  else return value;
}

// The scratch memory of an item. A state's class comes with the next state of that class, -1: none,
// and with whether there is none before.
template <class Number>
struct CtcItem {
  Number *forward, *backward;  // [time, states], [2, states]
  double* shares;              // [states]
  std::int32_t *classes, *next, *is_first;

  static std::size_t bytes(std::int64_t time, std::int64_t states) {
    const std::int64_t all = (time + 2) * states * static_cast<std::int64_t>(sizeof(Number)) +
                             states * static_cast<std::int64_t>(sizeof(double)) +
                             3 * states * static_cast<std::int64_t>(sizeof(std::int32_t));
    return static_cast<std::size_t>((all + 15) / 16 * 16);
  }
  __device__ CtcItem(unsigned char* scratch, std::int64_t time, std::int64_t states)
      : forward(reinterpret_cast<Number*>(scratch)), backward(forward + time * states),
        shares(reinterpret_cast<double*>(backward + 2 * states)),
        classes(reinterpret_cast<std::int32_t*>(shares + states)), next(classes + states),
        is_first(next + states) {}
};

template <class T, class Number>
struct CtcInput {
  const T *x, *direction;
  std::int64_t classes;
  __device__ Number operator()(std::int64_t t, std::int64_t c) const {
    const std::int64_t at = t * classes + c;
    if constexpr (std::is_same_v<Number, Dual>)
      return {static_cast<double>(x[at]), static_cast<double>(direction[at])};
    else return static_cast<double>(x[at]);
  }
};

// All threads of a block find the same, and the first one records it.
__device__ inline bool is_recorded(bool is_wrong, std::int64_t position, std::int64_t index,
                                   IndexRecord* record) {
  if (is_wrong && threadIdx.x == 0) atomicMin(&record->word, IndexRecord::packed(position, index));
  return is_wrong;
}

template <class T, class Number>
__global__ __launch_bounds__(kThreads) void ctc_items(const T* x, const T* direction, T* loss,
                                                      T* gradient, CtcShape s,
                                                      unsigned char* scratch,
                                                      std::size_t item_bytes) {
  const std::int64_t item = blockIdx.x, lane = threadIdx.x, lanes = blockDim.x,
                     first = item * s.time * s.classes;
  T* const out = gradient + first;
  for (std::int64_t i = lane; i < s.time * s.classes; i += lanes) out[i] = T(0);
  const Indices of_labels{s.labels, s.are_labels_i64};
  const std::int64_t time = Indices{s.time_lengths, s.are_times_i64}[item],
                     labels = Indices{s.label_lengths, s.are_lengths_i64}[item];
  if (is_recorded(!is_inside(time, s.time + 1), item, time, s.time_record) ||
      is_recorded(!is_inside(labels, s.most + 1), item, labels, s.length_record))
    return;
  for (std::int64_t i = 0; i < labels; ++i) {
    const std::int64_t label = of_labels[item * s.most + i];
    if (is_recorded(label < 1 || label >= s.classes, item * s.most + i, label, s.label_record))
      return;
  }
  if (time == 0) {
    if (loss && lane == 0) loss[item] = labels == 0 ? T(0) : T(INFINITY);
    return;
  }
  const std::int64_t states = 2 * labels + 1;
  const CtcItem<Number> own(scratch + static_cast<std::size_t>(item) * item_bytes, time, states);
  const CtcInput<T, Number> log_of{x + first, direction ? direction + first : nullptr, s.classes};
  for (std::int64_t i = lane; i < states; i += lanes)
    own.classes[i] = i % 2 == 0 ? 0 : static_cast<std::int32_t>(of_labels[item * s.most + i / 2]);
  __syncthreads();
  for (std::int64_t i = lane; i < states; i += lanes) {
    std::int64_t next = i + 2, before = i - 2;
    while (next < states && own.classes[next] != own.classes[i]) next += 2;
    while (before >= 0 && own.classes[before] != own.classes[i]) before -= 2;
    own.next[i] = next < states ? static_cast<std::int32_t>(next) : -1;
    own.is_first[i] = before < 0;
  }
  const auto may_skip = [&](std::int64_t i) {  // from i - 2 to i
    return i >= 2 && own.classes[i] != 0 && own.classes[i] != own.classes[i - 2];
  };
  const Number none = constant<Number>(-INFINITY), sure = constant<Number>(0);
  for (std::int64_t t = 0; t < time; ++t) {
    const Number* const last = own.forward + (t - 1) * states;  // not read at the first time
    for (std::int64_t i = lane; i < states; i += lanes) {
      Number before = t == 0 && i < 2 ? sure : none;
      if (t > 0) {
        before = last[i];
        if (i > 0) before = log_add(before, last[i - 1]);
        if (may_skip(i)) before = log_add(before, last[i - 2]);
      }
      own.forward[t * states + i] = before + log_of(t, own.classes[i]);
    }
    __syncthreads();
  }
  const Number* const end = own.forward + (time - 1) * states;
  Number all = end[states - 1];
  if (states > 1) all = log_add(all, end[states - 2]);
  if (loss && lane == 0) loss[item] = static_cast<T>(-value_of(all));
  // The labels do not fit into the time: no gradient leads there.
  if (value_of(all) == -INFINITY) return;
  for (std::int64_t t = time; t-- > 0;) {
    // Without the element's own probability, so that forward + backward is a path's.
    Number* const now = own.backward + t % 2 * states;
    const Number* const later = own.backward + (t + 1) % 2 * states;
    for (std::int64_t i = lane; i < states; i += lanes) {
      Number after = t == time - 1 && i >= states - 2 ? sure : none;
      if (t < time - 1) {
        after = later[i] + log_of(t + 1, own.classes[i]);
        if (i + 1 < states)
          after = log_add(after, later[i + 1] + log_of(t + 1, own.classes[i + 1]));
        if (i + 2 < states && may_skip(i + 2))
          after = log_add(after, later[i + 2] + log_of(t + 1, own.classes[i + 2]));
      }
      now[i] = after;
      own.shares[i] = share_of(own.forward[t * states + i] + after - all);
    }
    __syncthreads();
    for (std::int64_t i = lane; i < states; i += lanes) {
      if (!own.is_first[i]) continue;
      double sum = 0;
      for (std::int64_t k = i; k >= 0; k = own.next[k]) sum += own.shares[k];
      out[t * s.classes + own.classes[i]] = static_cast<T>(-sum);
    }
    __syncthreads();
  }
}

template <class T, class Number>
cudaError_t run(cudaStream_t stream, const void* x, const void* direction, void* loss,
                void* gradient, const CtcShape& s, void* scratch) {
  const std::int64_t states = 2 * s.most + 1;
  const int threads = states <= 32 ? 32 : states <= 128 ? 128 : kThreads;
  return launch(stream, dim3(static_cast<unsigned>(s.batch)), dim3(static_cast<unsigned>(threads)),
                0, ctc_items<T, Number>, static_cast<const T*>(x), static_cast<const T*>(direction),
                static_cast<T*>(loss), static_cast<T*>(gradient), s,
                static_cast<unsigned char*>(scratch), CtcItem<Number>::bytes(s.time, states));
}

}  // namespace

std::size_t ctc_scratch(const CtcShape& s, bool has_direction) {
  const std::int64_t states = 2 * s.most + 1;
  return static_cast<std::size_t>(s.batch) * (has_direction
                                                  ? CtcItem<Dual>::bytes(s.time, states)
                                                  : CtcItem<double>::bytes(s.time, states));
}

cudaError_t ctc(cudaStream_t stream, DType dtype, const void* x, const void* direction, void* loss,
                void* gradient, const CtcShape& s, void* scratch) {
  const auto of = [&](auto number) {
    using Number = decltype(number);
    if (dtype == DType::f32)
      return run<float, Number>(stream, x, direction, loss, gradient, s, scratch);
    if (dtype == DType::f64)
      return run<double, Number>(stream, x, direction, loss, gradient, s, scratch);
    return cudaErrorInvalidValue;
  };
  return direction ? of(Dual{}) : of(double{});
}

}  // namespace troupe::cuda
