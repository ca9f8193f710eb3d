// The arrows of a trace: from where a token went to where it came.
#pragma once

#include <map>
#include <string>

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

namespace troupe::test {

/// How many there are in Chrome's format, none of which may end before it begins.
inline int forward_arrows(const nlohmann::json& trace) {
  std::map<std::string, double> sent;
  int arrows = 0;
  for (const auto& e : trace["traceEvents"])
    if (e["ph"] == "s") sent[e["id"]] = e["ts"];
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] != "f") continue;
    BOOST_TEST(e["ts"].get<double>() >= sent.at(e["id"]));
    ++arrows;
  }
  return arrows;
}

}  // namespace troupe::test
