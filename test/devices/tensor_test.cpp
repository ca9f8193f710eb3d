// Values, tensors, shapes and the allocator.
#include <boost/test/unit_test.hpp>

#include <limits>

#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/numbers.hpp>
#include <troupe/test/support/one_thread.hpp>

using namespace troupe;

BOOST_AUTO_TEST_SUITE(tensors, TROUPE_ONE_THREAD)

BOOST_AUTO_TEST_CASE(blocks_of_host_memory_do_not_overlap) {
  std::unique_ptr<MemorySource> memory = make_host_memory();
  std::vector<std::pair<std::byte*, std::size_t>> blocks;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 60; ++i)
      for (const std::size_t bytes : {std::size_t(64), std::size_t(4) << 10, std::size_t(40) << 10,
                                      std::size_t(256) << 10, std::size_t(320) << 10}) {
        auto* block = static_cast<std::byte*>(memory->get(bytes));
        BOOST_REQUIRE(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
        std::memset(block, static_cast<int>(blocks.size() % 251), bytes);
        blocks.emplace_back(block, bytes);
      }
    for (std::size_t i = 0; i < blocks.size(); ++i)
      for (const std::size_t at : {std::size_t(0), blocks[i].second - 1})
        BOOST_TEST(std::to_integer<int>(blocks[i].first[at]) == static_cast<int>(i % 251));
    for (const auto& [block, bytes] : blocks) memory->put(block, bytes);
    blocks.clear();
  }
}

BOOST_AUTO_TEST_CASE(scalars_live_in_the_handle) {
  Tensor t = Tensor::scalar(2.5f);
  BOOST_TEST(t.is_inline());
  BOOST_TEST(t.item<float>() == 2.5f);
  BOOST_TEST(t.shape().is_scalar());
  BOOST_TEST(t.is_sole_holder());
  std::uint64_t before = host_allocator().counters().allocations;
  Tensor copy = t, moved = std::move(copy);
  BOOST_TEST(moved.at(0) == 2.5);
  BOOST_TEST(!copy.has_value());  // NOLINT: a moved-from handle is empty
  BOOST_TEST(host_allocator().counters().allocations == before);
  for (int i = 0; i < kDTypes; ++i)
    BOOST_TEST(Tensor::scalar_as(static_cast<DType>(i), 1).at(0) == 1);
}

BOOST_AUTO_TEST_CASE(copies_share_and_moves_do_not_count) {
  Tensor t = Tensor::of<float>({1, 2, 3, 4}, Shape{2, 2});
  BOOST_TEST(t.is_sole_holder());
  Tensor moved = std::move(t);
  BOOST_TEST(moved.is_sole_holder());
  Tensor copy = moved;
  BOOST_TEST((!moved.is_sole_holder() && !copy.is_sole_holder()));
  BOOST_TEST(copy.raw() == moved.raw());
  BOOST_CHECK_THROW(copy.raw_mutable(), Error);
  moved.reset();
  BOOST_TEST(copy.is_sole_holder());
  copy.mutable_data<float>()[0] = 9;
  BOOST_TEST(copy.at(0) == 9);
}

BOOST_AUTO_TEST_CASE(views_share_the_buffer) {
  for (std::int64_t n : {4, 400}) {  // in the body, in a buffer
    Tensor t = Tensor::of(std::vector<double>(static_cast<std::size_t>(n), 1.5), Shape{n});
    Tensor view = t.reshaped(Shape{2, n / 2});
    BOOST_TEST(view.raw() == t.raw());
    BOOST_TEST((!t.is_sole_holder() && !view.is_sole_holder()));
    t.reset();
    BOOST_TEST(view.at(n - 1) == 1.5);
    Tensor row = view.rows(1, 2);
    BOOST_TEST((row.shape() == Shape{1, n / 2}));
    BOOST_TEST(row.raw() == static_cast<const double*>(view.raw()) + n / 2);
    view.reset();
    BOOST_TEST(row.at(0) == 1.5);
    BOOST_TEST(identical(row, row.clone()));
  }
}

BOOST_AUTO_TEST_CASE(wrong_uses_name_the_mistake) {
  Tensor t = Tensor::of<float>({1, 2, 3});
  BOOST_CHECK_THROW(t.data<double>(), Error);
  BOOST_CHECK_THROW(t.item<float>(), Error);
  BOOST_CHECK_THROW(t.at(3), Error);
  BOOST_CHECK_THROW(t.rows(1, 5), Error);
  BOOST_CHECK_THROW(t.reshaped(Shape{2}), Error);
  BOOST_CHECK_THROW(Tensor().data<float>(), Error);
  BOOST_CHECK_THROW((Tensor::of<float>({1, 2}, Shape{3})), Error);
  BOOST_CHECK_THROW(Tensor::empty(DType::f32, Shape{kAny}), Error);
  BOOST_CHECK_THROW((Tensor::empty(DType::f64, Shape{INT32_MAX, INT32_MAX, 64})), Error);
  // just below 2^64 bytes, and 2^63
  for (const std::int64_t elements : {(std::int64_t{1} << 61) - 1, std::int64_t{1} << 60})
    BOOST_CHECK_EXCEPTION(Tensor::zeros(DType::f64, Shape{elements}), Error,
                          [](const Error& e) { return e.code() == Code::resource_exhausted; });
}

