#include <troupe/devices/base/radix_sort.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/op.hpp>

#include <algorithm>
#include <complex>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

namespace troupe {

/// The different elements of x in rising order; for each element of x which of them it is (i64, x's
/// shape); and how often each occurs (i64). NaNs are one value, the largest. How many there are is
/// known when the graph runs.
TROUPE_DSL(Exprs unique(Operand x))
/// The coordinates of the elements that are not 0, in row-major order: i64 [how many, x's rank].
TROUPE_DSL(Expr nonzero(Operand x))
/// The slices of x where `mask`, bool, is true, one after the other: mask has the shape of x's
/// first axes.
TROUPE_DSL(Expr boolean_mask(Operand x, Operand mask))

Exprs unique(Operand x) {
  const Operand all[] = {x};
  return bind_op("Unique", all, {}, x.site());
}
Expr nonzero(Operand x) { return bind1("NonZero", {x}); }

Expr boolean_mask(Operand x, Operand mask) {
  Composite c("boolean_mask", {x, mask});
  c.require(c[1].dtype() == DType::boolean,
            fmt::format("the mask must be bool, not {}", name_of(c[1].dtype())));
  const Shape s = c[0].shape(), m = c[1].shape();
  const int rank = c.rank(1);
  c.require(
      rank >= 1 && (!s.has_rank() || s.rank() >= rank) &&
          (!s.has_rank() || Shape(s.dims().first(static_cast<std::size_t>(rank))).is_compatible(m)),
      fmt::format("the mask {} must have the shape of the first axes of {}", m.text(), s.text()));
  // Extents that are not known yet are compared when the node runs.
  const bool is_certain = s.has_rank() && m.is_known() &&
                          Shape(s.dims().first(static_cast<std::size_t>(rank))).is_known();
  return gather_nd(c[0], is_certain ? nonzero(c[1]) : bind1("NonZero", {c[1], shape_of(c[0])}));
}

namespace {

struct Different {
  Tensor values, counts;
};

template <class T>
Different different(const Tensor& x, std::int64_t* which) {
  const T* from = static_cast<const T*>(x.raw());
  const auto room = static_cast<std::size_t>(x.elements());
  const auto values = std::make_unique_for_overwrite<T[]>(room);
  // the positions after the last of each
  const auto ends = std::make_unique_for_overwrite<std::int64_t[]>(room);
  std::int64_t found = 0;
  OrderKey<T> last{};
  RowSorter<T> sorter;
  // Elements come in sorted order, not in that of memory: their keys identify their values.
  sorter.sort(from, x.elements(), x.elements(), false,
              [&](std::int64_t place, std::int64_t i, OrderKey<T> key) {
                if (found == 0 || key != last) {
                  values[static_cast<std::size_t>(found++)] =
                      is_of_one<T>(key) ? element_of<T>(key) : from[i];
                  last = key;
                }
                ends[static_cast<std::size_t>(found - 1)] = place + 1;
                which[i] = found - 1;
              });
  Different d{Tensor::empty(x.dtype(), Shape{found}), Tensor::empty(DType::i64, Shape{found})};
  if (found)
    std::memcpy(d.values.raw_mutable(), values.get(), static_cast<std::size_t>(found) * sizeof(T));
  auto* counts = static_cast<std::int64_t*>(d.counts.raw_mutable());
  for (std::int64_t i = 0; i < found; ++i)
    counts[i] = ends[static_cast<std::size_t>(i)] - (i ? ends[static_cast<std::size_t>(i - 1)] : 0);
  return d;
}

// Copies a result from the host to the firing's device.
void hand_over(KernelContext& c, int output, const Tensor& host) {
  Tensor out = c.allocate(host.dtype(), host.shape());
  if (host.elements()) c.device().copy_from_host(c.stream(), host, View(out));
  c.set(output, std::move(out));
}

void require_first_axes(const std::vector<std::int64_t>& extents, const Shape& mask) {
  if (!std::ranges::equal(std::span(extents).first(std::min(extents.size(), mask.dims().size())),
                          mask.dims()))
    throw Error(Code::invalid_argument,
                fmt::format("the mask {} must have the shape of the first axes of {}", mask.text(),
                            Shape(extents).text()));
}

bool is_set(const Tensor& x, std::int64_t i) {
  if (x.dtype() == DType::boolean) return static_cast<const bool*>(x.raw())[i];
  return x.at(i) != 0;
}

}  // namespace

TROUPE_OP(Unique) {
  op.doc(
      "The different elements of the input in rising order, which of them each element is, and how "
      "often each occurs.");
  op.inputs(1);
  op.not_differentiable();
  op.infer([](Inference& c) {
    c.require(!is_complex(c.dtype(0)), std::string(name_of(c.dtype(0))) + " has no order");
    c.output(c.dtype(0), {kAny});
    c.output(DType::i64, c.shape(0));
    c.output(DType::i64, {kAny});
  });
  op.kernel([](const KernelSetup&) {
    return with_host_inputs({0}, [](KernelContext& c) {
      const Tensor& x = c.input(0);
      Tensor which = Tensor::empty(DType::i64, x.shape());
      Different d;
      visit_dtype(x.dtype(), [&]<class T>(type_tag<T>) {
        if constexpr (!std::is_same_v<T, std::complex<float>> &&
                      !std::is_same_v<T, std::complex<double>>)
          d = different<T>(x, static_cast<std::int64_t*>(which.raw_mutable()));
      });
      hand_over(c, 0, d.values);
      hand_over(c, 1, which);
      hand_over(c, 2, d.counts);
    });
  });
}

TROUPE_OP(NonZero) {
  op.doc(
      "The coordinates of the elements that are not 0, in row-major order. A second input is a "
      "shape whose first axes must be the first's.");
  op.inputs(1, 2);
  op.not_differentiable();
  op.infer([](Inference& c) {
    c.require(!is_complex(c.dtype(0)),
              std::string(name_of(c.dtype(0))) + " is not looked at; take its absolute value");
    if (c.inputs() > 1) {
      c.require_index(1, "the shape");
      c.require_rank(1, 1, "the shape");
    }
    c.output(DType::i64, {kAny, c.shape(0).has_rank() ? c.shape(0).rank() : kAny});
  });
  op.kernel([](const KernelSetup&) {
    return with_host_inputs({0, 1}, [](KernelContext& c) {
      const Tensor& x = c.input(0);
      const int rank = x.shape().rank();
      if (c.inputs() > 1) require_first_axes(integers_of(c.input(1)), x.shape());
      std::vector<std::int64_t> found;
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < x.elements(); ++i) {
        if (!is_set(x, i)) continue;
        ++count;
        found.resize(found.size() + static_cast<std::size_t>(rank));
        for (std::int64_t k = rank - 1, left = i; k >= 0; --k) {
          found[found.size() - static_cast<std::size_t>(rank - k)] =
              left % x.shape()[static_cast<int>(k)];
          left /= x.shape()[static_cast<int>(k)];
        }
      }
      hand_over(c, 0, Tensor::of(found, Shape{count, rank}));
    });
  });
}

}  // namespace troupe
