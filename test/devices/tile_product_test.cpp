// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// f32 products by tiles: of whole numbers, which floats add without rounding, against Eigen, and
// part by part against themselves, bit for bit.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <troupe/devices/cpu/products/tile_product.hpp>
#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/support/levels.hpp>

using namespace troupe;
using cpu::GemmCall;
using cpu::LevelKernels;

BOOST_AUTO_TEST_SUITE(tile_product_test)

namespace {

std::vector<const LevelKernels*> levels_with_tiles() {
  std::vector<const LevelKernels*> found = test::levels();
  std::erase_if(found, [](const LevelKernels* level) { return !level->multiply_panel_f32; });
  return found;
}

/// a [m, k] and b [k, n], each as it is or transposed, and c, whose rows lie `gap` further apart
/// than they are long.
struct Product {
  std::int64_t m, n, k, gap;
  bool ta, tb;
  std::vector<float> a, b, c;

  Product(std::int64_t rows, std::int64_t columns, std::int64_t depth, bool a_turned, bool b_turned,
          std::mt19937_64& random, bool whole_numbers)
      : m(rows), n(columns), k(depth), gap(3), ta(a_turned), tb(b_turned),
        c(static_cast<std::size_t>(m * (n + gap)), kUnwritten) {
    auto filled = [&](std::int64_t size) {
      std::vector<float> x(static_cast<std::size_t>(size));
      for (float& v : x)
        v = whole_numbers ? static_cast<float>(random() % 17) - 8
                          : static_cast<float>(random() % 20'001) / 10'000 - 1;
      return x;
    };
    a = filled(m * k);
    b = filled(k * n);
  }
  static constexpr float kUnwritten = -12345.f;
  GemmCall call() {
    return {m,        n,          k,          a.data(), ta ? 1 : k, ta ? m : 1,
            b.data(), tb ? 1 : n, tb ? k : 1, c.data(), n + gap};
  }
  float at(std::int64_t row, std::int64_t column) const {
    return c[static_cast<std::size_t>(row * (n + gap) + column)];
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(every_element_and_nothing_else_is_written) {
  std::mt19937_64 random(7);
  std::int64_t products = 0;
  for (const LevelKernels* level : levels_with_tiles())
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                  {2, 3, 4},
                                  {3, 16, 5},
                                  {4, 15, 33},
                                  {5, 17, 7},
                                  {6, 32, 64},
                                  {7, 7, 255},
                                  {8, 129, 256},
                                  {13, 140, 257},
                                  {17, 130, 600},
                                  {143, 20, 40},
                                  {144, 161, 9},
                                  {145, 33, 300},
                                  {290, 1030, 9},
                                  {13, 1040, 260},
                                  {146, 1026, 258},
                                  {31, 1, 70},
                                  {1, 300, 513},
                                  {300, 37, 9},
                                  {290, 24, 300},
                                  {64, 64, 64}})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true}) {
          Product p(m, n, k, ta, tb, random, true);
          Product wanted = p;
          level->gemm_f32(wanted.call());
          cpu::tile_product(*level, p.call());
          std::int64_t wrong = 0;
          for (std::size_t i = 0; i < p.c.size(); ++i) wrong += p.c[i] != wanted.c[i];
          BOOST_TEST(wrong == 0, m << " x " << k << " x " << n << (ta ? ", a turned" : "")
                                   << (tb ? ", b turned" : "") << ": " << wrong << " are wrong");
          BOOST_TEST(p.c.back() == Product::kUnwritten);
          ++products;
        }
  BOOST_TEST_MESSAGE(products << " products");
}

