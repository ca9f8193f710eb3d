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

/// What GET `path` answers, all of it within the flags' patience or, for what takes longer,
/// `least_s` at least. Throws std::runtime_error with a sentence if nobody answers, or if it is
/// refused; Misuse for what the node does not know.
std::string fetch(const LookFlags& flags, const std::string& path, int least_s = 0);
/// An answer as JSON, with nothing in it that no node says: nested without end, or fractions that
/// fit no number. Throws std::runtime_error with a sentence.
nlohmann::json parsed(const std::string& said);
/// Percent-encoded, for a query.
std::string encoded(const std::string& text);

/// Where an answer goes: a file, or standard output if its name is empty. Throws Misuse for a file
/// that cannot be written, before anything is asked. Where nothing is written to it, a file is as
/// it was, or is not there.
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

/// `draw` once, or again and again as `--watch` says; its last status. What it throws once it has
/// been drawn is a complaint, and it goes on.
int repeat(const LookFlags& flags, const std::function<int()>& draw);
/// The one of `all` that is spelt most like it; empty if none is.
std::string nearest(const std::string& name, const std::vector<std::string>& all);

}  // namespace troupe::verbs
