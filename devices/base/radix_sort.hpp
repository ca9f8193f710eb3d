// Sorts rows of elements by digits of keys: an element's key is an unsigned number, smaller if the
// element comes first. Equal elements keep their order, all NaNs are equal and the largest, -0 is
// 0.
//
//   RowSorter<float> sorter;
//   sorter.sort(x, n, n, descending,
//               [&](std::int64_t place, std::int64_t at) { indices[place] = at; });
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <troupe/devices/base/dtype.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

template <class T>
using OrderKey = std::conditional_t<
    sizeof(T) == 1, std::uint8_t,
    std::conditional_t<sizeof(T) == 2, std::uint16_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

template <class T>
OrderKey<T> order_key(T x) {
  using K = OrderKey<T>;
  constexpr K top = static_cast<K>(K(1) << (8 * sizeof(K) - 1));
  if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>) {
    return static_cast<K>(x);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<K>(static_cast<K>(x) ^ top);
  } else {
    constexpr K infinity = static_cast<K>(std::is_same_v<T, half>       ? 0x7C00
                                          : std::is_same_v<T, bfloat16> ? 0x7F80
                                          : std::is_same_v<T, float>    ? 0x7F800000
                                                                        : 0x7FF0000000000000);
    const K bits = std::bit_cast<K>(x), size = static_cast<K>(bits & static_cast<K>(~top));
    if (size > infinity) return static_cast<K>(~K(0));
    return static_cast<K>(bits > top ? top - size : top + size);
  }
}

/// Returns true if only one element has this key; `element_of` returns that element. Zeros of
/// either sign share a key, and so do all NaNs.
template <class T>
bool is_of_one(OrderKey<T> key) {
  using K = OrderKey<T>;
  constexpr K top = static_cast<K>(K(1) << (8 * sizeof(K) - 1));
  return std::is_same_v<T, bool> || std::is_integral_v<T> ||
         (key != top && key != static_cast<K>(~K(0)));
}
template <class T>
T element_of(OrderKey<T> key) {
  using K = OrderKey<T>;
  constexpr K top = static_cast<K>(K(1) << (8 * sizeof(K) - 1));
  if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>) return static_cast<T>(key);
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<K>(key ^ top));
  else return std::bit_cast<T>(static_cast<K>(key > top ? key - top : (top - key) | top));
}

/// Keeps its memory from row to row.
template <class T>
class RowSorter {
 public:
  /// Calls put(place, position), or put(place, position, key), for the first `count` places of the
  /// n elements in order.
  template <class Put>
  void sort(const T* x, std::int64_t n, std::int64_t count, bool descending, Put&& put) {
    if (sizeof(T) < 8 && n < std::int64_t{1} << 32)
      sort(narrow_, spare_narrow_, x, n, count, descending, put);
    else sort(wide_, spare_wide_, x, n, count, descending, put);
  }

 private:
  using Narrow = std::uint64_t;  // the key above the position
  struct Wide {
    std::uint64_t key, at;
    friend auto operator<=>(const Wide&, const Wide&) = default;
  };
  static constexpr std::int64_t kFew = 64;
  static constexpr int kKeyBits = 8 * sizeof(OrderKey<T>);

  static std::uint64_t key_of(Narrow item) { return item >> 32; }
  static std::uint64_t key_of(const Wide& item) { return item.key; }
  static std::int64_t position_of(Narrow item) {
    return static_cast<std::int64_t>(item & 0xFFFFFFFF);
  }
  static std::int64_t position_of(const Wide& item) { return static_cast<std::int64_t>(item.at); }
  static void set(Narrow& item, std::uint64_t key, std::int64_t at) {
    item = key << 32 | static_cast<std::uint64_t>(at);
  }
  static void set(Wide& item, std::uint64_t key, std::int64_t at) {
    item = {key, static_cast<std::uint64_t>(at)};
  }

  template <class Item, class Put>
  void sort(std::vector<Item>& items, std::vector<Item>& spare, const T* x, std::int64_t n,
            std::int64_t count, bool descending, Put&& put) {
    auto key_at = [&](std::int64_t i) {
      const OrderKey<T> key = order_key(x[i]);
      return static_cast<OrderKey<T>>(descending ? ~key : key);
    };
    const bool is_few_of_many = count <= kFew && count < n / 4;
    items.resize(static_cast<std::size_t>(is_few_of_many ? count : n));
    for (std::size_t i = 0; i < items.size(); ++i)
      set(items[i], key_at(static_cast<std::int64_t>(i)), static_cast<std::int64_t>(i));
    if (is_few_of_many) {
      if (count > 0) keep_first(items, n, key_at);
    } else if (n <= kFew) {
      std::sort(items.begin(), items.end());
    } else if (n < 4096) {
      sort_by_digits<8>(items, spare);
    } else {
      sort_by_digits<11>(items, spare);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const Item& item = items[static_cast<std::size_t>(i)];
      if constexpr (std::is_invocable_v<Put, std::int64_t, std::int64_t, OrderKey<T>>)
        put(i, position_of(item), static_cast<OrderKey<T>>(key_of(item)));
      else put(i, position_of(item));
    }
  }

  /// Keeps the first elements of all n in a heap whose top is the last of them; most elements do
  /// not come before the top.
  template <class Item, class KeyAt>
  void keep_first(std::vector<Item>& items, std::int64_t n, KeyAt&& key_at) {
    std::make_heap(items.begin(), items.end());
    std::uint64_t last = key_of(items.front());
    for (std::int64_t i = std::ssize(items); i < n; ++i) {
      const std::uint64_t key = key_at(i);
      if (key >= last) continue;
      std::pop_heap(items.begin(), items.end());
      set(items.back(), key, i);
      std::push_heap(items.begin(), items.end());
      last = key_of(items.front());
    }
    std::sort_heap(items.begin(), items.end());
  }

  // From the lowest digit to the highest, each time in the order so far; digits that are equal in
  // all keys are skipped.
  template <int bits, class Item>
  void sort_by_digits(std::vector<Item>& items, std::vector<Item>& spare) {
    constexpr int passes = (kKeyBits + bits - 1) / bits;
    constexpr std::uint64_t mask = (1 << bits) - 1;
    spare.resize(items.size());
    counts_.assign(std::size_t(passes) << bits, 0);
    for (const Item& item : items)
      for (int p = 0; p < passes; ++p)
        ++counts_[(std::size_t(p) << bits) + (key_of(item) >> (p * bits) & mask)];
    for (int p = 0; p < passes; ++p) {
      std::size_t* count = counts_.data() + (std::size_t(p) << bits);
      if (count[key_of(items[0]) >> (p * bits) & mask] == items.size()) continue;
      std::size_t before = 0;
      for (std::size_t d = 0; d <= mask; ++d) {
        const std::size_t here = count[d];
        count[d] = before;
        before += here;
      }
      for (const Item& item : items) spare[count[key_of(item) >> (p * bits) & mask]++] = item;
      items.swap(spare);
    }
  }

  std::vector<Narrow> narrow_, spare_narrow_;
  std::vector<Wide> wide_, spare_wide_;
  std::vector<std::size_t> counts_;
};

}  // namespace troupe
