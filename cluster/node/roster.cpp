#include <troupe/cluster/node/roster.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/cluster/transport/net/tcp_socket.hpp>

namespace troupe {
namespace {

constexpr std::size_t kLongestText = 1024;  // bytes of a name, an address, or labels

// Returns false for overlong forms, surrogates, and code points beyond Unicode.
bool is_utf8(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
    };
    const int first = byte(i), second = byte(i + 1);
    const std::size_t more = first < 0x80                    ? 0
                             : first >= 0xc2 && first < 0xe0 ? 1
                             : first >= 0xe0 && first < 0xf0 ? 2
                             : first >= 0xf0 && first < 0xf5 ? 3
                                                             : text.size();
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90))
      return false;
    for (std::size_t k = 1; k <= more; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    i += 1 + more;
  }
  return true;
}

std::string quoted_name(const std::string& name) {
  const bool is_text = is_utf8(name);
  std::string out = "'";
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < ' ' || c == 127 ||
        (!is_text && static_cast<unsigned char>(c) >= 0x80))
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else out += c;
  }
  return out + "'";
}

// Returns the reason why no node may have this name, in whatever message it came. Empty: a node
// may.
std::string why_no_name(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos || name.size() > kLongestText)
    return fmt::format("a node needs a name without '/', of {} bytes at most, not {}", kLongestText,
                       quoted_name(name.substr(0, kLongestText)));
  const auto is_of_text = [](unsigned char c) { return c > ' ' && c != 127 && c != '*'; };
  if (!std::all_of(name.begin(), name.end(), is_of_text))
    return fmt::format(
        "a node's name stands in device names and in logs: it has no spaces, control characters or "
        "'*', as {} has",
        quoted_name(name));
  return is_utf8(name)
             ? std::string()
             : fmt::format("a node's name stands in JSON and in metrics: it is UTF-8, as {} is not",
                           quoted_name(name));
}

Member checked(Member self) {
  if (const std::string why = why_no_name(self.name); !why.empty())
    throw Error(Code::invalid_argument, why);
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 127; };
  if (!is_utf8(self.labels) || std::any_of(self.labels.begin(), self.labels.end(), is_control))
    throw Error(Code::invalid_argument, "labels are UTF-8 without control characters");
  if (self.labels.size() > kLongestText)
    throw Error(Code::invalid_argument, fmt::format("labels take {} bytes at most", kLongestText));
  std::set<std::string> keys;
  std::string rest = self.labels;
  while (!rest.empty()) {
    const std::string label = rest.substr(0, rest.find(' '));
    rest.erase(0, label.size() + 1);
    const auto equals = label.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == label.size() ||
        label.find_first_of("/,\"") != std::string::npos)
      throw Error(
          Code::invalid_argument,
          fmt::format("'{}' is no label; write key=value, without '/', ',' or quotes", label));
    if (!keys.insert(label.substr(0, equals)).second)
      throw Error(Code::invalid_argument,
                  fmt::format("the label '{}' is there twice; a key has one value",
                              label.substr(0, equals)));
  }
  return self;
}

bool is_tcp(const std::string& address) {
  return address.starts_with("tcp://") && address.rfind(':') > 5;
}

// Numbers of lives that were not drawn by a clock, as of tests, are small.
std::string why_outdated(const std::string& name, std::uint64_t own, std::uint64_t before) {
  const std::uint64_t behind = (before >> kLifeBits) - (own >> kLifeBits);  // ms
  return fmt::format(
      "the clock of the machine of node '{}' is behind: by it the node has started{} before the "
      "one "
      "of that name that was here last; set the clock, or start it again with a later number "
      "(NodeOptions::incarnation)",
      name, behind == 0 ? "" : fmt::format(" {:.1f} s", static_cast<double>(behind) * 1e-3));
}

void check(const Member& m) {
  if (!why_no_name(m.name).empty() || m.address.size() > kLongestText ||
      m.labels.size() > kLongestText)
    MessageReader::malformed("a member that is none");
}

}  // namespace

Roster::Roster(Member self, const MembershipOptions& options, std::uint64_t seed)
    : options_(options), membership_(checked(std::move(self)), *this, options, seed) {}

// ---- what happens

