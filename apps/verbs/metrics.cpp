// troupe metrics: the metrics of a node, as Prometheus reads them. `--json`: the same as objects.
#include <troupe/apps/verbs/client.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <nlohmann/json.hpp>

namespace troupe::verbs {
namespace {

using Ordered = nlohmann::ordered_json;

/// Returns the text before `end`; removes both.
std::string_view taken(std::string_view& text, char end) {
  const std::string_view head = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), head.size() + 1));
  return head;
}

/// The text unchanged, except for characters that would act on a terminal.
std::string lines_of(std::string_view text) {
  std::string out;
  while (!text.empty()) (out += printable(std::string(taken(text, '\n')))) += '\n';
  return out;
}

/// `name="value",...` up to the brace that ends it, which goes too. In values \\, \" and \n are
/// escaped.
Ordered labels_of(std::string_view& text) {
  Ordered labels = Ordered::object();
  while (!text.empty() && text.front() != '}') {
    const std::string name(taken(text, '='));
    taken(text, '"');
    std::string value;
    for (; !text.empty() && text.front() != '"'; text.remove_prefix(1)) {
      const bool is_escaped = text.front() == '\\' && text.size() > 1;
      if (is_escaped) text.remove_prefix(1);
      value += is_escaped && text.front() == 'n' ? '\n' : text.front();
    }
    taken(text, '"');
    if (!text.empty() && text.front() == ',') text.remove_prefix(1);
    labels[name] = value;
  }
  taken(text, '}');
  return labels;
}

/// Families of samples, from Prometheus' text format.
Ordered families_of(std::string_view text) {
  Ordered families = Ordered::array();
  while (!text.empty()) {
    std::string_view line = taken(text, '\n');
    if (line.starts_with("# HELP ")) {
      line.remove_prefix(7);
      const std::string name(taken(line, ' '));
      families.push_back({{"name", name},
                          {"help", std::string(line)},
                          {"type", "untyped"},
                          {"samples", Ordered::array()}});
    } else if (line.starts_with("# TYPE ") && !families.empty()) {
      families.back()["type"] = std::string(line.substr(line.rfind(' ') + 1));
    } else if (!line.empty() && line.front() != '#' && !families.empty()) {
      const std::string name(line.substr(0, line.find_first_of("{ ")));
      line.remove_prefix(name.size());
      Ordered labels = Ordered::object();
      if (!line.empty() && line.front() == '{') {
        line.remove_prefix(1);
        labels = labels_of(line);
      }
      const double value = std::strtod(std::string(line).c_str(), nullptr);
      families.back()["samples"].push_back(
          {{"name", name},
           {"labels", labels},
           {"value", std::isfinite(value) ? Ordered(value) : Ordered()}});
    }
  }
  return families;
}

}  // namespace

int metrics(const LookFlags& flags) {
  return repeat(flags, [&] {
    const std::string said = fetch(flags, "/metrics"),
                      text = flags.json ? families_of(said).dump() + "\n" : lines_of(said);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  });
}

}  // namespace troupe::verbs
