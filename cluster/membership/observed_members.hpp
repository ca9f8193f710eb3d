// A node's own observations of members: the times since when each has its state, and has no
// session, and the offset of its clock. Only known members are kept: names come and go for as long
// as a node runs.
//
//   // members whose state is another than before:
//   for (const Member& m : observed.note(members, now_ns)) ...
//   if (observed.size() != roster.size()) observed.forget_but(roster.members());
//   observed.since_ns("b");  if (ClockOffset* clock = observed.clock("b")) ...
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <troupe/cluster/membership/clock_offset.hpp>
#include <troupe/cluster/membership/membership.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

class ObservedMembers {
 public:
  /// Returns those of `members` that are new, or whose state is another than in their last call.
  std::vector<Member> note(const std::vector<Member>& members, std::int64_t now_ns) {
    std::vector<Member> changed;
    for (const Member& m : members) {
      const auto [it, is_new] = seen_.try_emplace(m.name);
      if (!is_new && it->second.state == m.state) continue;
      it->second.state = m.state;
      it->second.since_ns = now_ns;
      changed.push_back(m);
    }
    return changed;
  }
  std::size_t size() const { return seen_.size(); }
  /// `known`: all that are, by name.
  void forget_but(const std::vector<Member>& known) {
    std::erase_if(seen_, [&](const auto& seen) {
      const auto at =
          std::lower_bound(known.begin(), known.end(), seen.first,
                           [](const Member& m, const std::string& name) { return m.name < name; });
      return at == known.end() || at->name != seen.first;
    });
  }

  /// 0: it is not known.
  std::int64_t since_ns(const std::string& name) const {
    const auto it = seen_.find(name);
    return it == seen_.end() ? 0 : it->second.since_ns;
  }
  /// Notes whether this node has a session with a known member.
  void note_session(const std::string& name, bool has_one, std::int64_t now_ns) {
    const auto it = seen_.find(name);
    if (it == seen_.end()) return;
    std::int64_t& since = it->second.apart_since_ns;
    if (has_one) since = 0;
    else if (since == 0) since = now_ns;
  }
  /// Since when it has had none; 0: it has one, or is not known.
  std::int64_t apart_since_ns(const std::string& name) const {
    const auto it = seen_.find(name);
    return it == seen_.end() ? 0 : it->second.apart_since_ns;
  }
  /// Null: it is not known.
  ClockOffset* clock(const std::string& name) {
    const auto it = seen_.find(name);
    return it == seen_.end() ? nullptr : &it->second.clock;
  }

 private:
  struct Seen {
    MemberState state = MemberState::alive;
    std::int64_t since_ns = 0;  // since the Unix epoch
    std::int64_t apart_since_ns = 0;
    ClockOffset clock;
  };
  std::map<std::string, Seen> seen_;
};

}  // namespace troupe
