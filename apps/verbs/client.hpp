// How verbs ask a running node over HTTP, and print what it says.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <troupe/apps/verbs/verbs.hpp>

namespace troupe::verbs {

/// What GET `path` answers. Throws std::runtime_error with a sentence if nobody answers, or if it is refused; Misuse for what the
/// node does not know.
std::string fetch(const LookFlags& flags, const std::string& path, int patience_s = 10);
/// Percent-encoded, for a query.
std::string encoded(const std::string& text);

/// Names are data: what would move the cursor or colour the screen is shown as `?`.
std::string printable(const std::string& text);
bool is_terminal();
enum class Colour { none, bold, dim, red, green, yellow, blue };
/// In colour on a terminal (and without NO_COLOR), plain elsewhere.
std::string in(Colour colour, const std::string& text);

/// Columns as wide as what stands in them; the first row is the head.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row, Colour colour = Colour::none) {
    rows_.push_back(std::move(row));
    colours_.push_back(colour);
  }
  bool is_empty() const { return rows_.size() == 1; }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<Colour> colours_;
};

std::string time_text(double ns);
std::string bytes_text(double bytes);
std::string count_text(double n);
/// `draw` once, or again and again as `--watch` says; its status.
int repeat(const LookFlags& flags, const std::function<int()>& draw);
/// The one of `all` that is spelt most like it; empty if none is.
std::string nearest(const std::string& name, const std::vector<std::string>& all);

}  // namespace troupe::verbs
