// A dependence graph as DOT, JSON and text.
#include <troupe/actors/dependence/dependence.hpp>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/ops/format/json_text.hpp>

namespace troupe::dependence {
namespace {

std::string dependence_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

std::string dependence_time(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

}  // namespace

std::string dot_of(const DependenceGraph& graph) {
  std::string out = "digraph dependences {\n";
  for (const Channel& channel : graph.channels)
    out += fmt::format("  {};\n", dependence_quoted(channel.name));
  for (const Dependence& d : graph.edges)
    out += fmt::format("  {} -> {} [label={}, penwidth={:.2f}];\n",
                       dependence_quoted(graph.channels[d.from].name),
                       dependence_quoted(graph.channels[d.to].name),
                       dependence_quoted(fmt::format("{:.2f} after {}", d.weight,
                                                     dependence_time(d.delay.mean()))),
                       1 + 3 * std::min(1.0, d.weight));
  return out + "}\n";
}

std::string json_of(const DependenceGraph& graph) {
  using json = nlohmann::json;
  json out = {{"seconds", graph.end},          {"support", graph.support},
              {"tested", graph.tested.size()}, {"channels", json::array()},
              {"edges", json::array()},        {"left_out", graph.left_out}};
  for (const Channel& channel : graph.channels)
    out["channels"].push_back({{"name", channel.name}, {"events", channel.times.size()}});
  for (const Dependence& d : graph.edges)
    out["edges"].push_back({{"from", graph.channels[d.from].name},
                            {"to", graph.channels[d.to].name},
                            {"strength", d.weight},
                            {"delay", d.delay.mean()},
                            {"family", d.delay.text()},
                            {"statistic", d.statistic},
                            {"p", d.p},
                            {"shifted_p", d.shifted_p ? json(*d.shifted_p) : json()},
                            {"q", d.q}});
  if (!graph.changes.empty()) out["changes"] = json::array();
  for (const ChannelChange& c : graph.changes)
    out["changes"].push_back({{"channel", graph.channels[c.channel].name},
                              {"at", c.at},
                              {"statistic", c.statistic},
                              {"p", c.p},
                              {"text", c.text}});
  if (graph.truth)
    out["truth"] = {{"precision", graph.truth->precision},
                    {"recall", graph.truth->recall},
                    {"right", graph.truth->right},
                    {"wrong", graph.truth->wrong},
                    {"missed", graph.truth->missed}};
  return json_text(out);
}

std::string text_of(const DependenceGraph& graph) {
  std::string out;
  for (const Dependence& d : graph.edges)
    out += fmt::format("{} -> {}: strength {:.3f}, delay {}, p = {:.2g}{}\n",
                       graph.channels[d.from].name, graph.channels[d.to].name, d.weight,
                       dependence_time(d.delay.mean()), d.p,
                       d.shifted_p ? fmt::format(", by shifts {:.2g}", *d.shifted_p) : "");
  if (graph.edges.empty()) out = "no dependence was found\n";
  for (const ChannelChange& c : graph.changes)
    out += fmt::format("{} changes at {:.3f} s: {}, p = {:.2g}\n", graph.channels[c.channel].name,
                       c.at, c.text, c.p);
  if (graph.truth) out += "against the true edges: " + graph.truth->text() + "\n";
  return out + fmt::format("{} of {} pairs of {} channels in {}, delays up to {}\n",
                           graph.edges.size(), graph.tested.size(), graph.channels.size(),
                           dependence_time(graph.end), dependence_time(graph.support));
}

}  // namespace troupe::dependence
