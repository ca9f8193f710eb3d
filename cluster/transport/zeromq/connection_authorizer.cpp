#include <troupe/cluster/transport/zeromq/connection_authorizer.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include <troupe/cluster/transport/net/tcp_socket.hpp>

namespace troupe {

namespace {

constexpr const char* kQuestions = "inproc://zeromq.zap.01";
constexpr const char* kDomain = "troupe";
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kStrangers = 100;              // whose refusal is logged
constexpr Time kListLook = std::chrono::seconds(1);  // between looks at the list's file
constexpr int kTurnedAway = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                            ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
constexpr int kComeAndGo = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED;

/// True if a byte has come by a connection, which may have ended; also if that is not known.
bool has_received(int socket) {
  // tcpi_bytes_received of the kernel's tcp_info, which glibc's header does not have; that of the
  // kernel cannot be included beside it.
  constexpr std::size_t kPlace = 128;
  std::array<std::byte, kPlace + sizeof(std::uint64_t)> info{};
  socklen_t size = info.size();
  if (socket < 0 || ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, info.data(), &size) != 0 ||
      size < info.size())
    return true;
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, info.data() + kPlace, sizeof bytes);
  return bytes > 1;  // its end may count as one
}

/// Another one when the file is another, or was written to. Its time alone has the grain of the
/// kernel's clock.
std::string stamp_of(const std::filesystem::path& file) {
  struct ::stat about {};
  if (::stat(file.c_str(), &about) != 0) return "none";
  return fmt::format("{} {} {} {}", about.st_ino, about.st_size, about.st_mtim.tv_sec,
                     about.st_mtim.tv_nsec);
}

}  // namespace

void ConnectionAuthorizer::check_reach(const std::string& address, const std::string& told) const {
  check_address(address);
  if (!keys_ && !is_loopback(address))
    throw Error(Code::failed_precondition,
                fmt::format("{} is not on loopback, and without keys nothing is encrypted; 'troupe "
                            "keygen' makes keys, --keys uses them",
                            told));
}

void ConnectionAuthorizer::open(zmq::context_t& context) {
  if (!keys_) return;
  questions_ = zmq::socket_t(context, zmq::socket_type::rep);
  questions_.set(zmq::sockopt::linger, 0);
  questions_.bind(kQuestions);
}

void ConnectionAuthorizer::guard(zmq::context_t& context, zmq::socket_t& listening) {
  if (keys_) {
    listening.set(zmq::sockopt::curve_server, true);
    listening.set(zmq::sockopt::curve_secretkey, keys_->own.secret_key);
    listening.set(zmq::sockopt::zap_domain, kDomain);
  }
  monitor_.emplace(context, listening, "listening", kTurnedAway | kComeAndGo);
}

void ConnectionAuthorizer::present(zmq::socket_t& dialling, const std::string& their_key) const {
  if (!keys_) return;
  dialling.set(zmq::sockopt::curve_serverkey, their_key);
  dialling.set(zmq::sockopt::curve_publickey, keys_->own.public_key);
  dialling.set(zmq::sockopt::curve_secretkey, keys_->own.secret_key);
}

