// The arrows of a trace, from where a token went to where it came; and its slices, as viewers demand them.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

namespace troupe::test {

/// How many there are in Chrome's format, none of which may end before it begins; by more than clocks may be off, in µs.
inline int forward_arrows(const nlohmann::json& trace, double off = 0) {
  std::map<std::string, double> sent;
  int arrows = 0;
  for (const auto& e : trace["traceEvents"])
    if (e["ph"] == "s") sent[e["id"]] = e["ts"];
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] != "f") continue;
    BOOST_TEST(e["ts"].get<double>() >= sent.at(e["id"]) - off);
    ++arrows;
  }
  return arrows;
}

/// How many slices overlap another of their lane without lying within it: Perfetto drops them.
inline int overlapping_slices(const nlohmann::json& trace) {
  using Span = std::pair<std::int64_t, std::int64_t>;  // begin, end
  const auto ns = [](const nlohmann::json& us) { return std::llround(us.get<double>() * 1e3); };
  std::map<std::pair<int, int>, std::vector<Span>> lanes;
  for (const auto& e : trace["traceEvents"])
    if (e["ph"] == "X") lanes[{e["pid"], e["tid"]}].emplace_back(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]));
  int overlapping = 0;
  for (auto& [lane, spans] : lanes) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.first != b.first ? a.first < b.first : a.second > b.second; });
    std::vector<std::int64_t> open;  // ends
    for (const auto& [begin, end] : spans) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      overlapping += !open.empty() && open.back() < end;
      open.push_back(end);
    }
  }
  return overlapping;
}

}  // namespace troupe::test
