// Primitives along one axis: scans, sorting, choosing by indices and coordinates, search.
#include <troupe/devices/cuda/primitives.hpp>

#include <troupe/devices/cuda/kernels/axes.hpp>
#include <troupe/devices/cuda/primitive_call.hpp>
#include <troupe/devices/device/axis_indexing.hpp>

namespace troupe::cuda {

static_assert(are_alike(ScanOp::sum, Scan::sum) && are_alike(ScanOp::linear, Scan::linear));
static_assert(are_alike(ScatterOp::update, Put::update) && are_alike(ScatterOp::add, Put::add) &&
              are_alike(ScatterOp::sub, Put::sub) && are_alike(ScatterOp::min, Put::min) &&
              are_alike(ScatterOp::max, Put::max) && are_alike(ScatterOp::mul, Put::mul));

namespace {

bool has_order(DType dtype) { return !is_complex(dtype) && dtype != DType::boolean; }

// Coordinates as rows of [outer * extent, inner]; a wrong one is reported with the bound of its
// axis.
const std::int64_t* rows_of(PrimitiveCall& call, const AlongArgs& a) {
  auto* const rows =
      static_cast<std::int64_t*>(call.temporary(DType::i64, Shape{a.outer * a.n}).raw_mutable());
  std::array<Queue::Check, Shape::kMaxRank> checks;
  std::array<IndexRecord*, Shape::kMaxRank> records{};
  const auto depth = static_cast<std::size_t>(a.depth);
  for (std::size_t k = 0; k < depth; ++k) {
    checks[k] = call.queue().begin_check();
    records[k] = checks[k].record();
  }
  const cudaError_t error =
      rows_of_coordinates(call.stream(), call.data(a.indices), a.indices.dtype == DType::i64, rows,
                          a.outer, a.n, a.depth, a.extents.data(), records.data());
  for (std::size_t k = 0; k < depth; ++k)
    call.queue().end_check(checks[k], a.extents[k], call.origin());
  call.check(error, "reading coordinates");
  return rows;
}

void take_or_put_at(PrimitiveCall& call, const AlongArgs& a) {
  const std::int64_t* const rows = rows_of(call, a);
  const std::int64_t extent = a.outer * a.extent, n = a.outer * a.n;
  if (a.what == Along::take_at) {
    // Wrong rows were reported as coordinates: this record is not looked at.
    auto* const record = static_cast<IndexRecord*>(call.scratch(sizeof(IndexRecord)));
    return call.check(
        cuda::gather(call.stream(), PrimitiveCall::element_bytes(a.out.dtype), call.data(a.x), rows,
                     true, a.out.data, 1, extent, a.inner, n, record),
        "taking at coordinates");
  }
  auto how = static_cast<ScatterOp>(a.how);
  if (a.out.dtype == DType::boolean && how == ScatterOp::sub) how = ScatterOp::add;
  call.check(cuda::scatter(call.stream(), how, a.out.dtype, rows, true, call.data(a.x), a.out.data,
                           extent, a.inner, n, nullptr),
             "putting at coordinates");
}

}  // namespace

void CudaPrimitives::scan(Stream& s, const ScanArgs& a) const {
  if (a.out.dtype == DType::boolean)
    throw Error(Code::unimplemented, "a running sum of bool is not defined");
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || a.out.elements() == 0) return;
  call.check(cuda::scan(call.stream(), static_cast<ScanOp>(a.what), a.out.dtype, call.data(a.x),
                        a.what == Scan::linear ? call.data(a.a) : nullptr, a.out.data, a.outer,
                        a.extent, a.inner, a.exclusive, a.reverse),
             "a scan");
}

void CudaPrimitives::sort(Stream& s, const SortArgs& a) const {
  if (!has_order(a.x.dtype)) refuse_dtype("sorting", a.x.dtype);
  if (a.extent > INT32_MAX)
    throw Error(Code::unimplemented,
                fmt::format("a GPU sorts rows of less than 2^31 elements, not {}", a.extent));
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || a.rows * a.count == 0) return;
  const void* const x = call.data(a.x);
  call.check(cuda::sort(call.stream(), a.x.dtype, x, a.values.data,
                        static_cast<std::int64_t*>(a.indices.data), a.rows, a.extent, a.count,
                        a.descending, call.scratch(sort_scratch(a.x.dtype, a.rows, a.extent))),
             "sorting");
}

void CudaPrimitives::search(Stream& s, const SearchArgs& a) const {
  if (!has_order(a.sorted.dtype)) refuse_dtype("searching", a.sorted.dtype);
  PrimitiveCall call(device_, index_, s);
  if (call.skips() || a.out.elements() == 0) return;
  call.check(cuda::search(call.stream(), a.sorted.dtype, call.data(a.sorted), call.data(a.values),
                          a.out.data, a.rows, a.extent, a.n, a.right),
             "searching");
}

void CudaPrimitives::along(Stream& s, const AlongArgs& a) const {
  check_index_type_of(a.indices);
  if (a.what == Along::add && !has_order(a.out.dtype)) refuse_dtype("add_along", a.out.dtype);
  if (a.what == Along::put_at && is_complex(a.out.dtype) &&
      (a.how == Put::min || a.how == Put::max))
    throw Error(Code::unimplemented, fmt::format("{} has no order", name_of(a.out.dtype)));
  PrimitiveCall call(device_, index_, s);
  if (call.skips()) return;
  if (a.what == Along::take_at || a.what == Along::put_at)
    return a.outer * a.n == 0 ? void() : take_or_put_at(call, a);
  const bool are_i64 = a.indices.dtype == DType::i64;
  if (a.what == Along::add && a.n == 0) return call.clear(a.out);
  if (a.outer * a.n * a.inner == 0) return;
  const Queue::Check check = call.queue().begin_check();
  const cudaError_t error =
      a.what == Along::take
          ? take_along(call.stream(), PrimitiveCall::element_bytes(a.out.dtype), call.data(a.x),
                       call.data(a.indices), are_i64, a.out.data, a.outer, a.extent, a.n, a.inner,
                       check.record())
          : add_along(call.stream(), a.out.dtype, call.data(a.x), call.data(a.indices), are_i64,
                      a.out.data, a.outer, a.extent, a.n, a.inner, check.record());
  call.queue().end_check(check, a.extent, call.origin());
  call.check(error, "choosing along an axis");
}

}  // namespace troupe::cuda
