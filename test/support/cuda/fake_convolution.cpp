#include <troupe/test/support/cuda/fake_convolution.hpp>

#include <cstring>
#include <istream>
#include <limits>
#include <mutex>
#include <ostream>

#include <troupe/devices/tensor/tensor.hpp>
#include <troupe/test/support/cuda/fake_state.hpp>

namespace fake_cudnn {
namespace {

using troupe::bfloat16;
using troupe::half;

std::size_t bytes_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}

// The elements from the first to the last.
std::size_t span_of(const Convolution::Side& s) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < s.extents.size(); ++i) last += (s.extents[i] - 1) * s.strides[i];
  return static_cast<std::size_t>(last + 1);
}

std::vector<double> load(const Convolution::Side& s, bool rounds) {
  std::vector<double> values(span_of(s));
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (s.type) {
      case CUDNN_DATA_DOUBLE: values[i] = static_cast<const double*>(s.data)[i]; break;
      case CUDNN_DATA_HALF: values[i] = float(static_cast<const half*>(s.data)[i]); break;
      case CUDNN_DATA_BFLOAT16: values[i] = float(static_cast<const bfloat16*>(s.data)[i]); break;
      default: {
        float value = static_cast<const float*>(s.data)[i];
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        if (rounds) bits &= ~std::uint32_t{0x1FFF};
        std::memcpy(&value, &bits, sizeof bits);
        values[i] = static_cast<double>(value);
      }
    }
  }
  return values;
}

void store(const Convolution::Side& s, std::size_t i, double value) {
  switch (s.type) {
    case CUDNN_DATA_DOUBLE: static_cast<double*>(s.data)[i] = value; break;
    case CUDNN_DATA_HALF: static_cast<half*>(s.data)[i] = half(static_cast<float>(value)); break;
    case CUDNN_DATA_BFLOAT16:
      static_cast<bfloat16*>(s.data)[i] = bfloat16(static_cast<float>(value));
      break;
    default: static_cast<float*>(s.data)[i] = static_cast<float>(value);
  }
}

// Calls f with each index within the extents, the last running fastest.
template <class F>
void each_index(const std::vector<std::int64_t>& extents, F f) {
  std::vector<std::int64_t> at(extents.size(), 0);
  for (;;) {
    f(at);
    std::size_t i = extents.size();
    while (i > 0 && ++at[i - 1] == extents[i - 1]) at[--i] = 0;
    if (i == 0) return;
  }
}

std::size_t offset(const Convolution::Side& s, const std::vector<std::int64_t>& at) {
  std::int64_t o = 0;
  for (std::size_t i = 0; i < at.size(); ++i) o += at[i] * s.strides[i];
  return static_cast<std::size_t>(o);
}

}  // namespace

bool Convolution::is_consistent() const {
  const std::size_t rank = x.extents.size();
  if (w.extents.size() != rank || y.extents.size() != rank || stride.size() + 2 != rank ||
      x.type != w.type || x.type != y.type || x.extents[0] != y.extents[0] ||
      w.extents[0] != y.extents[1] || x.extents[1] % w.extents[1] != 0 ||
      w.extents[0] % (x.extents[1] / w.extents[1]) != 0)
    return false;
  for (std::size_t i = 0; i + 2 < rank; ++i) {
    const std::int64_t reach = (w.extents[i + 2] - 1) * dilation[i] + 1,
                       room = x.extents[i + 2] + before[i] + after[i] - reach;
    if (room < 0 || room / stride[i] + 1 != y.extents[i + 2]) return false;
  }
  return true;
}

