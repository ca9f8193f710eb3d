// Constraint: restricts the devices of a node, by device names and labels.
//
//   cpu:1                      that device of the caller's node
//   /node:worker1/cpu:0        that device: its name in full
//   /node:worker1              some device of that node
//   /cpu:*                     some CPU of some node
//   /label:gpu/cpu:*           some CPU of a node with that label
//   /label:room=3              some device of a node with that value of the label
//   with:17                    the device of all nodes with this constraint (Graph::colocate_with
//                              writes it); it may follow another constraint and a space
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <troupe/devices/base/device_name.hpp>

namespace troupe {

/// A node of the cluster, and the labels with which it was started: `key=value`, with spaces
/// between.
struct NodeLabels {
  std::string name;
  std::string labels;
  bool has(std::string_view key, std::string_view value) const;
  /// True with `placement=named`: the node gets only work whose constraint names it. A node that
  /// joins a cluster for a while is started so.
  bool is_only_named() const { return has("placement", "named"); }
};

struct Constraint {
  std::string node;                                         // empty: any
  std::vector<std::pair<std::string, std::string>> labels;  // all of them; an empty value: any
  std::string device;                                       // `cpu:0`, `cpu:*`; empty: any
  std::string group;                                        // the name after `with:`

  bool is_free() const { return node.empty() && labels.empty() && device.empty(); }
  /// Names one device.
  bool is_exact() const {
    return labels.empty() && !device.empty() && !is_any_index(device) && !is_anywhere;
  }
  /// True if the device is allowed. `node`: its node, with labels.
  bool allows(std::string_view device_name, const NodeLabels& node) const;

  bool is_anywhere = false;  // began with a '/' and names no node
};

/// Parses a constraint. `here`: the caller's node; empty without a cluster. Throws
/// invalid_argument, without the user's line.
Constraint parse_constraint(std::string_view text, std::string_view here);

}  // namespace troupe
