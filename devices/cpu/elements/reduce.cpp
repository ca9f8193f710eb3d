// Reductions. Any set of axes becomes [outer, reduced, inner]; where it cannot, sums are taken in
// steps, and for the rest it is transposed first.
//
// Rows are cut into chunks by the shape, each chunk is accumulated (f16, bf16, f32 and f64 in
// double, rows of f32 four at a time in float first, integers in 64 bits), and the chunks'
// accumulators are merged in order: so neither the number of workers nor the CPU level changes a
// bit. A program's result is reduced chunk by chunk as it is computed: the chunks are the same, and
// so are the bits.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/cpu/elements/move.hpp>
#include <troupe/devices/cpu/elements/pointwise.hpp>
#include <troupe/devices/cpu/level.hpp>

namespace troupe {

namespace detail {

std::string_view name_of(Reduction r) {
  constexpr std::string_view names[] = {"sum", "mean", "product", "min",    "max",
                                        "any", "all",  "argmin",  "argmax", "logsumexp"};
  return names[static_cast<int>(r)];
}

}  // namespace detail

namespace cpu {
namespace {

// Each reduction: its accumulator, how one element and how another accumulator are added, the
// result.

template <class T, bool mean>
struct Sum {
  using In = T;
  using Out = T;
  using Acc = Accumulator<T>;
  static Acc start() { return Acc(0); }
  static void add(Acc& acc, T x, std::int64_t) { acc += accumulated(x); }
  static void merge(Acc& acc, const Acc& later) { acc += later; }
  static T finish(const Acc& acc, std::int64_t n) {
    if constexpr (!mean) return narrowed<T>(acc);
    else if constexpr (std::is_same_v<T, bool>) return acc != 0;
    else if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
      return n ? static_cast<T>(static_cast<std::int64_t>(acc) / n) : T(0);
    else if constexpr (std::is_integral_v<T>)
      return n ? static_cast<T>(acc / static_cast<std::uint64_t>(n)) : T(0);
    else return narrowed<T>(acc / double(n));
  }
};

template <class T>
struct Product {
  using In = T;
  using Out = T;
  using Acc = Accumulator<T>;
  static Acc start() { return Acc(1); }
  static void add(Acc& acc, T x, std::int64_t) { acc *= accumulated(x); }
  static void merge(Acc& acc, const Acc& later) { acc *= later; }
  static T finish(const Acc& acc, std::int64_t) { return narrowed<T>(acc); }
};

template <class T, bool largest>
struct Extremum {
  using In = T;
  using Out = T;
  using Acc = T;
  static T start() {
    if constexpr (is_small_float<T>) return T(largest ? -INFINITY : INFINITY);
    else if constexpr (std::is_floating_point_v<T>) return largest ? -INFINITY : INFINITY;
    else return largest ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
  }
  static void add(Acc& acc, T x, std::int64_t) {
    auto v = wide(x), best = wide(acc);
    if (best != best) return;
    if ((largest ? v > best : v < best) || v != v) acc = x;
  }
  static void merge(Acc& acc, const Acc& later) { add(acc, later, 0); }
  static T finish(const Acc& acc, std::int64_t) { return acc; }
};

template <class T, bool all>
struct Logical {
  using In = T;
  using Out = bool;
  using Acc = bool;
  static bool start() { return all; }
  static void add(Acc& acc, T x, std::int64_t) {
    bool set = wide(x) != decltype(wide(x))(0);
    acc = all ? acc && set : acc || set;
  }
  static void merge(Acc& acc, const Acc& later) { acc = all ? acc && later : acc || later; }
  static bool finish(const Acc& acc, std::int64_t) { return acc; }
};

// The first of equals; a NaN is more extreme than any number.
template <class T, bool largest>
struct Where {
  using In = T;
  using Out = std::int64_t;
  struct Acc {
    T best;
    std::int64_t index;
  };
  static Acc start() { return {T(), -1}; }
  static void add(Acc& acc, T x, std::int64_t index) {
    if (acc.index >= 0) {
      auto v = wide(x), best = wide(acc.best);
      if (best != best || !((largest ? v > best : v < best) || v != v)) return;
    }
    acc = {x, index};
  }
  static void merge(Acc& acc, const Acc& later) {
    if (later.index >= 0) add(acc, later.best, later.index);
  }
  static std::int64_t finish(const Acc& acc, std::int64_t) { return acc.index; }
};

// A sum that is not done yet.
template <class T>
struct PartialSum {
  using In = T;
  using Out = Accumulator<T>;
  using Acc = Accumulator<T>;
  static Acc start() { return Acc(0); }
  static void add(Acc& acc, T x, std::int64_t) { acc += accumulated(x); }
  static void merge(Acc& acc, const Acc& later) { acc += later; }
  static Out finish(const Acc& acc, std::int64_t) { return acc; }
};

// log(sum(exp(x))), shifted by the largest x so far, which itself adds 1. The rest is kept apart,
// so that it is not lost beside the 1.
template <class T>
struct LogSumExp {
  using In = T;
  using Out = T;
  struct Acc {
    double top, rest;
  };
  static Acc start() { return {-INFINITY, 0}; }
  static void add(Acc& acc, T x, std::int64_t) { merge(acc, {double(wide(x)), 0}); }
  static void merge(Acc& acc, const Acc& later) {
    if (later.top == -INFINITY) return;  // adds exp(-inf) = 0
    if (std::isnan(later.top) || std::isnan(acc.top)) {
      acc = {NAN, NAN};
    } else if (later.top > acc.top) {
      acc = {later.top, (1 + acc.rest) * std::exp(acc.top - later.top) + later.rest};
    } else {
      const double more = 1 + later.rest;
      acc.rest += later.top == acc.top ? more : more * std::exp(later.top - acc.top);
    }
  }
  static T finish(const Acc& acc, std::int64_t) {
    return narrowed<T>(acc.top == -INFINITY ? -INFINITY : acc.top + std::log1p(acc.rest));
  }
};

// ---- Rows of one accumulator, and rows of many side by side, by the level's kernels if any.

template <class Op>
constexpr bool is_sum = false;
template <class T, bool mean>
constexpr bool is_sum<Sum<T, mean>> = true;
template <class T>
constexpr bool is_sum<PartialSum<T>> = true;
template <class Op>
constexpr bool is_product = false;
template <class T>
constexpr bool is_product<Product<T>> = true;
template <class Op>
constexpr int extremum_of = -1;  // 0: the smallest, 1: the largest
template <class T, bool largest>
constexpr int extremum_of<Extremum<T, largest>> = largest;
template <class Op>
constexpr int where_of = -1;
template <class T, bool largest>
constexpr int where_of<Where<T, largest>> = largest;
template <class T>
constexpr bool is_wrapping = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T>
constexpr bool has_level = is_wrapping<T> || std::is_floating_point_v<T>;

// The extremum of a piece first, which is many at a time; where it is only in the piece that has
// the row's.
template <class Op, int largest>
void add_where(typename Op::Acc& acc, const typename Op::In* x, std::int64_t n,
               std::int64_t index) {
  using T = typename Op::In;
  constexpr std::int64_t kPiece = 1024;
  const auto extremum = level_kernels().extremum[largest][int(dtype_of<T>)];
  T best{};
  std::int64_t at = -1;
  for (std::int64_t i = 0; i < n && !(best != best); i += kPiece) {
    T found;
    extremum(x + i, std::min(kPiece, n - i), &found);
    if (at >= 0 && !(largest ? found > best : found < best) && found == found) continue;
    best = found;
    at = i;
  }
  if (at < 0) return;
  while (best != best ? x[at] == x[at] : x[at] != best) ++at;
  Op::add(acc, x[at], index + at);
}

constexpr std::int64_t kShortRow = 24;  // elements; below it a call costs more than they do

template <class Op>
void add_row(typename Op::Acc& acc, const typename Op::In* x, std::int64_t n, std::int64_t index) {
  using T = typename Op::In;
  [[maybe_unused]] const LevelKernels& k = level_kernels();
  [[maybe_unused]] constexpr int type = int(dtype_of<T>);
  if constexpr (!(is_sum<Op> && std::is_floating_point_v<T>))
    if (n < kShortRow) {
      for (std::int64_t i = 0; i < n; ++i) Op::add(acc, x[i], index + i);
      return;
    }
  if constexpr (is_sum<Op> && std::is_same_v<T, float>) acc += k.sum_f32(x, n);
  else if constexpr (is_sum<Op> && std::is_same_v<T, double>) acc += k.sum_f64(x, n);
  else if constexpr (is_sum<Op> && is_wrapping<T>) acc += k.sum_int[type](x, n);
  else if constexpr (is_product<Op> && std::is_same_v<T, float>) acc *= k.product_f32(x, n);
  else if constexpr (is_product<Op> && std::is_same_v<T, double>) acc *= k.product_f64(x, n);
  else if constexpr (is_product<Op> && is_wrapping<T>) acc *= k.product_int[type](x, n);
  else if constexpr (extremum_of<Op> >= 0 && has_level<T>) {
    T found;
    k.extremum[extremum_of<Op>][type](x, n, &found);
    Op::merge(acc, found);
  } else if constexpr (where_of<Op> >= 0 && has_level<T>)
    add_where<Op, where_of<Op>>(acc, x, n, index);
  else
    for (std::int64_t i = 0; i < n; ++i) Op::add(acc, x[i], index + i);
}

template <class Op>
void add_rows(typename Op::Acc* acc, const typename Op::In* x, std::int64_t rows,
              std::int64_t stride, std::int64_t n, std::int64_t index) {
  using T = typename Op::In;
  [[maybe_unused]] const LevelKernels& k = level_kernels();
  [[maybe_unused]] constexpr int type = int(dtype_of<T>);
  if constexpr (is_sum<Op> && std::is_same_v<T, float>) k.add_rows_f32(acc, x, rows, stride, n);
  else if constexpr (is_sum<Op> && std::is_same_v<T, double>)
    k.add_rows_f64(acc, x, rows, stride, n);
  else if constexpr (is_sum<Op> && is_wrapping<T>) k.add_rows_int[type](acc, x, rows, stride, n);
  else if constexpr (is_product<Op> && std::is_same_v<T, float>)
    k.multiply_rows_f32(acc, x, rows, stride, n);
  else if constexpr (is_product<Op> && std::is_same_v<T, double>)
    k.multiply_rows_f64(acc, x, rows, stride, n);
  else if constexpr (extremum_of<Op> >= 0 && has_level<T>)
    k.extremum_rows[extremum_of<Op>][type](acc, x, rows, stride, n);
  else
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < n; ++j) Op::add(acc[j], x[r * stride + j], index + r);
}

template <class Op>
void start(typename Op::Acc* acc, std::int64_t n) {
  if constexpr (is_sum<Op>)
    std::memset(static_cast<void*>(acc), 0, static_cast<std::size_t>(n) * sizeof *acc);
  else
    for (std::int64_t i = 0; i < n; ++i) acc[i] = Op::start();
}

// The rows of n accumulators after the first are merged into it, in order.
template <class Op>
void merge_rows(typename Op::Acc* acc, std::int64_t rows, std::int64_t n) {
  if constexpr (is_sum<Op> && std::is_same_v<typename Op::Acc, double>)
    level_kernels().add_rows_f64(acc, acc + n, rows - 1, n, n);
  else
    for (std::int64_t r = 1; r < rows; ++r)
      for (std::int64_t i = 0; i < n; ++i) Op::merge(acc[i], acc[r * n + i]);
}

struct Extents {
  std::int64_t outer = 1, reduced = 1, inner = 1;
};

// The elements to reduce: stored, or computed when they are read.
struct Elements {
  const void* stored;
  const TileProgram* program = nullptr;
  const TileProgram::Ranges* made = nullptr;

