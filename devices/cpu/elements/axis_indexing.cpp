// Running sums, sorting, choosing and searching along one axis.
#include <algorithm>
#include <atomic>
#include <complex>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/base/radix_sort.hpp>
#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/cpu/elements/coordinates.hpp>
#include <troupe/devices/cpu/elements/move.hpp>
#include <troupe/devices/device/axis_indexing.hpp>

namespace troupe::cpu {
namespace {

template <class T>
void scan_row(const ScanArgs& s, const T* x, const T* a, T* out) {
  Accumulator<T> so_far = s.what == Scan::product ? 1 : 0;
  for (std::int64_t n = 0; n < s.extent; ++n) {
    const std::int64_t at = (s.reverse ? s.extent - 1 - n : n) * s.inner;
    if (s.what == Scan::linear) {
      // Its factor stands at the later of the two elements it joins.
      const Accumulator<T> factor =
          n == 0 ? Accumulator<T>(0) : accumulated(a[s.reverse ? at + s.inner : at]);
      so_far = n == 0 ? accumulated(x[at]) : accumulated(x[at]) + factor * so_far;
      out[at] = narrowed<T>(so_far);
      continue;
    }
    if (s.exclusive) out[at] = narrowed<T>(so_far);
    so_far = s.what == Scan::sum ? so_far + accumulated(x[at]) : so_far * accumulated(x[at]);
    if (!s.exclusive) out[at] = narrowed<T>(so_far);
  }
}

// NaN is the largest.
template <class T>
bool is_below(T x, T y) {
  if constexpr (is_small_float<T>) return is_below(float(x), float(y));
  else return x < y || (y != y && x == x);
}

template <class F>
void visit_ordered(const char* what, DType type, F&& f) {
  visit_dtype(type, [&]<class T>(type_tag<T> tag) {
    if constexpr (is_complex_type<T> || std::is_same_v<T, bool>)
      throw Error(Code::unimplemented, fmt::format("{} of {} is not defined", what, name_of(type)));
    else f(tag);
  });
}

}  // namespace

void CpuPrimitives::scan(Stream&, const ScanArgs& s) const {
  if (s.out.elements() == 0) return;
  visit_dtype(s.out.dtype, [&]<class T>(type_tag<T>) {
    if constexpr (std::is_same_v<T, bool>) {
      throw Error(Code::unimplemented, "a running sum of bool is not defined");
    } else {
      const T* x = static_cast<const T*>(s.x.data());
      const T* a = static_cast<const T*>(s.a.data());
      T* out = static_cast<T*>(s.out.data);
      for_rows(pool_, s.outer * s.inner, s.extent, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const std::int64_t at = r / s.inner * s.extent * s.inner + r % s.inner;
          scan_row(s, x + at, a ? a + at : nullptr, out + at);
        }
      });
    }
  });
}

void CpuPrimitives::sort(Stream&, const SortArgs& s) const {
  visit_ordered("sorting", s.x.dtype, [&]<class T>(type_tag<T>) {
    for_rows(pool_, s.rows, s.extent, [&](std::int64_t begin, std::int64_t end) {
      RowSorter<T> sorter;
      for (std::int64_t r = begin; r < end; ++r) {
        const T* x = static_cast<const T*>(s.x.data()) + r * s.extent;
        T* values = static_cast<T*>(s.values.data) + r * s.count;
        std::int64_t* indices = static_cast<std::int64_t*>(s.indices.data) + r * s.count;
        sorter.sort(x, s.extent, s.count, s.descending, [&](std::int64_t place, std::int64_t at) {
          indices[place] = at;
          values[place] = x[at];
        });
      }
    });
  });
}

