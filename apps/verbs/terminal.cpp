#include <troupe/apps/verbs/terminal.hpp>

#include <algorithm>
#include <cstdlib>
#include <cwchar>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include <locale.h>
#include <unistd.h>

#include <fmt/format.h>

#include <troupe/apps/verbs/verbs.hpp>

namespace troupe::verbs {
namespace {

constexpr char32_t kNone = 0xfffffff;  // no UTF-8

// The code point that begins at `place`, which moves behind it.
char32_t next_of(const std::string& text, std::size_t& place) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const char32_t first = byte(place++);
  if (first < 0x80) return first;
  const std::size_t more = first >= 0xf0 && first < 0xf5 ? 3 : first >= 0xe0 ? 2 : 1;
  if (first < 0xc2 || first > 0xf4) return kNone;
  char32_t code = first & (0x3fu >> more);
  for (std::size_t i = 0; i < more; ++i) {
    if ((byte(place + i) & 0xc0u) != 0x80u) return kNone;
    code = code << 6 | (byte(place + i) & 0x3fu);
  }
  constexpr char32_t least[] = {0x80, 0x800, 0x10000};
  if (code < least[more - 1] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return kNone;
  place += more;
  return code;
}

// Characters that act on a terminal: C0 and C1 (a lone U+009B begins a sequence, as ESC [ does),
// line separators, and marks that turn the direction.
bool acts(char32_t c) {
  return c == kNone || c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 ||
         c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

std::size_t width_of(char32_t c) {
  static const locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (c < 0x80 || !unicode) return 1;
  const locale_t before = uselocale(unicode);
  const int width = wcwidth(static_cast<wchar_t>(c));
  uselocale(before);
  return width < 0 ? 1 : static_cast<std::size_t>(width);
}

}  // namespace

std::string printable(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    if (acts(next_of(text, i))) out += '?';
    else out.append(text, begin, i - begin);
  }
  return out;
}

std::size_t cells(const std::string& text) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < text.size();) sum += width_of(next_of(text, i));
  return sum;
}

std::string cut(const std::string& text, std::size_t columns) {
  std::size_t used = 0, fits = 0;  // fits: bytes that leave room for the …
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    used += width_of(next_of(text, i));
    if (used < columns) fits = i;
    if (used <= columns) continue;
    return columns == 0 ? std::string() : text.substr(0, std::min(fits, begin)) + "…";
  }
  return text;
}

std::string printable_lines(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += printable(text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return out;
}

std::string file_text(const std::string& file, const std::string& what) {
  std::error_code ignored;
  std::ifstream in(file, std::ios::binary);
  std::string text;
  if (in && !std::filesystem::is_directory(file, ignored)) {
    text.assign(std::istreambuf_iterator<char>(in), {});
    if (!in.bad()) return text;
  }
  throw Misuse(fmt::format("'{}' cannot be read; name {}", file, what));
}

bool is_terminal() { return isatty(STDOUT_FILENO) != 0; }

std::string in(Colour colour, const std::string& text) {
  static const bool colours = [] {
    const char* kind = std::getenv("TERM");
    return is_terminal() && !std::getenv("NO_COLOR") && !(kind && std::string_view(kind) == "dumb");
  }();
  if (!colours || colour == Colour::none || text.empty()) return text;
  constexpr const char* codes[] = {"0", "1", "2", "31", "32", "33", "34"};
  return fmt::format("\x1b[{}m{}\x1b[0m", codes[static_cast<std::size_t>(colour)], text);
}

std::string Table::text(std::size_t columns, std::size_t lines) const {
  std::vector<std::vector<std::string>> rows = rows_;
  const std::size_t shown = rows.size() <= lines ? rows.size() : lines < 2 ? lines : lines - 1;
  std::vector<std::size_t> width;
  for (std::size_t r = 0; r < shown; ++r)
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      if (c == width.size()) width.push_back(0);
      rows[r][c] = printable(rows[r][c]);
      width[c] = std::max(width[c], cells(rows[r][c]));
    }
  std::string out;
  for (std::size_t r = 0; r < shown; ++r) {
    std::string line;
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      line += rows[r][c];
      if (c + 1 < rows[r].size()) line.append(width[c] - cells(rows[r][c]) + 2, ' ');
    }
    out += in(r == 0 ? Colour::bold : colours_[r - 1], cut(line, columns)) + "\n";
  }
  if (shown < rows.size() && lines >= 2)
    out += in(Colour::dim, cut(fmt::format("and {} more", rows.size() - shown), columns)) + "\n";
  return out;
}

std::string time_text(double ns) {
  if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e6) return fmt::format("{:.1f} us", ns * 1e-3);
  if (ns < 1e9) return fmt::format("{:.1f} ms", ns * 1e-6);
  return ns < 120e9 ? fmt::format("{:.1f} s", ns * 1e-9) : fmt::format("{:.0f} min", ns / 60e9);
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

std::string count_text(double n) {
  if (n < 1e4) return fmt::format("{:.0f}", n);
  return n < 1e6   ? fmt::format("{:.1f} k", n * 1e-3)
         : n < 1e9 ? fmt::format("{:.1f} M", n * 1e-6)
                   : fmt::format("{:.1f} G", n * 1e-9);
}

}  // namespace troupe::verbs
