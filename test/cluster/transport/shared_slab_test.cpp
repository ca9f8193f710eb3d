// Lent memory: locations that do not overlap and come back, a limit that binds, tensors that
// outlive the slab's ends, and a peer that lies.
#include <troupe/cluster/transport/channel/shared_slab.hpp>

#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include <troupe/test/support/refusal.hpp>

BOOST_AUTO_TEST_SUITE(shared_slab_test)

namespace {

using namespace troupe;
using troupe::test::refusal;

constexpr std::size_t kBytes = 1 << 20;

struct Pair {
  OwnedDescriptor slab = make_slab(kBytes);
  Ref<LendingSlab> mine = LendingSlab::open(slab);
  Ref<BorrowedSlab> theirs = BorrowedSlab::open(slab);

  /// Lent, with `fill` in it, and borrowed.
  Tensor pass(std::size_t bytes, int fill) {
    const std::optional<Loan> loan = mine->take(bytes);
    BOOST_REQUIRE(loan.has_value());
    std::memset(mine->at(*loan), fill, bytes);
    mine->lend(*loan);
    BOOST_REQUIRE(theirs->has(loan->place));
    return Tensor::on_buffer(theirs->borrow(loan->place), 0, nullptr, DType::u8,
                             Shape{static_cast<std::int64_t>(bytes)});
  }
};

bool holds(const Tensor& t, int fill) {
  const auto* bytes = t.data<std::uint8_t>();
  return std::all_of(bytes, bytes + t.bytes(), [&](std::uint8_t b) { return b == fill; });
}

std::size_t slabs_mapped() {
  std::ifstream maps("/proc/self/maps");
  std::size_t n = 0;
  for (std::string line; std::getline(maps, line);)
    n += line.find("troupe slab") != std::string::npos;
  return n;
}

BOOST_AUTO_TEST_CASE(a_loan_is_exclusive_until_it_is_returned) {
  Pair pair;
  std::mt19937_64 random(4);
  std::vector<std::pair<Tensor, int>> held;
  std::uint64_t refused = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::size_t bytes = 1 + random() % 200'000;
    if (held.size() > 20 || (random() % 3 == 0 && !held.empty())) {
      const std::size_t i = random() % held.size();
      BOOST_REQUIRE(holds(held[i].first, held[i].second));
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const std::optional<Loan> loan = pair.mine->take(bytes);
    if (!loan) {
      ++refused;
      held.erase(held.begin());
      continue;
    }
    std::memset(pair.mine->at(*loan), round % 251, bytes);
    pair.mine->lend(*loan);
    held.emplace_back(Tensor::on_buffer(pair.theirs->borrow(loan->place), 0, nullptr, DType::u8,
                                        Shape{static_cast<std::int64_t>(bytes)}),
                      round % 251);
  }
  BOOST_TEST(refused > 0u);
  for (const auto& [tensor, fill] : held) BOOST_TEST(holds(tensor, fill));
  held.clear();
  // All of it is one location again.
  BOOST_TEST(pair.pass(kBytes, 3).bytes() == kBytes);
}

BOOST_AUTO_TEST_CASE(a_slab_lends_no_more_than_it_has) {
  Pair pair;
  BOOST_TEST(!pair.mine->take(kBytes + 1));
  BOOST_TEST(!pair.mine->take(0));
  const Tensor all = pair.pass(kBytes, 1);
  BOOST_TEST(!pair.mine->take(1));
  BOOST_TEST(holds(all, 1));
  Pair many;
  std::vector<Loan> loans;
  while (const std::optional<Loan> loan = many.mine->take(1)) loans.push_back(*loan);
  BOOST_TEST(loans.size() == kBytes / SlabMemory::kPage);
  BOOST_TEST(loans.size() < SlabMemory::kSlots);
}

BOOST_AUTO_TEST_CASE(a_tensor_outlives_both_ends) {
  const std::size_t before = slabs_mapped();
  Tensor kept;
  {
    Pair pair;
    kept = pair.pass(100'000, 9);
    BOOST_TEST(kept.is_sole_holder());  // its receiver may write into it
    BOOST_TEST(slabs_mapped() == before + 2);
  }
  BOOST_TEST(slabs_mapped() == before + 1);
  BOOST_TEST(holds(kept, 9));
  const Tensor row = kept.rows(10, 20);
  kept = Tensor();
  BOOST_TEST(holds(row, 9));
}

BOOST_AUTO_TEST_CASE(tensor_made_in_the_slab_is_lent_without_a_copy) {
  Pair pair;
  const auto make = [&] {
    return Tensor::on_buffer(pair.mine->allocate(100'000), 0, nullptr, DType::u8, Shape{100'000});
  };
  Tensor made = make();
  std::memset(made.raw_mutable(), 5, made.bytes());
  Tensor other = made;
  BOOST_TEST(!pair.mine->loan_of(made));  // another could read what the receiver writes
  other = Tensor();
  BOOST_TEST(!pair.mine->loan_of(made.rows(0, 50'000)));
  BOOST_TEST(!pair.mine->loan_of(Tensor::zeros(DType::u8, Shape{100'000})));
  const std::optional<LoanPlace> place = pair.mine->loan_of(made);
  BOOST_REQUIRE(place.has_value());
  Tensor theirs =
      Tensor::on_buffer(pair.theirs->borrow(*place), 0, nullptr, DType::u8, Shape{100'000});
  made = Tensor();
  BOOST_TEST(holds(theirs, 5));
  BOOST_TEST(!pair.mine->take(kBytes));  // the receiver's now
  theirs = Tensor();
  // Never passed on, and without a holder: free at once.
  made = make();
  BOOST_TEST(!pair.mine->take(kBytes));
  made = Tensor();
  BOOST_TEST(pair.pass(kBytes, 1).bytes() == kBytes);
  BOOST_TEST(!pair.mine->allocate(kBytes + 1));
}

BOOST_AUTO_TEST_CASE(tensors_may_end_on_any_thread) {
  Pair pair;
  for (int round = 0; round < 300; ++round) {
    std::vector<Tensor> some;
    for (int i = 0; i < 4; ++i) some.push_back(pair.pass(50'000, i));
    std::jthread a([&] { some[0] = some[1] = Tensor(); }), b([&] { some[2] = some[3] = Tensor(); });
  }
  BOOST_TEST(pair.pass(kBytes, 3).bytes() == kBytes);
}

BOOST_AUTO_TEST_CASE(places_beyond_the_slab_are_refused) {
  Pair pair;
  BOOST_TEST(pair.theirs->has({.slot = SlabMemory::kSlots - 1, .position = 0, .bytes = kBytes}));
  BOOST_TEST(!pair.theirs->has({.slot = SlabMemory::kSlots, .position = 0, .bytes = 1}));
  BOOST_TEST(!pair.theirs->has({.slot = 0, .position = 0, .bytes = kBytes + 1}));
  BOOST_TEST(!pair.theirs->has({.slot = 0, .position = SlabMemory::kPage, .bytes = kBytes}));
  // tensors begin with a page
  BOOST_TEST(!pair.theirs->has({.slot = 0, .position = 64, .bytes = 1}));
  BOOST_TEST(!pair.theirs->has({.slot = 0,
                                .position = ~std::uint64_t{0} - SlabMemory::kPage + 1,
                                .bytes = SlabMemory::kPage}));
  BOOST_TEST(!pair.theirs->has({.slot = 0, .position = 2 * kBytes, .bytes = ~std::uint64_t{0}}));
}

BOOST_AUTO_TEST_CASE(only_memory_of_fixed_size_is_a_slab) {
  OwnedDescriptor shrinks(memfd_create("not sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  BOOST_REQUIRE(ftruncate(shrinks.get(), 8 * SlabMemory::kPage) == 0);
  BOOST_TEST(refusal([&] { BorrowedSlab::open(shrinks); }, Code::data_loss).find("fixed size") !=
             std::string::npos);
  BOOST_TEST(refusal([&] { LendingSlab::open(shrinks); }, Code::data_loss).find("fixed size") !=
             std::string::npos);
  const OwnedDescriptor slab = make_slab(kBytes);
  BOOST_TEST(ftruncate(slab.get(), 0) != 0);
  OwnedDescriptor odd(memfd_create("odd", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  BOOST_REQUIRE(ftruncate(odd.get(), SlabMemory::kPage + 1) == 0);
  BOOST_REQUIRE(fcntl(odd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  BOOST_TEST(refusal([&] { BorrowedSlab::open(odd); }, Code::data_loss).find("whole pages") !=
             std::string::npos);
  BOOST_TEST(!refusal([&] { BorrowedSlab::open(OwnedDescriptor(open("/dev/null", O_RDONLY))); },
                      Code::data_loss)
                  .empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