  bool are_few(std::int64_t n) const { return made ? program->is_small(n) : n <= kSmallWork; }
};

template <class Op>
void reduce_extents(WorkerPool* pool, const Extents& e, const Elements& elements,
                    typename Op::Out* out) {
  using In = typename Op::In;
  using Acc = typename Op::Acc;
  std::int64_t results = e.outer * e.inner;
  if (results == 0) return;
  if (e.reduced == 0) {
    for (std::int64_t i = 0; i < results; ++i) out[i] = Op::finish(Op::start(), 0);
    return;
  }
  constexpr std::int64_t kTile = 1024;
  std::int64_t tile = std::min(e.inner, kTile), tiles = (e.inner + tile - 1) / tile;
  // Many rows get larger chunks, whole eights: accumulators of wide rows' chunks are written and
  // read again.
  std::int64_t rows = std::max({std::int64_t{64}, kBlock / tile,
                                std::min<std::int64_t>(256, e.reduced / 64 * 8)}),
               chunks = (e.reduced + rows - 1) / rows;
  std::int64_t items = e.outer * tiles * chunks;
  // Accumulators of chunk c of result i at partial[c * results + i]; unused with one chunk.
  std::size_t bytes = chunks > 1 ? static_cast<std::size_t>(results * chunks) * sizeof(Acc) : 0;
  Ref<Buffer> memory = bytes ? Buffer::allocate(host_allocator(), bytes) : Ref<Buffer>();
  Acc* partial = memory ? static_cast<Acc*>(memory->data()) : nullptr;

  struct Item {
    std::int64_t outer, chunk, first, count, column, width;
  };
  auto item_of = [&](std::int64_t i) {
    const std::int64_t chunk = i % chunks, column = i / chunks % tiles * tile, first = chunk * rows;
    return Item{i / chunks / tiles,
                chunk,
                first,
                std::min(rows, e.reduced - first),
                column,
                std::min(tile, e.inner - column)};
  };
  auto begin_of = [&](const Item& i) {
    return (i.outer * e.reduced + i.first) * e.inner + i.column;
  };
  auto end_of = [&](const Item& i) { return begin_of(i) + (i.count - 1) * e.inner + i.width; };
  auto make = [&](std::int64_t begin, std::int64_t end) {
    return reinterpret_cast<const In*>(elements.made->make(begin, 1, end - begin, 0).first);
  };
  // x: the item's first element; null: it is made here, so few rows at a time, whole eights, that
  // they stay in the cache.
  constexpr std::int64_t kMadeTogether = 8192, kEight = 8;
  const std::int64_t together = std::max<std::int64_t>(1, kMadeTogether / tile / kEight) * kEight;
  // Columns of a chunk are accumulated where the chunks are merged: copied there afterwards, they
  // would wait for memory. But not few: there the next chunk, which may be another worker's, begins
  // in the same cache line.
  constexpr std::size_t kMany = 1024;  // bytes
  auto work = [&](const Item& item, const In* x) {
    const std::int64_t result = item.outer * e.inner + item.column;
    Acc here[kTile];
    const bool is_in_place = partial && static_cast<std::size_t>(item.width) * sizeof(Acc) >= kMany;
    Acc* acc = is_in_place ? partial + item.chunk * results + result : here;
    start<Op>(acc, item.width);
    if (e.inner == 1) {
      add_row<Op>(*acc, x ? x : make(begin_of(item), end_of(item)), item.count, item.first);
    } else if (x) {
      add_rows<Op>(acc, x, item.count, e.inner, item.width, item.first);
    } else {
      for (std::int64_t r = 0; r < item.count; r += together) {
        const std::int64_t now = std::min(together, item.count - r);
        const TileProgram::Ranges::Rows made =
            elements.made->make(begin_of(item) + r * e.inner, now, item.width, e.inner);
        add_rows<Op>(acc, reinterpret_cast<const In*>(made.first), now, made.step, item.width,
                     item.first + r);
      }
    }
    if (!partial)
      for (std::int64_t i = 0; i < item.width; ++i) out[result + i] = Op::finish(acc[i], e.reduced);
    else if (!is_in_place) std::copy_n(here, item.width, partial + item.chunk * results + result);
  };
  // Whole rows of f32, or chunks of them, that lie one behind the other are added up side by side.
  constexpr bool is_sum_of_floats = is_sum<Op> && std::is_same_v<In, float>;
  [[maybe_unused]] auto add_up = [&](std::int64_t begin, std::int64_t end, const float* x,
                                     std::int64_t from) {
    constexpr std::int64_t kMost = 64;
    double sums[kMost];
    for (std::int64_t i = begin, now = 0; i < end; i += now) {
      const Item item = item_of(i);
      const std::int64_t whole =
          chunks == 1 ? end - i : std::max<std::int64_t>(1, e.reduced / rows - item.chunk);
      now = std::min({whole, end - i, kMost});
      level_kernels().sums_f32(sums, x + (begin_of(item) - from), now, item.count, item.count);
      for (std::int64_t k = 0; k < now; ++k) {
        Acc acc = Op::start();
        if constexpr (is_sum_of_floats) acc += sums[k];
        if (partial) partial[(item.chunk + k) * results + item.outer] = acc;
        else out[item.outer + k] = Op::finish(acc, e.reduced);
      }
    }
  };
  std::int64_t size = std::min(rows, e.reduced) * tile;  // elements of an item
  std::int64_t group = std::max<std::int64_t>(1, kBlock / size);
  constexpr std::int64_t kSideBySide = 4, kManyItems = 4 * kSideBySide;
  if (is_sum_of_floats && e.inner == 1 && !elements.made && group == 1 && items >= kManyItems)
    group = kSideBySide;
  WorkerPool* used = elements.are_few(results * e.reduced) ? nullptr : pool;
  for_blocks(used, (items + group - 1) / group, [&](int b) {
    const std::int64_t begin = b * group, end = std::min(items, begin + group);
    // Items of whole rows lie one behind the other, several of them together.
    const bool is_made_together = elements.made && tiles == 1 && group > 1;
    const std::int64_t from = is_made_together ? begin_of(item_of(begin)) : 0;
    const In* x = elements.made ? nullptr : static_cast<const In*>(elements.stored);
    if (is_made_together) x = make(from, end_of(item_of(end - 1)));
    if constexpr (is_sum_of_floats)
      if (e.inner == 1 && x) return add_up(begin, end, x, from);
    for (std::int64_t i = begin; i < end; ++i) {
      const Item item = item_of(i);
      work(item, x ? x + (begin_of(item) - from) : nullptr);
    }
  });
  if (!partial) return;
  merge_rows<Op>(partial, chunks, results);
  for (std::int64_t i = 0; i < results; ++i) out[i] = Op::finish(partial[i], e.reduced);
}

// The axes as [outer, reduced, inner]; false if kept and reduced axes alternate more often.
bool find_extents(const Shape& shape, std::uint32_t axes, Extents& e) {
  int phase = 0;  // 0: outer, 1: reduced, 2: inner
  for (int d = 0; d < shape.rank(); ++d) {
    bool reduced = axes >> d & 1;
    if (shape[d] == 1) continue;
    if (reduced && phase == 2) return false;
    if (reduced) phase = 1;
    else if (phase == 1) phase = 2;
    (phase == 0 ? e.outer : phase == 1 ? e.reduced : e.inner) *= shape[d];
  }
  return true;
}

template <class T>
void dispatch(WorkerPool* pool, Reduction how, const Extents& e, const Elements& in, void* out) {
  auto run = [&]<class Op>(type_tag<Op>) {
    reduce_extents<Op>(pool, e, in, static_cast<typename Op::Out*>(out));
  };
  switch (how) {
    case Reduction::sum: return run(type_tag<Sum<T, false>>{});
    case Reduction::mean: return run(type_tag<Sum<T, true>>{});
    case Reduction::product: return run(type_tag<Product<T>>{});
    case Reduction::any: return run(type_tag<Logical<T, false>>{});
    case Reduction::all: return run(type_tag<Logical<T, true>>{});
    default: break;
  }
  if constexpr (!is_complex_type<T>) {
    switch (how) {
      case Reduction::min: return run(type_tag<Extremum<T, false>>{});
      case Reduction::max: return run(type_tag<Extremum<T, true>>{});
      case Reduction::argmin: return run(type_tag<Where<T, false>>{});
      case Reduction::argmax: return run(type_tag<Where<T, true>>{});
      default: break;
    }
  }
  if constexpr (is_real_float<T>) {
    if (how == Reduction::logsumexp) return run(type_tag<LogSumExp<T>>{});
  }
  throw Error(Code::unimplemented,
              fmt::format("{} of {} is not defined", name_of(how), name_of(dtype_of<T>)));
}

// Sums over axes that are not neighbours: first over the first run of axes, then over the next.
// Nothing is transposed.
template <class T>
void sum_apart(WorkerPool* pool, bool is_mean, Shape shape, std::uint32_t axes, const T* in,
               T* out) {
  using Acc = Accumulator<T>;
  Ref<Buffer> sums;
  std::int64_t count = 1;
  for (int end = 0; end < shape.rank();) {
    const int begin = end;
    while (end < shape.rank() && (axes >> end & 1) == (axes >> begin & 1)) ++end;
    if (!(axes >> begin & 1)) continue;
    Extents e;
    for (int d = 0; d < shape.rank(); ++d)
      (d < begin ? e.outer : d < end ? e.reduced : e.inner) *= shape[d];
    if (e.reduced == 1) continue;
    for (int d = begin; d < end; ++d) shape.set(d, 1);
    count *= e.reduced;
    Ref<Buffer> next = Buffer::allocate(
        host_allocator(),
        static_cast<std::size_t>(std::max<std::int64_t>(1, e.outer * e.inner)) * sizeof(Acc));
    if (sums)
      reduce_extents<PartialSum<Acc>>(pool, e, {sums->data()}, static_cast<Acc*>(next->data()));
    else reduce_extents<PartialSum<T>>(pool, e, {in}, static_cast<Acc*>(next->data()));
    sums = std::move(next);
  }
  const Acc* found = static_cast<const Acc*>(sums->data());
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    out[i] =
        is_mean ? Sum<T, true>::finish(found[i], count) : Sum<T, false>::finish(found[i], count);
}

bool needs_elements(Reduction r) {
  return r == Reduction::min || r == Reduction::max || r == Reduction::argmin ||
         r == Reduction::argmax;
}

}  // namespace

void CpuPrimitives::reduce(Stream&, Reduction how, ConstView in, View out,
                           std::uint32_t axes) const {
  Extents e;
  const void* data = in.data();
  Ref<Buffer> moved;
  const bool is_apart = !find_extents(in.shape, axes, e),
             is_sum = how == Reduction::sum || how == Reduction::mean;
  if (is_apart && is_sum && is_floating(in.dtype))
    return visit_dtype(in.dtype, [&]<class T>(type_tag<T>) {
      if constexpr (is_real_float<T>)
        sum_apart(pool_, how == Reduction::mean, in.shape, axes, static_cast<const T*>(data),
                  static_cast<T*>(out.data));
    });
  if (is_apart) {
    std::int64_t order[Shape::kMaxRank];
    int n = 0;
    e = {};
    for (int reduced = 0; reduced < 2; ++reduced)
      for (int d = 0; d < in.shape.rank(); ++d)
        if (int(axes >> d & 1) == reduced) {
          order[n++] = d;
          (reduced ? e.reduced : e.outer) *= in.shape[d];
        }
    moved = Buffer::allocate(host_allocator(), in.bytes());
    permute(pool_, in.data(), in.shape, moved->data(), {order, static_cast<std::size_t>(n)},
            size_of(in.dtype));
    data = moved->data();
  }
  if (needs_elements(how) && e.reduced == 0 && e.outer * e.inner > 0)
    throw Error(Code::out_of_range,
                fmt::format("there is none among no elements: {}", in.shape.text()));
  visit_dtype(in.dtype,
              [&]<class T>(type_tag<T>) { dispatch<T>(pool_, how, e, {data}, out.data); });
}

void CpuPrimitives::pointwise_reduce(Stream& stream, const PointwiseReduceArgs& a) const {
  const View& of = a.results[a.reduced];
  const std::int64_t n = of.elements();
  const TileProgram& program = TileProgram::of(*a.program);
  // nothing is won, but the chunks of one row are fewer than the blocks that make it
  constexpr std::int64_t kStaysInCache = 4 * kBlock;
  Extents e;
  if (n == 0 || !find_extents(of.shape, a.axes, e) ||
      (n <= kStaysInCache && !program.is_small(n))) {
    std::vector<View> results(a.results.begin(), a.results.end());
    Ref<Buffer> made;
    if (!of.data)
      results[a.reduced].data =
          (made = Buffer::allocate(host_allocator(), std::max<std::size_t>(1, of.bytes())))->data();
    pointwise(stream, *a.program, a.in, results);
    return reduce(stream, a.how, ConstView(results[a.reduced].data, of.dtype, of.shape), a.out,
                  a.axes);
  }
  const TileProgram::Ranges made(program, a.in, a.results, a.reduced);
  visit_dtype(of.dtype, [&]<class T>(type_tag<T>) {
    dispatch<T>(pool_, a.how, e, {nullptr, &program, &made}, a.out.data);
  });
}

}  // namespace cpu
}  // namespace troupe