void CpuPrimitives::along(Stream&, const AlongArgs& a) const {
  if (a.what == Along::take_at) return take_at(pool_, a);
  if (a.what == Along::put_at) return put_at(a);
  check_index_type(a.indices);
  // A block looks at its own indices, and goes no further if one is outside: all are then looked at
  // in order, for the error.
  std::atomic<bool> is_bad = false;  // publishes nothing but itself
  const auto are_good = [&](const auto* index, std::int64_t n) {
    if (are_inside(index, n, a.extent)) return true;
    is_bad.store(true, std::memory_order_relaxed);
    return false;
  };
  const auto finish = [&] {
    if (is_bad.load(std::memory_order_relaxed)) check_indices(a.indices, a.extent);
  };
  if (a.what == Along::take) {
    const std::int64_t rows = a.outer * a.n,
                       group = std::max<std::int64_t>(
                           1, kBlock / 4 / std::max<std::int64_t>(1, a.inner));
    auto take = [&]<class T>(T) {
      const T* x = static_cast<const T*>(a.x.data());
      T* out = static_cast<T*>(a.out.data);
      visit_indices(a.indices, [&](const auto* index) {
        for_blocks(rows * a.inner <= kSmallWork ? nullptr : pool_, (rows + group - 1) / group,
                   [&](int b) {
                     const std::int64_t end = std::min(rows, (b + 1) * group);
                     if (!are_good(index + b * group * a.inner, (end - b * group) * a.inner))
                       return;
                     // as far as they are of one outer position
                     for (std::int64_t r = b * group, next; r < end; r = next) {
                       const std::int64_t o = r / a.n;
                       next = std::min(end, (o + 1) * a.n);
                       const T* from = x + o * a.extent * a.inner;
                       if (a.inner == 1)
                         for (std::int64_t at = r; at < next; ++at) out[at] = from[index[at]];
                       else
                         for (std::int64_t j = r; j < next; ++j)
                           for (std::int64_t i = 0, at = j * a.inner; i < a.inner; ++i, ++at)
                             out[at] = from[index[at] * a.inner + i];
                     }
                   });
      });
    };
    visit_bytes(size_of(a.out.dtype), take);
    return finish();
  }
  if (a.out.elements()) std::memset(a.out.data, 0, a.out.bytes());
  visit_ordered("add_along", a.out.dtype, [&]<class T>(type_tag<T>) {
    const T* x = static_cast<const T*>(a.x.data());
    const std::int64_t group = rows_together(std::max(a.extent, a.n) * a.inner);
    in_sums<T>(a.out, [&]<class Sum>(Sum* sums) {
      visit_indices(a.indices, [&](const auto* index) {
        for_blocks(
            a.outer * a.n * a.inner <= kSmallWork / 4 ? nullptr : pool_,
            (a.outer + group - 1) / group, [&](int b) {
              const std::int64_t end = std::min(a.outer, (b + 1) * group);
              if (!are_good(index + b * group * a.n * a.inner, (end - b * group) * a.n * a.inner))
                return;
              for (std::int64_t o = b * group; o < end; ++o) {
                Sum* mine = sums + o * a.extent * a.inner;
                for (std::int64_t j = 0, at = o * a.n * a.inner; j < a.n; ++j)
                  for (std::int64_t i = 0; i < a.inner; ++i, ++at) {
                    Sum& to = mine[index[at] * a.inner + i];
                    to = static_cast<Sum>(accumulated(to) + accumulated(x[at]));
                  }
              }
            });
      });
    });
  });
  finish();
}

void CpuPrimitives::search(Stream&, const SearchArgs& s) const {
  visit_ordered("searching", s.sorted.dtype, [&]<class T>(type_tag<T>) {
    const T* sorted = static_cast<const T*>(s.sorted.data());
    const T* values = static_cast<const T*>(s.values.data());
    std::int64_t* out = static_cast<std::int64_t*>(s.out.data);
    for_rows(pool_, s.rows * s.n, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const T* row = sorted + i / s.n * s.extent;
        auto below = [](const T& x, const T& y) { return is_below(x, y); };
        out[i] = (s.right ? std::upper_bound(row, row + s.extent, values[i], below)
                          : std::lower_bound(row, row + s.extent, values[i], below)) -
                 row;
      }
    });
  });
}

}  // namespace troupe::cpu