void Roster::connected(Time now, Peer peer, const PeerInfo& info) {
  now_ = now;
  if (const std::string why = why_no_name(info.name); !why.empty())
    return end(peer, Status(Code::invalid_argument, why));
  sessions_.emplace(peer, NodeId{info.name, info.incarnation, info.address});
  by_name_.insert_or_assign(info.name, peer);
  note_change(info.name);
  const Member contact{.name = info.name, .incarnation = info.incarnation, .address = info.address};
  const Member* known = membership_.find(info.name);
  if (!status_.ok()) return end(peer, status_);
  if (known && known->incarnation > info.incarnation) {
    // The node gets the news of its successor, and stops.
    effects_.said.emplace_back(
        peer,
        Gossip{membership_.self(), {.kind = MembershipMessage::Kind::news, .members = {*known}}});
    return end(peer, known->state == MemberState::alive
                         ? Status(Code::already_exists,
                                  fmt::format("another node '{}' has started later", info.name))
                         : Status(Code::failed_precondition,
                                  why_outdated(info.name, info.incarnation, known->incarnation)));
  }
  // A node that the user asked for may know others. A node that came by itself, or by gossip, is
  // known wherever this node is.
  membership_.greet(contact, asked_.contains(info.address));
}

std::optional<NodeId> Roster::lost(Time now, Peer peer) {
  now_ = now;
  auto it = sessions_.find(peer);
  if (it == sessions_.end()) return {};
  const NodeId node = std::move(it->second);
  sessions_.erase(it);
  farewells_.erase(peer);
  if (auto named = by_name_.find(node.name); named != by_name_.end() && named->second == peer)
    by_name_.erase(named);
  note_change(node.name);
  if (const Member* m = membership_.find(node.name); m && m->incarnation == node.incarnation)
    membership_.suspect(now, node.name);
  return node;
}

void Roster::broken(Time now, Peer peer) {
  now_ = now;
  const NodeId* node = session(peer);
  if (!node) return;
  if (const Member* m = membership_.find(node->name); m && m->incarnation == node->incarnation)
    membership_.suspect(now, node->name);
}

void Roster::heard(Time now, Peer peer, const Gossip& told) {
  now_ = now;
  const NodeId* node = session(peer);
  if (!node) return;
  // A node that listens at all addresses of its machine does not know the one that others see. A
  // node that has seen that address fills it in, and passes it on.
  Gossip gossip = told;
  const auto resolve = [&](Member& m) {
    m.address = m.name == node->name && is_any_host(m.address)
                    ? node->address
                    : seen_through(m.address, node->address);
  };
  resolve(gossip.from);
  for (Member& m : gossip.message.members) resolve(m);
  if (gossip.from.name != node->name || gossip.from.incarnation != node->incarnation)
    MessageReader::malformed("gossip in the name of another node");
  check(gossip.from);
  for (const Member& m : gossip.message.members) check(m);
  const bool is_new = !membership_.find(node->name);
  membership_.receive(now, gossip.from, gossip.message);
  const bool is_direct_answer =
      gossip.message.kind == MembershipMessage::Kind::answer && gossip.message.target.empty();
  if (is_direct_answer)
    if (const Time took = membership_.round_trip(node->name); took > Time::zero())
      if (std::string warning = round_trips_.note(node->name, took); !warning.empty())
        effects_.warnings.push_back(std::move(warning));
  // A node that cannot be dialled has to dial each new node, and should not have to wait for
  // gossip.
  if (is_new && gossip.message.kind == MembershipMessage::Kind::sync)
    for (const auto& [other, id] : sessions_)
      if (id.address.empty() && other != peer)
        effects_.said.emplace_back(
            other, Gossip{membership_.self(),
                          {.kind = MembershipMessage::Kind::news, .members = {gossip.from}}});
}

Roster::Time Roster::tick(Time now) {
  now_ = now;
  if (!status_.ok()) return Time::max();
  const Time next = membership_.tick(now);
  if (now >= dial_at_) {
    dial_at_ = now + options_.period;
    for (const Member& m : membership_.members())
      if (m.is_up() && m.name != membership_.self().name && !by_name_.contains(m.name)) dial(m);
  }
  const bool is_asking = sessions_.empty() && !asked_.empty();
  if (is_asking && now >= ask_at_) ask_again(now);
  for (auto it = farewells_.begin(); it != farewells_.end();) {
    const auto [peer, patience] = *it;
    it = now >= patience ? farewells_.erase(it) : std::next(it);
    if (now < patience) continue;
    const std::chrono::duration<double> allowed = membership_.suspicion_time();
    end(peer, Status(Code::unavailable,
                     fmt::format("node left but did not close its session within {:.3g} s",
                                 allowed.count())));
  }
  return is_asking ? std::min(next, ask_at_) : next;
}

