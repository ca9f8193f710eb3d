// libFuzzer: what users say of where a node goes, and what nodes say of themselves: lines of a
// constraint, the caller's node, its labels, a device. Instruments: actors/placement/constraint.cpp
// cluster/node/roster.cpp cluster/membership/membership.cpp
#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <troupe/actors/placement/constraint.hpp>
#include <troupe/cluster/node/roster.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

/// Labels of a node; throws for one that cannot be called so, or say so of itself.
std::vector<std::pair<std::string, std::string>> labels_of(const NodeLabels& node) {
  std::vector<std::pair<std::string, std::string>> all;
  Roster({.name = node.name,
          .incarnation = 1,
          .address = "tcp://127.0.0.1:7117",
          .labels = node.labels},
         {}, 1);
  std::istringstream words(node.labels);
  for (std::string word; words >> word;)
    all.emplace_back(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
  return all;
}

// By what it is made of, in the order that is written; the caller's node is named.
std::string text_of(const Constraint& c) {
  std::string text;
  if (!c.node.empty()) text += "/node:" + c.node;
  for (const auto& [key, value] : c.labels)
    text += "/label:" + key + (value.empty() ? "" : "=" + value);
  if (!c.device.empty()) text += "/" + c.device;
  if (!c.group.empty()) text += (text.empty() ? "with:" : " with:") + c.group;
  return text;
}

bool is_same(const Constraint& a, const Constraint& b) {
  return a.node == b.node && a.labels == b.labels && a.device == b.device && a.group == b.group;
}

// Names that some node may have: none has a '/'.
void check_names(const std::string& device, const std::string& node) {
  const std::string full = full_name(device, node);
  demand(full_name(full, node) == full);
  demand(device.empty() || node.empty() ||
         (short_name(full) == short_name(device) &&
          node_of(full) == (node_of(device).empty() ? node : node_of(device))));
  demand(full_name(device, "") == device);
}

void check_constraint(const std::string& text, const std::string& here, const NodeLabels& node,
                      const std::string& device) {
  const Constraint c = parse_constraint(text, here);
  // A constraint without node and '/' is the caller's. A device whose name looks like another part
  // (`label:`, `node:`) can only stand without a node.
  if (!c.node.empty() && !c.device.starts_with("label:") && !c.device.starts_with("node:"))
    demand(is_same(parse_constraint(text_of(c), here), c));
  // As Graph::colocate_with has it.
  if (c.group.empty() && !text.empty() && !text.ends_with("with:")) {
    const Constraint with = parse_constraint(text + " with:17", here);
    demand(with.group == "17" && with.node == c.node && with.labels == c.labels &&
           with.device == c.device);
  }
  const bool is_allowed = c.allows(device, node);
  for (const auto& [key, value] : c.labels) demand(!is_allowed || node.has(key, value));
  demand(!is_allowed || c.node.empty() || c.node == node.name);
  if (c.is_free()) demand(is_allowed);
  if (!c.is_exact()) return;
  const NodeLabels there{c.node.empty() ? node.name : c.node, {}};
  demand(c.allows(full_name(c.device, there.name), there) && c.allows(c.device, there));
  demand(is_allowed == (short_name(device) == c.device && node.name == there.name));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  seed("cpu:1\na\n\n/node:a/cpu:1");
  seed("/node:worker1/cpu:0 with:17\na\nzone=x\ncpu:0");
  seed("/label:gpu/label:room=3/cpu:*\nb\ngpu=1 room=3 with:=2\n/node:b/cpu:12");
  seed("with:17\n\n\n/node:b");
  seed("/cpu:*\ncaf\xc3\xa9\nplacement=named\nswap:0");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  std::istringstream lines(Input(data, size).rest());
  std::string text, name, labels, device;
  std::getline(lines, text), std::getline(lines, name), std::getline(lines, labels),
      std::getline(lines, device);
  const NodeLabels node{name, labels};
  std::string without = name;  // a name that no node may have, and one that some may
  std::erase_if(without, [](unsigned char c) { return c <= ' ' || c == '/'; });
  check_names(device, without);
  try {
    check_constraint(text, without, {without, labels}, device);
  } catch (const Error& e) { demand(e.code() == Code::invalid_argument); }
  try {
    const auto all = labels_of(node);
    for (const auto& [key, value] : all) {
      demand(node.has(key, value) && node.has(key, "") && !node.has(key, value + "x") &&
             !node.has("x " + key, ""));
      for (const std::string& asked :
           {"/label:" + key, "/label:" + key + "=" + value, "/node:" + name + "/label:" + key})
        demand(parse_constraint(asked, "other").allows("cpu:0", node));
    }
    demand(node.is_only_named() ==
           (std::find(all.begin(), all.end(),
                      std::pair<std::string, std::string>("placement", "named")) != all.end()));
  } catch (const Error& e) { demand(e.code() == Code::invalid_argument); }
  return 0;
}
