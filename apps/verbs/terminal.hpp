// Output of verbs for people: text that is safe to show, colours, tables that fit the terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>

namespace troupe::verbs {

/// Names are data: characters that would move the cursor, colour the screen or turn the direction
/// of writing are shown as `?`, and so are bytes that are no UTF-8.
std::string printable(const std::string& text);
/// Each line of it printable; the last one ends too.
std::string printable_lines(const std::string& text);
/// Columns that it takes on a terminal, if it is printable: two for a wide character, none for one
/// that joins the one before it.
std::size_t cells(const std::string& text);
/// As much of it as fits in so many columns, with `…` for the rest.
std::string cut(const std::string& text, std::size_t columns);

/// Returns a file's contents. Throws Misuse if there is none or it cannot be read, with `what` to
/// name instead: `a file of events`.
std::string file_text(const std::string& file, const std::string& what);

bool is_terminal();
enum class Colour { none, bold, dim, red, green, yellow, blue };
/// In colour on a terminal (without NO_COLOR, and not a dumb one), plain elsewhere.
std::string in(Colour colour, const std::string& text);

/// Columns as wide as their contents; the first row is the head.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row, Colour colour = Colour::none) {
    rows_.push_back(std::move(row));
    colours_.push_back(colour);
  }
  bool is_empty() const { return rows_.size() == 1; }
  /// In so many columns and lines at most, the head and the line that tells of those left out
  /// included.
  std::string text(std::size_t columns = SIZE_MAX, std::size_t lines = SIZE_MAX) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<Colour> colours_;
};

std::string time_text(double ns);
std::string bytes_text(double bytes);
std::string count_text(double n);

}  // namespace troupe::verbs