std::vector<std::string> ConnectionAuthorizer::keys_of(const std::string& address) const {
  if (!keys_) return {std::string()};
  std::vector<std::string> keys;
  const auto add = [&](const std::string& key) {
    if (knows(key) && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  };
  if (const auto found = found_.find(address); found != found_.end()) add(found->second);
  // Nodes may share a key. One that bears this node's name is hardly another's too: it comes last.
  const std::string& own = keys_->own.public_key;
  const auto listed = keys_->authorized.find(own);
  const bool is_last = listed != keys_->authorized.end() && listed->second == name_;
  if (!is_last) add(own);
  const std::size_t likely = keys.size();
  for (const auto& [key, name] : keys_->authorized)
    if (!(is_last && key == own) &&
        std::find(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(likely), key) ==
            keys.begin() + static_cast<std::ptrdiff_t>(likely))
      keys.push_back(key);
  if (is_last) add(own);
  return keys;
}

bool ConnectionAuthorizer::watch(Time now) {
  const bool is_due = now >= look_at_;
  if (is_due) look_at_ = now + kListLook;
  const bool has_fewer = is_due && reload();
  answer();
  count();
  told_.tell(now, turned_away_, log_, [](std::uint64_t more) {
    return fmt::format(
        "connections that ended in their handshake: {}; no key, one that is not authorized here, "
        "the key of another than this node was meant, or more claimed than is taken",
        more);
  });
  return has_fewer;
}

std::vector<void*> ConnectionAuthorizer::handles() {
  std::vector<void*> all;
  if (questions_) all.push_back(questions_.handle());
  if (monitor_) all.push_back(monitor_->handle());
  return all;
}

void ConnectionAuthorizer::answer() {
  if (!questions_) return;
  std::vector<std::string> parts;
  for (zmq::message_t part; questions_.recv(part, zmq::recv_flags::dontwait); parts.clear()) {
    for (parts.push_back(part.to_string()); part.more(); parts.push_back(part.to_string()))
      // a message comes whole
      [[maybe_unused]] const auto got = questions_.recv(part, zmq::recv_flags::none);
    // version, request, domain, address, routing id, mechanism, credentials
    const bool is_question =
        parts.size() == 7 && parts[5] == "CURVE" && parts[6].size() == kKeyBytes;
    char key[kKeyBytes * 5 / 4 + 1] = {};
    if (is_question)
      zmq_z85_encode(key, reinterpret_cast<const std::uint8_t*>(parts[6].data()), kKeyBytes);
    const bool may = is_question && decide(key, parts[3]);
    const std::string reply[] = {"1.0",
                                 parts.size() > 1 ? parts[1] : "",
                                 may ? "200" : "400",
                                 may ? "OK" : "not authorized",
                                 may ? key : "",
                                 ""};
    for (const std::string& r : reply)
      questions_.send(zmq::buffer(r),
                      &r == std::end(reply) - 1 ? zmq::send_flags::none : zmq::send_flags::sndmore);
  }
}

bool ConnectionAuthorizer::decide(const std::string& key, const std::string& address) {
  if (knows(key)) return true;
  if (strangers_.size() < kStrangers && strangers_.insert(key).second)
    log(fmt::format("a node at {} was turned away: its key {} is not authorized here{}", address,
                    key, strangers_.size() == kStrangers ? "; further ones are not logged" : ""));
  return false;
}

/// ZeroMQ tells that a handshake has ended, and next that it hangs up; with a key that is not
/// authorized it hangs up when the other end does, or its time is over. If the other end claims to
/// send more than is taken before it has said anything, the latter comes alone. Without a detail
/// the handshake may just have been cut off.
void ConnectionAuthorizer::count() {
  if (!monitor_) return;
  for (SocketEvent event; monitor_->next(event);) {
    switch (event.what) {
      case ZMQ_EVENT_ACCEPTED:
        silent_.insert_or_assign(event.value,
                                 OwnedDescriptor(::fcntl(event.value, F_DUPFD_CLOEXEC, 0)));
        heard_.erase(event.value);
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL: break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: ++turned_away_, ++failed_; break;
      case ZMQ_EVENT_DISCONNECTED: ended(event.value); break;
      default: ++turned_away_, is_told_ = true;
    }
  }
}

void ConnectionAuthorizer::ended(int socket) {
  bool has_spoken = false;
  if (const auto found = silent_.find(socket); found != silent_.end()) {
    has_spoken = has_received(found->second.get());
    silent_.erase(found);
  }
  if (const auto found = heard_.find(socket); found != heard_.end()) {
    ended_(found->second);
    heard_.erase(found);
  }
  if (std::exchange(is_told_, false) || !has_spoken) return;
  if (failed_ != 0) --failed_;
  else ++turned_away_;
}

void ConnectionAuthorizer::remember(const std::string& address, const std::string& key) {
  constexpr std::size_t kMost = 1 << 16;
  if (found_.size() >= kMost && !found_.contains(address)) found_.clear();
  found_[address] = key;
}

void ConnectionAuthorizer::heard(int socket, Connection connection) {
  count();  // the acceptance, and the end of the connection that had this descriptor before
  // else it has ended already
  if (silent_.erase(socket) != 0 || heard_.contains(socket)) heard_[socket] = connection;
}

bool ConnectionAuthorizer::reload() {
  if (!keys_ || keys_->folder.empty()) return false;
  const std::filesystem::path file = keys_->folder / kAuthorizedFile;
  std::string stamp = stamp_of(file);
  if (stamp == stamp_) return false;
  stamp_ = std::move(stamp);
  try {
    const auto before = std::exchange(keys_->authorized, read_authorized(keys_->folder));
    if (keys_->authorized == before) return false;
    strangers_.clear();
    log(fmt::format("{} was read anew: {} keys may connect", file.string(),
                    keys_->authorized.size()));
    return std::any_of(before.begin(), before.end(),
                       [&](const auto& was) { return !knows(was.first); });
  } catch (const Error& e) {
    log(fmt::format("{}; the previous keys stay authorized", e.what()));
    return false;
  }
}

Status ConnectionAuthorizer::admits(const std::string& key, const std::string& name) const {
  if (!keys_) return Status();
  const auto found = keys_->authorized.find(key);
  if (found == keys_->authorized.end())
    return Status(Code::failed_precondition,
                  fmt::format("the key of {} is not authorized at {}", name, name_));
  if (found->second == name) return Status();
  for (const auto& [other, its_name] : keys_->authorized)
    if (its_name == name)
      return Status(
          Code::failed_precondition,
          fmt::format(
              "at {} the name {} belongs to another key; start the node with another --name", name_,
              name));
  return Status();
}

Status ConnectionAuthorizer::why_not(const std::string& address, const SocketEvent& event) const {
  // If two nodes do not fit, the first to notice hangs up, and the other may learn no more than
  // that.
  const auto because = [&](std::string why) {
    return Status(Code::failed_precondition, std::move(why));
  };
  if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
    return because(
        fmt::format("the node at {} does not accept the key of this one; there: troupe keygen "
                    "--authorize '{}' --name {}",
                    address, keys_ ? keys_->own.public_key : "", name_));
  if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
      event.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
    return because(
        keys_ ? fmt::format("the node at {} has no key, and this one requires keys; start "
                            "it with --keys",
                            address)
              : fmt::format("the node at {} demands a key; start this one with --keys", address));
  if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL)
    return Status(Code::unavailable, fmt::format("the server at {} is no node", address));
  if (!keys_)
    return because(
        fmt::format("the server at {} closes the connection; if it is a node, it requires a key: "
                    "start this one with --keys",
                    address));
  return because(fmt::format(
      "the server at {} has none of the {} keys that are authorized here, or no key; if it is a "
      "node, authorize the public key in its node.key here: troupe keygen --authorize KEY --name "
      "NAME",
      address, keys_->authorized.size()));
}

}  // namespace troupe