// A node that is started first finds the other one within a second of its start. Names are asked
// for once a second: a resolver is not asked as often as a known address can be dialled.
void Roster::ask_again(Time now) {
  constexpr Time kFirst = std::chrono::milliseconds(100), kLast = std::chrono::milliseconds(500),
                 kNames = std::chrono::seconds(1);
  ask_pause_ = std::clamp(ask_pause_ * 2, kFirst, kLast);
  ask_at_ = now + ask_pause_;
  const bool asks_names = now >= ask_names_at_;
  if (asks_names) ask_names_at_ = now + kNames;
  for (const std::string& address : asked_)
    if (asks_names || !is_tcp(address) || is_in_numbers(address))
      effects_.dialled.push_back(address);
}

void Roster::leave(Time now) {
  now_ = now;
  membership_.leave(now);
}

void Roster::drain() {
  std::string labels, rest = membership_.self().labels;
  while (!rest.empty()) {
    const std::string label = rest.substr(0, rest.find(' '));
    rest.erase(0, label.size() + 1);
    if (!label.empty() && !label.starts_with("placement=") && !label.starts_with("draining="))
      labels += label + " ";
  }
  membership_.relabel(labels + "draining=yes placement=named");
}

// ---- requests of Membership

void Roster::send(const Member& to, MembershipMessage message) {
  if (const Peer peer = session_with(to.name))
    effects_.said.emplace_back(peer, Gossip{membership_.self(), std::move(message)});
  else dial(to);
}

void Roster::note_change(const std::string& name) {
  effects_.has_changed = true;
  effects_.changed.push_back(name);
}

void Roster::changed(const Member& m) {
  note_change(m.name);
  const Peer peer = session_with(m.name);
  if (peer == 0) {
    if (m.is_up()) dial(m);
    return;
  }
  const NodeId& node = sessions_.at(peer);
  if (node.incarnation < m.incarnation) end(peer, Status(Code::unavailable, "it has started anew"));
  if (node.incarnation != m.incarnation) return;
  if (m.state == MemberState::dead)
    end(peer, Status(Code::unavailable, "it does not answer any more"));
  if (m.state == MemberState::left) farewells_.emplace(peer, now_ + membership_.suspicion_time());
}

void Roster::superseded(const Member& by) {
  if (by.state == MemberState::alive) {
    status_ = Status(Code::already_exists,
                     fmt::format("another node '{}' has started later{}: this one takes part in "
                                 "nothing any more; give each a name of its own",
                                 by.name, by.address.empty() ? "" : " at " + by.address));
  } else {
    // It has gone: this process follows it.
    outdated_by_ = std::max(outdated_by_, by.incarnation);
    status_ = Status(Code::failed_precondition,
                     why_outdated(by.name, membership_.self().incarnation, by.incarnation));
  }
  effects_.has_changed = true;
  for (const auto& [peer, node] : sessions_) end(peer, status_);
}

bool Roster::has_session(const Member& member) const {
  const Peer peer = session_with(member.name);
  return peer != 0 && sessions_.at(peer).incarnation == member.incarnation;
}

void Roster::end(Peer peer, Status why) { effects_.ended.emplace_back(peer, std::move(why)); }

void Roster::dial(const Member& member) {
  if (!member.address.empty() && status_.ok()) effects_.dialled.push_back(member.address);
}

// ---- members and sessions

const NodeId* Roster::session(Peer peer) const {
  auto it = sessions_.find(peer);
  return it == sessions_.end() ? nullptr : &it->second;
}

Peer Roster::session_with(const std::string& name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? 0 : it->second;
}

Peer Roster::find(const std::string& name) const {
  const Peer peer = session_with(name);
  const Member* m = peer == 0 ? nullptr : membership_.find(name);
  return m && m->is_up() && m->incarnation == sessions_.at(peer).incarnation ? peer : 0;
}

std::vector<std::string> Roster::names() const {
  std::vector<std::string> all{membership_.self().name};
  for (const auto& [name, peer] : by_name_)
    if (find(name) != 0) all.push_back(name);
  return all;
}

}  // namespace troupe
