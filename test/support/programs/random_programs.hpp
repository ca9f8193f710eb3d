// Compares random programs with nested control flow with the oracle in given ways. A failing
// program is shrunk and printed.
#pragma once

#include <boost/test/unit_test.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include <troupe/test/support/programs/compare.hpp>
#include <troupe/test/support/programs/shrink.hpp>
#include <troupe/test/support/share.hpp>

namespace troupe::test {

// A program that neither ends nor times out (an engine that cannot be shut down) is named at least.
class Watch {
 public:
  explicit Watch(std::uint64_t seed) {
    std::snprintf(text_, sizeof text_, "the program of seed %llu hangs\n",
                  static_cast<unsigned long long>(seed));
    std::signal(SIGALRM, [](int) {
      [[maybe_unused]] ssize_t n = ::write(2, text_, std::strlen(text_));
      _exit(1);
    });
    alarm(120);
  }
  Watch(const Watch&) = delete;
  ~Watch() { alarm(0); }

 private:
  static inline char text_[80];
};

using Check = std::function<std::optional<std::string>(const Recipe&, const Way&)>;

// Some failures depend on threads: several tries.
inline std::optional<std::string> often(const Check& check, const Recipe& r, const Way& way) {
  for (int tries = way.is_deterministic || way.is_interpreter ? 1 : 10; tries > 0; --tries) {
    try {
      if (auto wrong = check(r, way)) return wrong;
    } catch (const std::exception&) {
      return std::nullopt;  // no program to compare
    }
  }
  return std::nullopt;
}

inline void report(const Recipe& r, const Way& way, const std::string& wrong, const Check& check) {
  alarm(0);  // to make it small takes as long as it takes
  auto again = [&](const Recipe& c) { return apart([&] { return often(check, c, way); }); };
  Recipe small = shrunk(
      r, [&](const Recipe& c) { return again(c).has_value(); }, 800);
  BOOST_ERROR(fmt::format("seed {}, {}: {}\nMade small, of {} statements {} are left:\n{}{}",
                          r.seed, way.name, wrong, statements_in(r), statements_in(small),
                          text_of(small), again(small).value_or("(it does not fail every time)")));
}

// Deterministic ways always, those with threads for every third program each. Under sanitizers all
// of them for every third, under TSan only those with threads: one thread has no races.
inline bool is_due(const std::vector<Way>& ways, std::size_t way, std::uint64_t seed) {
  if (std::getenv("TROUPE_SEED")) return true;
  const bool is_alone = ways[way].is_deterministic || ways[way].is_interpreter;
  if (is_alone && kUnderTsan) return false;
  return (is_alone && kShare == 1) || (seed + way) % 3 == 0;
}

using Differ =
    std::function<std::optional<std::string>(const Recipe&, const Expected&, const Way&)>;

inline void compare_values(
    const std::vector<Way>& ways, Seeds s, const Tastes& tastes,
    const Differ& differ = [](const Recipe& r, const Expected& e, const Way& way) {
      return difference(r, e, way);
    }) {
  int compared = 0, failed = 0, errors = 0;
  for (std::uint64_t seed = s.first; seed < s.first + s.count && failed < 3; ++seed) {
    Watch watch(seed);
    const Recipe r = random_recipe(seed, tastes);
    Expected expected;
    try {
      expected = expected_of(r);
    } catch (const Unfit&) { continue; }
    ++compared;
    errors += !expected.error.empty();
    for (std::size_t w = 0; w < ways.size(); ++w) {
      if (!is_due(ways, w, seed)) continue;
      std::optional<std::string> wrong;
      try {
        wrong = differ(r, expected, ways[w]);
      } catch (const Unfit&) {
        --compared;
        break;
      }
      if (!wrong) continue;
      ++failed;
      report(r, ways[w], *wrong,
             [&](const Recipe& c, const Way& way) { return differ(c, expected_of(c), way); });
      break;
    }
  }
  // programs that cannot be compared are rare
  if (s.count >= 50) BOOST_TEST(compared >= static_cast<int>(s.count) * 4 / 5);
  if (s.count >= 50 && tastes.may_fail) BOOST_TEST(errors > 0);
}

}  // namespace troupe::test
