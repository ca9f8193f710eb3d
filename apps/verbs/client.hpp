// How verbs ask a running node over HTTP.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/apps/verbs/verbs.hpp>

namespace troupe::verbs {

/// Returns the answer to GET `path`. All of it must arrive within the flags' patience, or within
/// `least_s` if that is longer. Throws std::runtime_error with a sentence if there is no answer, or
/// if it is refused; Misuse if the node does not know the path.
std::string fetch(const LookFlags& flags, const std::string& path, int least_s = 0);
/// Parses an answer as JSON. Refuses contents that no node sends: nested without end, or fractions
/// that fit no number. Throws std::runtime_error with a sentence.
nlohmann::json parsed(const std::string& said);
/// Percent-encoded, for a query.
std::string encoded(const std::string& text);

/// The destination of an answer: a file, or standard output if its name is empty. Throws Misuse if
/// the file cannot be written, before any request. If nothing is written, the file stays as it was,
/// or missing.
class Output {
 public:
  explicit Output(std::string name);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  void write(const std::string& text);

 private:
  const std::string name_;
  bool is_made_ = false;  // here, and nothing is in it
  std::ofstream file_;
};

/// Calls `draw` once, or repeatedly as `--watch` says; returns its last status. After the first
/// success an exception of `draw` is printed, and the loop goes on.
int repeat(const LookFlags& flags, const std::function<int()>& draw);

}  // namespace troupe::verbs
