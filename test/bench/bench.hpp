// Tools of the benchmarks: a clock, medians over interleaved repetitions, one JSON object a line.
//
//   Comparison c{.name = "message_1_worker", .unit = "ns", .peer = "CAF ping-pong", .budget = 0.2};
//   for (int i = 0; i < 7; ++i) { c.ours.push_back(run_ours()); c.theirs.push_back(run_peer()); }
//   c.print();
//
// Ours and the peer alternate within one run, so that both see the same machine; a budget bounds
// the ratio of the medians, or our value where it is absolute. Benchmarks print, they never fail: a
// timed assertion would be a flaky test. A peer that is not installed leaves `theirs` empty and the
// ratio null: nothing is guessed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include <troupe/devices/base/internal.hpp>

namespace troupe::bench {

/// Steady time in nanoseconds.
inline double now_ns() {
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Processor time of this process, in ns.
inline double processor_ns() { return static_cast<double>(std::clock()) * 1e9 / CLOCKS_PER_SEC; }

/// The middle value; `values` must not be empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// `%.6g`, or null for what was not measured.
inline std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}
inline std::string median_or_null(const std::vector<double>& values) {
  return values.empty() ? "null" : number(median(values));
}

/// A JSON string. Control characters become spaces: versions and notes hold none that matter.
inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

/// Microseconds since boot in which some thread of this machine had to wait for a core
/// (/proc/pressure); negative where the kernel does not say.
inline double pressure_us() {
  double total = -1;
  if (std::FILE* file = std::fopen("/proc/pressure/cpu", "r")) {
    if (std::fscanf(file, "some avg10=%*f avg60=%*f avg300=%*f total=%lf", &total) != 1) total = -1;
    std::fclose(file);
  }
  return total;
}

/// One measurement of ours against one of a peer in the same run. `ratio` is ours ÷ peer, or peer ÷
/// ours where `speed_up` is set (the budget is then a lower bound); `ratio_of_best` that of the
/// least disturbed repetitions. `crowding` is the part of the time in which some thread waited for
/// a core, so that figures from a busy machine can be recognised.
struct Comparison {
  std::string name;
  std::string unit;
  std::string peer;
  std::string peer_version = {};
  double budget = 0;  // bound of the ratio; 0: none
  int threads = 1;
  bool speed_up = false;
  std::vector<double> ours = {};
  std::vector<double> theirs = {};
  double budget_value = 0;  // bound of our value, in `unit`; 0: none
  std::string blas = {};    // the peer's library for matrix products
  std::string note = {};
  std::vector<std::pair<std::string, double>> also = {};  // further figures of the same run
  double began_ns = now_ns(), began_pressure_us = pressure_us();

  void print() const {
    const bool measured = !ours.empty() && !theirs.empty();
    const double waited = 1e3 * (pressure_us() - began_pressure_us) / (now_ns() - began_ns);
    std::string line =
        "{\"name\": " + quoted(name) + ", \"value\": " + median_or_null(ours) +
        ", \"unit\": " + quoted(unit) + ", \"peer\": " + quoted(peer) +
        ", \"peer_value\": " + median_or_null(theirs) + ", \"ratio\": " +
        (measured ? number(speed_up ? median(theirs) / median(ours) : median(ours) / median(theirs))
                  : "null") +
        ", \"budget\": " + (budget > 0 ? number(budget) : "null");
    if (speed_up) line += ", \"speed_up\": true";
    if (budget_value > 0) line += ", \"budget_value\": " + number(budget_value);
    line +=
        ", \"threads\": " + std::to_string(threads) + ", \"peer_version\": " + quoted(peer_version);
    if (!blas.empty()) line += ", \"blas\": " + quoted(blas);
    for (const auto& [key, value] : also) line += ", " + quoted(key) + ": " + number(value);
    if (!ours.empty()) {
      const auto [least, most] = std::minmax_element(ours.begin(), ours.end());
      line += ", \"min\": " + number(*least) + ", \"max\": " + number(*most);
    }
    if (!theirs.empty()) {
      const auto [least, most] = std::minmax_element(theirs.begin(), theirs.end());
      line += ", \"peer_min\": " + number(*least) + ", \"peer_max\": " + number(*most);
    }
    if (measured) {
      const double best = *std::min_element(ours.begin(), ours.end()),
                   peer_best = *std::min_element(theirs.begin(), theirs.end());
      line += ", \"ratio_of_best\": " + number(speed_up ? peer_best / best : best / peer_best);
    }
    if (began_pressure_us >= 0) line += ", \"crowding\": " + number(waited);
    if (!note.empty()) line += ", \"note\": " + quoted(note);
    std::printf("%s}\n", line.c_str());
    std::fflush(stdout);
  }
};

}  // namespace troupe::bench