BOOST_AUTO_TEST_CASE(text_shows_dtype_shape_and_elements) {
  BOOST_TEST((Tensor::of<float>({1, 2.5, 3, 4}, Shape{2, 2}).text(3)) ==
             "f32[2, 2] {1, 2.5, 3, ...}");
  BOOST_TEST(Tensor::scalar(true).text() == "bool[] {true}");
  BOOST_TEST(Tensor().text() == "nothing");
  BOOST_TEST(Tensor::scalar(-std::numeric_limits<float>::quiet_NaN()).text() == "f32[] {nan}");
  BOOST_TEST(Tensor::scalar(std::int64_t{1234567891}).text() == "i64[] {1234567891}");
  BOOST_TEST(Tensor::scalar(std::uint8_t{65}).text() == "u8[] {65}");
  BOOST_TEST(Tensor::scalar(std::complex<float>(1, -2)).text() == "c64[] {1-2i}");
}

BOOST_AUTO_TEST_CASE(shapes) {
  BOOST_TEST((broadcast(Shape{2, 1, 3}, Shape{4, 1}) == Shape{2, 4, 3}));
  BOOST_TEST((broadcast(Shape{0}, Shape{1}) == Shape{0}));
  BOOST_TEST((broadcast(Shape{kAny, 3}, Shape{5, 1}) == Shape{5, 3}));
  BOOST_CHECK_THROW((broadcast(Shape{2}, Shape{3})), Error);
  BOOST_TEST((Shape{64, kAny}.merge(Shape{kAny, 10}) == Shape{64, 10}));
  BOOST_CHECK_THROW((Shape{2}.merge(Shape{3})), Error);
  BOOST_TEST(Shape{}.elements() == 1);
  BOOST_TEST((Shape{3, 0}.elements()) == 0);
  BOOST_TEST(Shape::unknown().text() == "[...]");
  BOOST_TEST((Shape{2, kAny}.text()) == "[2, ?]");
  BOOST_TEST(normalize_axis(-1, 3) == 2);
  BOOST_CHECK_THROW(normalize_axis(3, 3), Error);
}

BOOST_AUTO_TEST_CASE(the_allocator_keeps_counts_and_its_limit) {
  auto heap = make_caching_allocator(make_host_memory(), 1 << 16);
  void* p = heap->allocate(1000);
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(p) % 64 == 0u);
  AllocatorCounters c = heap->counters();
  BOOST_TEST((c.in_use >= 1000 && c.in_use <= 1280));
  BOOST_TEST(c.misses == 1u);
  heap->deallocate(p, 1000);
  BOOST_TEST(heap->counters().in_use == 0u);
  heap->deallocate(heap->allocate(1000), 1000);
  BOOST_TEST(heap->counters().allocations == 2u);
  BOOST_CHECK_EXCEPTION(heap->allocate(1 << 17), Error,
                        [](const Error& e) { return e.code() == Code::resource_exhausted; });
  // Cached blocks make room for a size that was never asked for.
  std::vector<void*> many;
  for (int i = 0; i < 50; ++i) many.push_back(heap->allocate(1024));
  for (void* m : many) heap->deallocate(m, 1024);
  void* large = heap->allocate(60000);
  BOOST_TEST(heap->counters().peak <= std::uint64_t(1 << 16));
  heap->deallocate(large, 60000);
}

BOOST_AUTO_TEST_CASE(the_allocator_returns_no_more_than_is_in_the_way) {
  struct Source final : MemorySource {
    explicit Source(std::vector<void*>& r) : returned(r) {}
    void* get(std::size_t bytes) override { return memory->get(bytes); }
    void put(void* m, std::size_t bytes) noexcept override {
      returned.push_back(m);
      memory->put(m, bytes);
    }
    std::vector<void*>& returned;
    std::unique_ptr<MemorySource> memory = make_host_memory();
  };
  std::vector<void*> returned;
  auto heap = make_caching_allocator(std::make_unique<Source>(returned), 8 << 10);
  std::vector<void*> many;
  for (int i = 0; i < 8; ++i) many.push_back(heap->allocate(1024));
  for (int i : {3, 1, 0, 2, 4, 5, 6, 7}) heap->deallocate(many[static_cast<std::size_t>(i)], 1024);
  if (heap->counters().cached == 0) return;  // under ASan nothing is kept
  void* other = heap->allocate(2000);
  BOOST_TEST((returned == std::vector<void*>{many[3], many[1]}));  // the blocks freed longest ago
  BOOST_TEST(heap->counters().cached == 6u << 10);
  BOOST_TEST(heap->allocate(1024) == many[7]);
  BOOST_TEST(heap->counters().misses == 9u);
  heap->deallocate(many[7], 1024);
  heap->deallocate(other, 2000);
}