BOOST_AUTO_TEST_CASE(a_part_is_the_same_bits_as_in_the_whole) {
  std::mt19937_64 random(8);
  for (const LevelKernels* level : levels_with_tiles())
    for (const auto& [turned, depth] : {std::pair{false, 517}, {true, 517}, {true, 33}}) {
      // the shorter b is read as it lies
      Product whole(301, 203, depth, turned, !turned, random, false), part = whole;
      cpu::tile_product(*level, whole.call());
      for (const auto& [row, rows] :
           {std::array<std::int64_t, 2>{0, 1}, {1, 5}, {6, 150}, {156, 145}})
        for (const auto& [column, columns] :
             {std::array<std::int64_t, 2>{0, 20}, {20, 1}, {21, 182}}) {
          GemmCall g = part.call();
          g.a = static_cast<const float*>(g.a) + row * g.a_rs;
          g.b = static_cast<const float*>(g.b) + column * g.b_cs;
          g.c = static_cast<float*>(g.c) + row * g.c_rs + column;
          g.m = rows;
          g.n = columns;
          cpu::tile_product(*level, g);
        }
      BOOST_TEST((std::memcmp(whole.c.data(), part.c.data(), whole.c.size() * sizeof(float)) == 0));
    }
}

BOOST_AUTO_TEST_CASE(packed_before_is_the_same_bits) {
  std::mt19937_64 random(9);
  WorkerPool pool(2);
  for (const LevelKernels* level : levels_with_tiles())
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 64, 32},
                                  {32, 512, 384},
                                  {300, 130, 300},
                                  {9, 1100, 500},
                                  {400, 600, 40}})
      for (const bool turned : {false, true})
        for (WorkerPool* with : {&pool, static_cast<WorkerPool*>(nullptr)}) {
          Product plain(m, n, k, turned, turned, random, false), packed = plain;
          cpu::tile_product(*level, plain.call());
          RepackedSlot slot;
          for (int time = 0; time < 2; ++time) {  // made, then found
            std::fill(packed.c.begin(), packed.c.end(), Product::kUnwritten);
            cpu::PackedColumns::run(*level, with, packed.call(), 1, slot);
            BOOST_TEST((
                std::memcmp(plain.c.data(), packed.c.data(), plain.c.size() * sizeof(float)) == 0));
          }
          for (float& v : packed.b) v = -v;  // other elements at the same offset
          cpu::PackedColumns::run(*level, with, packed.call(), 2, slot);
          BOOST_TEST(packed.at(0, 0) == -plain.at(0, 0));
          if (turned) continue;    // with fewer rows, the elements of a would lie elsewhere
          Product fewer = packed;  // another number of rows takes what is packed
          fewer.m = (m + 1) / 2;
          const auto kept = slot.get();
          GemmCall g = fewer.call();
          g.b = packed.b.data();
          cpu::PackedColumns::run(*level, with, g, 2, slot);
          BOOST_TEST((slot.get() == kept));
          BOOST_TEST(fewer.at(fewer.m - 1, n - 1) == packed.at(fewer.m - 1, n - 1));
        }
}

BOOST_AUTO_TEST_CASE(the_shape_selects_the_multiplication) {
  auto suits = [](std::int64_t m, std::int64_t k, std::int64_t n, bool packed) {
    return cpu::suits_tiles({m, n, k, nullptr, k, 1, nullptr, n, 1, nullptr, n}, packed);
  };
  auto suits_transposed = [](std::int64_t m, std::int64_t k, std::int64_t n) {
    return cpu::suits_tiles({m, n, k, nullptr, k, 1, nullptr, 1, k, nullptr, n}, false);
  };
  const LevelKernels& level = cpu::level_kernels();
  const bool tiles = level.multiply_panel_f32 != nullptr;
  BOOST_TEST(suits(1024, 1024, 1024, false) == tiles);
  BOOST_TEST(suits(8, 1024, 1024, false) == tiles);
  BOOST_TEST(suits(1, 1024, 1024, true) == tiles);
  BOOST_TEST(!suits(1, 1024, 1024, false));
  BOOST_TEST(suits(64, 784, 512, false) == tiles);
  BOOST_TEST(!suits_transposed(64, 512, 784));
  BOOST_TEST(!suits(1024, 9, 1024, true));
  BOOST_TEST(!suits(1024, 1024, 1, true));
}

BOOST_AUTO_TEST_SUITE_END()
