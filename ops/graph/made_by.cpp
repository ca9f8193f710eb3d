#include <troupe/ops/graph/made_by.hpp>

#include <charconv>

#include <fmt/format.h>

namespace troupe {

// The text may come from another node: invalid parts are skipped.
std::vector<Part> parts_of(const Attrs& attrs) {
  std::vector<Part> parts;
  const AttrValue* value = attrs.find(kMadeBy);
  const auto* text = value ? std::get_if<std::string>(value) : nullptr;
  if (!text) return parts;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    Part part;
    const auto [after, error] = std::from_chars(line.data(), line.data() + line.size(), part.last);
    if (error != std::errc() || after == line.data() + line.size()) continue;
    part.text = std::string(after + 1, line.data() + line.size());
    parts.push_back(std::move(part));
  }
  return parts;
}

void add_part(std::string& all, std::int64_t last, std::string_view text) {
  all += fmt::format("{}{} {}", all.empty() ? "" : "\n", last, text);
}

void add_parts(std::string& all, const Attrs& member, const ScalarProgram& of, std::size_t base) {
  for (const Part& part : parts_of(member)) {
    std::int64_t last = static_cast<std::int64_t>(base) - 1;
    for (std::size_t i = 0; i < of.code.size() && static_cast<std::int64_t>(i) <= part.last; ++i)
      last += of.code[i].op != ScalarOp::input;
    add_part(all, part.last < 0 ? part.last : last, part.text);
  }
}

std::string part_text(const Attrs& attrs) {
  const std::vector<Part> parts = parts_of(attrs);
  return parts.empty() ? std::string() : parts[0].text;
}

void set_parts(Attrs& attrs, std::string all) {
  if (!all.empty()) attrs.set(kMadeBy, std::move(all));
}

}  // namespace troupe
