// Tokens that wait for iterations that are not open, beside a plain table of them.
#include <troupe/actors/executor/future_tokens.hpp>

#include <map>
#include <random>
#include <set>
#include <stdexcept>

#include <boost/test/unit_test.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(future_tokens_test)

namespace {

Token token(std::int32_t receive, std::int32_t times = 1) {
  Token t{};
  t.receive = receive;
  t.times = times;
  return t;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_place_has_its_own) {
  FutureTokens early;
  BOOST_TEST(early.empty());
  BOOST_TEST(early.take(3) == FutureTokens::kNone);  // before there are slots
  early.add(1, 4, token(10));
  early.add(3, 4, token(30));
  early.add(1, 4, token(11));
  BOOST_TEST(early.any_of(1, [](const Token& t) { return t.receive == 11; }));
  BOOST_TEST(!early.any_of(1, [](const Token& t) { return t.receive == 30; }));
  BOOST_TEST(early.take(0) == FutureTokens::kNone);
  std::set<std::int32_t> found;
  for (std::int32_t entry = early.take(1), next; entry != FutureTokens::kNone; entry = next) {
    next = early.after(entry);
    found.insert(early.token(entry).receive);
    early.drop(entry);
  }
  BOOST_TEST((found == std::set<std::int32_t>{10, 11}));
  BOOST_TEST(!early.empty());
  early.clear();
  BOOST_TEST(early.empty());
  BOOST_TEST(early.take(3) == FutureTokens::kNone);
}

// The caller keeps the token and can still name its value.
BOOST_AUTO_TEST_CASE(token_stays_with_the_caller_when_there_is_no_room) {
  FutureTokens early;
  Token t = token(7);
  t.value = Tensor::scalar(std::int32_t{5});
  BOOST_CHECK_THROW(early.add(0, static_cast<std::size_t>(-1), std::move(t)), std::length_error);
  BOOST_TEST(t.value.tensor().item<std::int32_t>() == 5);
  BOOST_TEST(early.empty());
}

// Several of one token, each taken by its iteration; others come while they are taken, and all is
// cleared at times.
BOOST_AUTO_TEST_CASE(as_a_table_has_it) {
  constexpr std::size_t kPlaces = 16;
  for (std::uint32_t seed = 1; seed <= 50; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      std::minstd_rand random(seed);
      FutureTokens early;
      // by slot: what, how often
      std::multimap<std::size_t, std::pair<std::int32_t, std::int32_t>> table;
      std::int32_t made = 0;
      const auto add = [&](std::size_t place) {
        const auto times = static_cast<std::int32_t>(1 + random() % 3);
        early.add(place, kPlaces, token(made, times));
        table.emplace(place, std::pair{made++, times});
      };
      for (std::size_t n = 0; n < 400; ++n) {
        const std::size_t place = n % kPlaces, ahead = (n + 1 + random() % (kPlaces - 1)) % kPlaces;
        add(ahead);
        std::multiset<std::int32_t> expected, found;
        const auto [begin, end] = table.equal_range(place);
        std::vector<std::pair<std::int32_t, std::int32_t>> go_on;
        for (auto it = begin; it != end; ++it) {
          expected.insert(it->second.first);
          if (it->second.second > 1) go_on.emplace_back(it->second.first, it->second.second - 1);
        }
        table.erase(begin, end);
        for (const auto& more : go_on) table.emplace((place + 1) % kPlaces, more);
        for (std::int32_t entry = early.take(place), next; entry != FutureTokens::kNone;
             entry = next) {
          next = early.after(entry);
          found.insert(early.token(entry).receive);
          if (--early.token(entry).times > 0) early.put_back(entry, (place + 1) % kPlaces);
          else early.drop(entry);
          if (random() % 4 == 0) add((place + 2) % kPlaces);
        }
        BOOST_TEST(found == expected, boost::test_tools::per_element());
        BOOST_TEST(early.empty() == table.empty());
        if (random() % 100 == 0) early.clear(), table.clear();
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