BOOST_AUTO_TEST_CASE(the_allocator_returns_memory_unused_for_long) {
  auto heap = make_caching_allocator(make_host_memory());
  const std::size_t sizes[] = {1000, 100'000, 3 << 20};
  const auto use = [&](std::size_t bytes) { heap->deallocate(heap->allocate(bytes), bytes); };
  for (const std::size_t bytes : sizes) use(bytes);
  const std::uint64_t all = heap->counters().cached;
  if (all == 0) return;  // under ASan nothing is kept
  for (std::size_t i = 0; i < Allocator::kAges; ++i) {
    heap->age();
    use(sizes[1]);
    BOOST_TEST(heap->counters().cached == all, i);
  }
  heap->age();
  BOOST_TEST((heap->counters().cached >= 100'000 && heap->counters().cached < 150'000));
  use(sizes[1]);
  BOOST_TEST(heap->counters().misses == 3u);
  for (std::size_t i = 0; i <= Allocator::kAges; ++i) heap->age();
  BOOST_TEST(heap->counters().cached == 0u);
  use(sizes[2]);
  BOOST_TEST(heap->counters().misses == 4u);
}

BOOST_AUTO_TEST_CASE(halves_convert) {
  BOOST_TEST(float(half(1.5f)) == 1.5f);
  BOOST_TEST(float(half(1e6f)) == INFINITY);
  BOOST_TEST(float(bfloat16(1.00390625f)) == 1.f);  // a tie goes to the even neighbour
  BOOST_TEST(std::isnan(float(bfloat16(NAN))));
}

BOOST_AUTO_TEST_CASE(accessors_name_the_callers_line) {  // E9
  const auto says = [](auto f, Code code, const std::string& call, unsigned line) {
    try {
      f();
    } catch (const Error& e) {
      const std::string text = e.what();
      BOOST_TEST((e.code() == code), text);
      BOOST_TEST(text.find(call + " at tensor_test.cpp:" + std::to_string(line) + ": ") !=
                     std::string::npos,
                 text);
      return;
    }
    BOOST_ERROR("nothing was thrown");
  };
  const Code wrong = Code::invalid_argument, empty = Code::failed_precondition;
  const Tensor t = Tensor::of<float>({1, 2, 3}), none, scalar = Tensor::scalar(1.f),
               text = Tensor::string("a");
  Tensor own = Tensor::of<float>({1, 2, 3});
  // clang-format off
  says([&] { t.item<float>(); }, wrong, "item()", __LINE__);
  says([&] { scalar.item<double>(); }, wrong, "item()", __LINE__);
  says([&] { none.item<float>(); }, empty, "item()", __LINE__);
  says([&] { Tensor::of<float>({}).item<float>(); }, wrong, "item()", __LINE__);
  says([&] { t.data<std::int32_t>(); }, wrong, "data()", __LINE__);
  says([&] { none.data<float>(); }, empty, "data()", __LINE__);
  says([&] { own.mutable_data<double>(); }, wrong, "mutable_data()", __LINE__);
  says([&] { t.to_vector<double>(); }, wrong, "to_vector()", __LINE__);
  says([&] { text.to_vector<float>(); }, wrong, "to_vector()", __LINE__);
  says([&] { none.to_vector<float>(); }, empty, "to_vector()", __LINE__);
  says([&] { t.to_strings(); }, wrong, "to_strings()", __LINE__);
  says([&] { t.at(3); }, Code::out_of_range, "at(3)", __LINE__);
  says([&] { t.at(-1); }, Code::out_of_range, "at(-1)", __LINE__);
  says([&] { text.at(0); }, wrong, "at()", __LINE__);
  says([&] { none.at(0); }, empty, "at()", __LINE__);
  says([&] { t.reshaped({2, 2}); }, wrong, "reshaped()", __LINE__);
  says([&] { t.rows(1, 4); }, Code::out_of_range, "rows()", __LINE__);
  says([&] { Tensor::of<float>({1, 2}, {3}); }, wrong, "a tensor", __LINE__);
  says([&] { Tensor::of(std::vector<bool>{true}, {3}); }, wrong, "a tensor", __LINE__);
  says([&] { Tensor::strings({"a"}, {3}); }, wrong, "a tensor", __LINE__);
  // clang-format on
  BOOST_TEST(scalar.item<float>() == 1);
  BOOST_TEST(t.to_vector<float>() == (std::vector<float>{1, 2, 3}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