std::string Convolution::why_not_there(const void* workspace, std::size_t workspace_bytes) const {
  std::lock_guard lock(fake_cuda::state().memory);
  const auto is_live = [](const void* data, std::size_t bytes) {
    const fake_cuda::Block* const block = fake_cuda::find_block(data, bytes);
    return block && !block->is_freed && block->device != fake_cuda::kPinned;
  };
  for (const Side* side : {&x, &w, &y}) {
    if (!is_live(side->data, span_of(*side) * bytes_of(side->type)))
      return "an operand is no live memory of a device";
    if (reinterpret_cast<std::uintptr_t>(side->data) %
            static_cast<std::uintptr_t>(side->alignment) !=
        0)
      return "an operand is not aligned as it was described";
  }
  return workspace_bytes == 0 || is_live(workspace, workspace_bytes)
             ? std::string()
             : "a workspace is no live memory of a device";
}

void Convolution::run(bool rounds, bool is_random) const {
  const Side& result = kind == Kind::forward ? y : kind == Kind::data ? x : w;
  std::vector<double> sums(span_of(result), 0.0);
  const std::vector<double> xs = kind == Kind::data ? sums : load(x, rounds),
                            ws = kind == Kind::filter ? sums : load(w, rounds),
                            ys = kind == Kind::forward ? sums : load(y, rounds);
  const std::int64_t depth = w.extents[1], group_filters = w.extents[0] / (x.extents[1] / depth);
  std::vector<std::int64_t> taps(w.extents.begin() + 1, w.extents.end());
  std::vector<std::int64_t> at_x(x.extents.size()), at_w(w.extents.size());
  each_index(y.extents, [&](const std::vector<std::int64_t>& at_y) {
    each_index(taps, [&](const std::vector<std::int64_t>& tap) {
      at_x[0] = at_y[0];
      at_x[1] = at_y[1] / group_filters * depth + tap[0];
      at_w[0] = at_y[1];
      at_w[1] = tap[0];
      for (std::size_t i = 2; i < at_x.size(); ++i) {
        at_w[i] = tap[i - 1];
        at_x[i] = at_y[i] * stride[i - 2] - before[i - 2] + tap[i - 1] * dilation[i - 2];
        if (at_x[i] < 0 || at_x[i] >= x.extents[i]) return;
      }
      const std::size_t ix = offset(x, at_x), iw = offset(w, at_w), iy = offset(y, at_y);
      if (kind == Kind::forward) sums[iy] += xs[ix] * ws[iw];
      else if (kind == Kind::data) sums[ix] += ys[iy] * ws[iw];
      else sums[iw] += xs[ix] * ys[iy];
    });
  });
  each_index(result.extents, [&](const std::vector<std::int64_t>& at) {
    const std::size_t i = offset(result, at);
    store(result, i, is_random ? std::numeric_limits<double>::quiet_NaN() : sums[i]);
  });
}

namespace {

void write_all(std::ostream& out, const std::vector<std::int64_t>& values) {
  out << values.size();
  for (const std::int64_t v : values) out << ' ' << v;
  out << ' ';
}
bool read_all(std::istream& in, std::vector<std::int64_t>& values) {
  std::size_t size = 0;
  if (!(in >> size) || size > 8) return false;
  values.resize(size);
  for (std::int64_t& v : values) in >> v;
  return bool(in);
}

}  // namespace

void Convolution::write(std::ostream& out) const {
  out << static_cast<int>(kind) << ' ';
  for (const Side* side : {&x, &w, &y}) {
    out << side->number << ' ' << side->alignment << ' ' << static_cast<int>(side->type) << ' ';
    write_all(out, side->extents);
    write_all(out, side->strides);
  }
  for (const auto* values : {&before, &after, &dilation, &stride}) write_all(out, *values);
}

bool Convolution::read(std::istream& in) {
  int of = 0, type = 0;
  if (!(in >> of)) return false;
  kind = static_cast<Kind>(of);
  for (Side* side : {&x, &w, &y}) {
    if (!(in >> side->number >> side->alignment >> type) || !read_all(in, side->extents) ||
        !read_all(in, side->strides))
      return false;
    side->type = static_cast<cudnnDataType_t>(type);
  }
  for (auto* values : {&before, &after, &dilation, &stride})
    if (!read_all(in, *values)) return false;
  return true;
}

}  // namespace fake_cudnn
