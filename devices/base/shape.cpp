#include <troupe/devices/base/dtype.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/base/shape.hpp>

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

namespace troupe {

std::string_view name_of(DType type) {
  constexpr std::string_view names[kAllDTypes] = {"f16", "bf16", "f32",  "f64",   "c64", "c128",
                                                  "i8",  "i16",  "i32",  "i64",   "u8",  "u16",
                                                  "u32", "u64",  "bool", "string"};
  return names[static_cast<int>(type)];
}

std::ostream& operator<<(std::ostream& out, DType type) { return out << name_of(type); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.text(); }

namespace detail {

void refuse_strings() {
  throw Error(Code::unimplemented, "strings have no numbers to compute with");
}

}  // namespace detail

Shape::Shape(std::span<const std::int64_t> dims, const std::source_location& at) {
  if (dims.size() > kMaxRank)
    throw Error(Code::invalid_argument,
                fmt::format("the shape at {}: a shape has at most {} dimensions, not {}",
                            Site(at).text(), kMaxRank, dims.size()));
  for (std::int64_t d : dims) {
    if (d < kAny)
      throw Error(
          Code::invalid_argument,
          fmt::format(
              "the shape at {}: {} is no extent of a dimension; kAny is one that is not known yet",
              Site(at).text(), d));
    dims_[rank_++] = d;
  }
}

void Shape::push_back(std::int64_t extent) {
  if (rank_ == kMaxRank)
    throw Error(Code::invalid_argument, fmt::format("a shape has at most {} dimensions", kMaxRank));
  if (extent < kAny)
    throw Error(Code::invalid_argument, fmt::format("{} is no extent of a dimension", extent));
  dims_[rank_++] = extent;
}

bool Shape::is_known() const {
  return rank_ >= 0 && std::all_of(begin(), end(), [](std::int64_t d) { return d >= 0; });
}

std::int64_t Shape::count() const {
  if (rank_ < 0) return -1;
  std::int64_t n = 1;
  for (std::int64_t d : *this) {
    if (d < 0) return -1;
    if (__builtin_mul_overflow(n, d, &n))
      throw Error(Code::invalid_argument,
                  "shape " + text() + " has more elements than 64 bits count");
  }
  return n;
}

Shape Shape::without(int axis) const {
  Shape s;
  for (int i = 0; i < rank_; ++i)
    if (i != axis) s.push_back(dims_[i]);
  return s;
}

Shape Shape::with_inserted(int axis, std::int64_t extent) const {
  Shape s;
  for (int i = 0; i <= rank_; ++i) {
    if (i == axis) s.push_back(extent);
    if (i < rank_) s.push_back(dims_[i]);
  }
  return s;
}

bool Shape::is_compatible(const Shape& other) const {
  if (!has_rank() || !other.has_rank()) return true;
  if (rank_ != other.rank_) return false;
  for (int i = 0; i < rank_; ++i)
    if (dims_[i] >= 0 && other.dims_[i] >= 0 && dims_[i] != other.dims_[i]) return false;
  return true;
}

Shape Shape::merge(const Shape& other) const {
  if (!is_compatible(other))
    throw Error(Code::invalid_argument,
                fmt::format("shapes {} and {} contradict each other", text(), other.text()));
  if (!has_rank()) return other;
  Shape merged = *this;
  if (other.has_rank())
    for (int i = 0; i < rank_; ++i)
      if (merged.dims_[i] < 0) merged.dims_[i] = other.dims_[i];
  return merged;
}

Shape Shape::common(const Shape& other) const {
  if (rank_ != other.rank_) return unknown();
  Shape out = *this;
  for (int i = 0; i < rank_; ++i)
    if (dims_[i] != other.dims_[i]) out.dims_[i] = kAny;
  return out;
}

bool Shape::covers(const Shape& other) const {
  if (!has_rank()) return true;
  if (rank_ != other.rank_) return false;
  for (int i = 0; i < rank_; ++i)
    if (dims_[i] >= 0 && dims_[i] != other.dims_[i]) return false;
  return true;
}

bool operator==(const Shape& a, const Shape& b) {
  return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin(), b.end());
}

std::string Shape::text() const {
  if (!has_rank()) return "[...]";
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i) out += ", ";
    out += dims_[i] < 0 ? std::string("?") : std::to_string(dims_[i]);
  }
  return out + "]";
}

namespace detail {

Shape broadcast(const Shape& a, const Shape& b) {
  if (!a.has_rank() || !b.has_rank()) return Shape::unknown();
  int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int i = 0; i < rank; ++i) {
    int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    std::int64_t da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    if (da == db) out.push_back(da);
    else if (da == 1) out.push_back(db);
    else if (db == 1) out.push_back(da);
    else if (da < 0) out.push_back(db);
    else if (db < 0) out.push_back(da);
    else
      throw Error(Code::invalid_argument,
                  fmt::format("shapes {} and {} cannot be broadcast: axis {} has {} and {}",
                              a.text(), b.text(), i, da, db));
  }
  return out;
}

int normalize_axis(std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    throw Error(Code::out_of_range,
                fmt::format("axis {} is outside a tensor of rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace detail

}  // namespace troupe
