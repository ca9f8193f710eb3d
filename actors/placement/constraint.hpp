// Constraints: what users say of where a node goes, and devices by name.
//
//   cpu:1                      that device of the node where it is said
//   /node:worker1/cpu:0        that device: its name in full
//   /node:worker1              some device of that node
//   /cpu:*                     some CPU of some node
//   /label:gpu/cpu:*           some CPU of a node with that label; /label:room=3: with that value of it
//   with:17                    wherever the others go that say so (what Graph::colocate_with writes), after a space
//                              behind another constraint of the node's
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <troupe/devices/base/device_name.hpp>

namespace troupe {

/// A node of the cluster, and what whoever started it says of it: `key=value` and spaces.
struct NodeLabels {
  std::string name;
  std::string labels;
  bool has(std::string_view key, std::string_view value) const;
  /// `placement=named`: it gets what names it, and nothing of others that leave the node open. Who
  /// only visits a cluster says so.
  bool is_only_named() const { return has("placement", "named"); }
};

struct Constraint {
  std::string node;                                         // empty: any
  std::vector<std::pair<std::string, std::string>> labels;  // all of them; an empty value: any
  std::string device;                                       // `cpu:0`, `cpu:*`; empty: any
  std::string group;                                        // what `with:` names

  bool is_free() const { return node.empty() && labels.empty() && device.empty(); }
  /// Names one device.
  bool is_exact() const {
    return labels.empty() && !device.empty() && !is_any_index(device) && !is_anywhere;
  }
  /// `node`: where the device is, with its labels.
  bool allows(std::string_view device_name, const NodeLabels& node) const;

  bool is_anywhere = false;  // began with a '/' and names no node
};

/// `here`: the caller's node; empty where there is no cluster. Throws invalid_argument, without the
/// user's line.
Constraint parse_constraint(std::string_view text, std::string_view here);

}  // namespace troupe
