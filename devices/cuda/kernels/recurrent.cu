// One step of a recurrent layer behind its product, and back (devices/device/recurrent_cell.hpp has
// the equations). A thread computes one unit of one example.
#include <troupe/devices/cuda/kernels/launch.hpp>
#include <troupe/devices/cuda/kernels/nn.hpp>
#include <troupe/devices/cuda/kernels/row_group.hpp>

namespace troupe::cuda {
namespace {

__device__ inline float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1) / (1 + e);
}
__device__ inline double sigmoid(double x) {
  const double e = exp(-fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
__device__ inline float tangent(float x) { return tanhf(x); }
__device__ inline double tangent(double x) { return tanh(x); }

__host__ __device__ constexpr int gates_of(CellOp cell) {
  return cell == CellOp::lstm ? 4 : cell == CellOp::gru ? 3 : 1;
}

// Examples of different lengths: below 0 is 0, above the time all of it.
struct Lengths {
  Indices of;
  __device__ bool counts(std::int64_t example, std::int64_t time) const {
    return !of.data || time < of[example];
  }
  __device__ std::int64_t end(std::int64_t example, std::int64_t all) const {
    if (!of.data) return all;
    const std::int64_t n = of[example];
    return n < all ? n : all;
  }
};

template <class T>
struct Step {
  std::int64_t batch, units, time;
  Lengths lengths;
  const T *projected, *bias, *q, *h;
  T *next, *y, *c, *gates, *kept;
};

template <class T, CellOp cell>
__global__ __launch_bounds__(kThreads) void step_forward(Step<T> s) {
  constexpr int kGates = gates_of(cell);
  for (std::int64_t at = first_thread<std::int64_t>(); at < s.batch * s.units;
       at += all_threads<std::int64_t>()) {
    const std::int64_t b = at / s.units, u = at - b * s.units, first = b * kGates * s.units + u;
    T gate[kGates], q[kGates], h = 0, kept = 0;
    for (int g = 0; g < kGates; ++g) {
      q[g] = s.q[first + g * s.units];
      gate[g] = s.projected[first + g * s.units] + s.bias[g * s.units + u];
      if (cell != CellOp::gru) gate[g] += q[g];
    }
    s.next[at] = s.h[at];
    if (!s.lengths.counts(b, s.time)) {
      for (int g = 0; g < kGates; ++g) gate[g] = 0;
    } else {
      if constexpr (cell == CellOp::lstm) {
        gate[0] = sigmoid(gate[0]);
        gate[1] = sigmoid(gate[1]);
        gate[2] = tangent(gate[2]);
        gate[3] = sigmoid(gate[3]);
        kept = s.c[at] = gate[1] * s.c[at] + gate[0] * gate[2];
        h = gate[3] * tangent(kept);
      } else if constexpr (cell == CellOp::gru) {
        gate[0] = sigmoid(gate[0] + q[0]);
        gate[1] = sigmoid(gate[1] + q[1]);
        gate[2] = tangent(gate[2] + gate[0] * q[2]);
        h = gate[1] * s.h[at] + (1 - gate[1]) * gate[2];
        kept = q[2];
      } else if constexpr (cell == CellOp::tanh) {
        h = gate[0] = tangent(gate[0]);
      } else {
        h = gate[0] = gate[0] < 0 ? 0 : gate[0];  // NaN passes
      }
      s.next[at] = h;
    }
    for (int g = 0; g < kGates; ++g) s.gates[first + g * s.units] = gate[g];
    if (s.kept) s.kept[at] = kept;
    s.y[at] = h;
  }
}

template <class T>
struct Back {
  std::int64_t batch, units, time, all_time;
  bool is_reverse;
  Lengths lengths;
  const T *h0, *c0, *y, *gates, *kept, *dy;
  T *dh, *dc, *dprojected, *of_product, *state;

  /// The time before in the order of the walk; -1: none, the state is the first.
  __device__ std::int64_t earlier(std::int64_t example) const {
    if (!is_reverse) return time - 1;
    return time + 1 < lengths.end(example, all_time) ? time + 1 : -1;
  }
};

template <class T, CellOp cell>
__global__ __launch_bounds__(kThreads) void step_back(Back<T> s) {
  constexpr int kGates = gates_of(cell);
  const std::int64_t size = s.batch * s.units;
  for (std::int64_t at = first_thread<std::int64_t>(); at < size;
       at += all_threads<std::int64_t>()) {
    const std::int64_t b = at / s.units, u = at - b * s.units, first = b * kGates * s.units + u,
                       of_time = s.time * size * kGates;
    T gate[kGates], d[kGates] = {}, dq = 0, h = 0;
    for (int g = 0; g < kGates; ++g) gate[g] = s.gates[of_time + first + g * s.units];
    if (s.lengths.counts(b, s.time)) {
      const std::int64_t before = s.earlier(b);
      h = before < 0 ? s.h0[at] : s.y[before * size + at];
      const T dh = s.dh[at] + s.dy[s.time * size + at];
      s.dh[at] = 0;
      if constexpr (cell == CellOp::lstm) {
        const T c = before < 0 ? s.c0[at] : s.kept[before * size + at],
                t = tangent(s.kept[s.time * size + at]),
                of_c = s.dc[at] + dh * gate[3] * (1 - t * t);
        d[0] = of_c * gate[2] * gate[0] * (1 - gate[0]);
        d[1] = of_c * c * gate[1] * (1 - gate[1]);
        d[2] = of_c * gate[0] * (1 - gate[2] * gate[2]);
        d[3] = dh * t * gate[3] * (1 - gate[3]);
        s.dc[at] = of_c * gate[1];
      } else if constexpr (cell == CellOp::gru) {
        d[2] = dh * (1 - gate[1]) * (1 - gate[2] * gate[2]);
        d[1] = dh * (h - gate[2]) * gate[1] * (1 - gate[1]);
        d[0] = d[2] * s.kept[s.time * size + at] * gate[0] * (1 - gate[0]);
        dq = d[2] * gate[0];
        s.dh[at] = dh * gate[1];
      } else if constexpr (cell == CellOp::tanh) {
        d[0] = dh * (1 - gate[0] * gate[0]);
      } else {
        d[0] = gate[0] > 0 ? dh : 0;
      }
    }
    s.state[at] = h;
    for (int g = 0; g < kGates; ++g) s.dprojected[first + g * s.units] = d[g];
    if constexpr (cell == CellOp::gru)
      for (int g = 0; g < kGates; ++g) s.of_product[first + g * s.units] = g == 2 ? dq : d[g];
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void add_where_it_counts(T* __restrict__ dh,
                                                                const T* __restrict__ part,
                                                                std::int64_t n, std::int64_t units,
                                                                std::int64_t time,
                                                                Lengths lengths) {
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>())
    if (lengths.counts(i / units, time)) dh[i] += part[i];
}

template <class From, class To>
__global__ __launch_bounds__(kThreads) void convert_elements(const From* __restrict__ in,
                                                             To* __restrict__ out, std::int64_t n) {
  for (std::int64_t i = first_thread<std::int64_t>(); i < n; i += all_threads<std::int64_t>())
    out[i] = narrowed<To>(wide(in[i]));
}

template <class F>
cudaError_t visit_f32_f64(DType dtype, F&& f) {
  if (dtype == DType::f32) return f(type_tag<float>{});
  if (dtype == DType::f64) return f(type_tag<double>{});
  return cudaErrorInvalidValue;
}

template <class T>
const T* in(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
T* out(void* data) {
  return static_cast<T*>(data);
}

}  // namespace

cudaError_t recurrent_step(cudaStream_t stream, DType dtype, const CellStep& s) {
  const std::int64_t n = s.batch * s.units;
  if (n == 0) return cudaSuccess;
  return visit_f32_f64(dtype, [&]<class T>(type_tag<T>) {
    const Step<T> step{
        s.batch,       s.units,         s.time,        {{s.lengths, s.are_i64}}, in<T>(s.projected),
        in<T>(s.bias), in<T>(s.q),      in<T>(s.h),    out<T>(s.next),           out<T>(s.y),
        out<T>(s.c),   out<T>(s.gates), out<T>(s.kept)};
    return launch(stream, blocks_of(n), dim3(kThreads), 0,
                  s.cell == CellOp::lstm   ? step_forward<T, CellOp::lstm>
                  : s.cell == CellOp::gru  ? step_forward<T, CellOp::gru>
                  : s.cell == CellOp::tanh ? step_forward<T, CellOp::tanh>
                                           : step_forward<T, CellOp::relu>,
                  step);
  });
}

cudaError_t recurrent_back(cudaStream_t stream, DType dtype, const CellBack& s) {
  const std::int64_t n = s.batch * s.units;
  if (n == 0) return cudaSuccess;
  return visit_f32_f64(dtype, [&]<class T>(type_tag<T>) {
    const Back<T> back{s.batch,
                       s.units,
                       s.time,
                       s.all_time,
                       s.is_reverse,
                       {{s.lengths, s.are_i64}},
                       in<T>(s.h0),
                       in<T>(s.c0),
                       in<T>(s.y),
                       in<T>(s.gates),
                       in<T>(s.kept),
                       in<T>(s.dy),
                       out<T>(s.dh),
                       out<T>(s.dc),
                       out<T>(s.dprojected),
                       out<T>(s.of_product),
                       out<T>(s.state)};
    return launch(stream, blocks_of(n), dim3(kThreads), 0,
                  s.cell == CellOp::lstm   ? step_back<T, CellOp::lstm>
                  : s.cell == CellOp::gru  ? step_back<T, CellOp::gru>
                  : s.cell == CellOp::tanh ? step_back<T, CellOp::tanh>
                                           : step_back<T, CellOp::relu>,
                  back);
  });
}

cudaError_t add_product(cudaStream_t stream, DType dtype, void* dh, const void* part,
                        const CellBack& s) {
  const std::int64_t n = s.batch * s.units;
  if (n == 0) return cudaSuccess;
  return visit_f32_f64(dtype, [&]<class T>(type_tag<T>) {
    return launch(stream, blocks_of(n), dim3(kThreads), 0, add_where_it_counts<T>, out<T>(dh),
                  in<T>(part), n, s.units, s.time, Lengths{{s.lengths, s.are_i64}});
  });
}

cudaError_t convert(cudaStream_t stream, DType from, const void* elements, DType to, void* result,
                    std::int64_t n) {
  if (n == 0) return cudaSuccess;
  return visit_real(from, [&]<class From>(type_tag<From>) {
    return visit_real(to, [&]<class To>(type_tag<To>) {
      return launch(stream, blocks_of(n), dim3(kThreads), 0, convert_elements<From, To>,
                    in<From>(elements), out<To>(result), n);
    });
  });
}

}  // namespace troupe::cuda
