// Builds the command that resumes an interrupted training as it was begun, over the same nodes.
//
//   go_on_with(options);
//   // char_lm --text book.txt --resume book.safetensors --join tcp://127.0.0.1:7117 --nodes a,b
//
// If another program starts both the nodes and this program, TROUPE_GO_ON is its command
// (scripts/demo sets it). It replaces the program and the options of the cluster. Model, seed and
// steps are in the file.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <troupe/apps/examples/char_lm/options.hpp>

namespace troupe::char_lm {

/// One word of a shell's command line.
inline std::string shell_word(const std::string& word) {
  auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./,:=+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string out = "'";
  for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

inline std::string go_on_with(const Options& o) {
  const char* starter = std::getenv("TROUPE_GO_ON");
  const bool has_starter = starter != nullptr && *starter != '\0';
  std::string command = has_starter ? starter : shell_word(o.program);
  auto add = [&](const std::string& name, const std::string& value) {
    command += fmt::format(" {} {}", name, shell_word(value));
  };
  if (!o.text.empty()) add("--text", o.text);
  add("--resume", o.save);
  if (const ClusterOptions& c = o.trainer.cluster; !has_starter) {
    for (const std::string& address : c.join) add("--join", address);
    if (!c.nodes.empty()) add("--nodes", fmt::format("{}", fmt::join(c.nodes, ",")));
    if (!c.keys.empty()) add("--keys", c.keys);
  }
  for (const auto& [name, value] : o.again) add(name, value);
  return command;
}

}  // namespace troupe::char_lm
