// libFuzzer: the first bytes of bulk connections. The first byte selects whether strangers dial, or
// the dialled end answers; then two bytes are a step. Or the dialled end offers any terms of a
// channel: its kinds, whether the connection is sealed, the length of the address, the address, and
// the ticket to be shown there. Instruments: cluster/transport/channel/bulk_channels.cpp
// cluster/transport/channel/bulk_sockets.cpp cluster/transport/net/local_socket.cpp
// cluster/transport/net/tcp_socket.cpp cluster/transport/net/fixed_memory.cpp
// cluster/transport/channel/shared_rings.cpp cluster/transport/channel/shared_slab.cpp
// cluster/transport/channel/bulk_record.cpp cluster/transport/router_bulk.cpp
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <troupe/cluster/transport/channel/bulk_channels.hpp>
#include <troupe/cluster/transport/net/fixed_memory.hpp>
#include <troupe/cluster/transport/net/local_socket.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace std::string_literals;

namespace {

constexpr std::size_t kGreeting = 8 + wire::Bulk::kSecretBytes,
                      kRings = 2 * (4096 + SharedRings::kBytes), kSlab = 1 << 16;
const std::string kShown = "troupe-b", kTaken = "troupe+b";

std::size_t descriptors() {
  std::size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    n += !entry.path().empty();
  return n - 1;  // less the folder's own
}

/// Stands in for a node's transport around its bulk sockets: records the messages for the
/// connection, and has a clock.
class Node final : private FrameLink, private TransportListener {
 public:
  explicit Node(bool listens) {
    if (listens) sockets_.listen("tcp://127.0.0.1:0", false);
  }

  /// A peer dials, and is offered a channel.
  wire::Bulk greeted(bool is_local, bool is_sealed) {
    is_local_ = is_local, is_sealed_ = is_sealed;
    router_.frame(++connection_, wire::encode(hello()), {});
    router_.frame(connection_, wire::encode(wire::Ready{}), {});
    return terms_;
  }
  /// This node dials, and the answer says where the channel is.
  void dials(bool is_local, const wire::Bulk& terms) {
    is_local_ = is_local;
    router_.connect(fmt::format("test://{}", connection_));
    wire::Hello answer = hello();
    answer.is_answer = true;
    answer.session = session_;
    answer.bulk = terms;
    router_.frame(connection_, wire::encode(answer), {});
  }
  /// Dials as asked, whatever the answer contains.
  std::uint8_t dials_any(bool is_sealed, const wire::Bulk& terms) {
    is_sealed_ = is_sealed;
    channels_.emplace(router_, static_cast<const FrameLink&>(*this), senders_, options_);
    dials(false, terms);
    return asked_;
  }
  void breaks() { router_.broken(connection_, Status(Code::unavailable, "it broke")); }
  void says(std::size_t bytes) {
    if (peer_ != 0)
      router_.send(peer_, Lane::data,
                   {std::vector<std::byte>(8),
                    {Tensor::zeros(DType::u8, Shape{static_cast<std::int64_t>(bytes)})}});
    router_.flush();
  }
  void passes(Time t) { time_ += t; }
  /// Works until there is no more to do. A peer that keeps it awake without end is not read for
  /// ever.
  void works() {
    for (int left = 64; left > 0 && (sockets_.work() || (channels_ && channels_->work(true)));)
      --left;
    if (sockets_.fall_asleep()) sockets_.wake_up();
  }

  const BulkSockets& sockets() const { return sockets_; }
  std::uint64_t dropped() const { return router_.counters().dropped; }
  Time now() const override { return time_; }
  Time patience() const { return options_.patience; }

 private:
  wire::Hello hello() {
    wire::Hello h;
    h.info = {.name = fmt::format("peer{}", connection_),
              .incarnation = 1,
              .address = "",
              .engine = std::string(engine_version())};
    h.session = connection_;
    h.window = 1 << 20;
    return h;
  }
  static RouterOptions limited() {
    RouterOptions o;
    o.limits.message_bytes = 1 << 20;
    return o;
  }
  wire::Bulk answer_bulk(Connection c, const wire::Bulk&) override {
    terms_ = sockets_.offer(c, is_local_,
                            is_sealed_
                                ? std::optional(derive_seal_keys(seal_ciphers()[0], {}, {}, false))
                                : std::nullopt);
    terms_.kinds = 1;
    return terms_;
  }
  wire::Bulk ask_for_bulk(Connection c) override {
    if (!channels_) return {};
    const wire::Bulk ask = channels_->ask(c, is_sealed_);
    asked_ = ask.kinds;
    return ask;
  }
  void open_bulk(Connection c, const wire::Bulk& answer) override {
    // only a listener on all addresses listens there
    if (channels_) channels_->open(c, "tcp://127.77.0.1:1", answer);
    else sockets_.open(c, "tcp://127.0.0.1:1", is_local_, answer, {});
  }
  bool send_bulk(Connection c, const Ref<OutFrame>& frame) override {
    return sockets_.send(c, frame);
  }
  Connection dial(const std::string&) override { return ++connection_; }
  bool send(Connection, const Ref<OutFrame>& frame) override {
    wire::Decoded said;
    if (wire::decode(frame->header, {}, said).ok())
      if (const auto* h = std::get_if<wire::Hello>(&said.frame)) session_ = h->session;
    return true;
  }
  void close(Connection c) override {
    sockets_.close(c);
    if (channels_) channels_->close(c);
  }
  void connected(Peer peer, const PeerInfo&) override { peer_ = peer; }
  void refused(const std::string&, const Status&) override {}
  void received(Peer, Lane, Message) override {}
  void lost(Peer peer, const Status&) override { peer_ = peer == peer_ ? 0 : peer_; }

  Time time_ = std::chrono::seconds(1);
  Connection connection_ = 1;
  std::uint64_t session_ = 0;
  Peer peer_ = 0;
  bool is_local_ = false, is_sealed_ = false;
  wire::Bulk terms_;
  const BulkSocketOptions options_ = {.slab_bytes = kSlab};
  Router router_{{.name = "victim", .incarnation = 1, .address = "test://victim", .engine = ""},
                 limited(),
                 *this,
                 *this};
  DirectSenders senders_;
  BulkSockets sockets_{router_, *this, senders_, options_};
  std::optional<BulkChannels> channels_;
  std::uint8_t asked_ = 0;
};

/// The other end of a bulk connection, which may be an impostor.
struct End {
  OwnedDescriptor fd;
  bool is_local = false;
  Time since{};           // it connected
  std::string said = {};  // up to a greeting's bytes
  std::string heard = {};
  std::vector<OwnedDescriptor> passed = {};
  bool is_reset = false, is_gone = false;

  void say(const std::string& text) {
    const ssize_t n = ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) said = (said + text.substr(0, static_cast<std::size_t>(n))).substr(0, kGreeting);
  }
  void listen() {
    for (std::byte bytes[512]; !is_gone && fd.get() >= 0;) {
      const ssize_t n = receive_descriptors(fd.get(), bytes, sizeof bytes, passed);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      is_gone = n <= 0;
      if (n > 0)
        heard =
            (heard + std::string(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n)))
                .substr(0, kGreeting);
    }
  }
  /// It says no more, or is no more: closed at once, so that no port stays taken.
  void hang_up(bool is_whole) {
    if (!is_whole) return void(shutdown(fd.get(), SHUT_WR));
    const linger at_once{1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    OwnedDescriptor(std::move(fd));
    is_reset = true;
  }
  // In what was passed for rings: any word, as the other process may write it.
  void scribble(unsigned which, std::uint64_t value) {
    if (passed.empty()) return;
    const auto place = static_cast<off_t>((which % 2) * (kRings / 2) + which / 2 % 4 * 128);
    if (pwrite(passed[0].get(), &value, sizeof value, place) < 0) return;
  }
};

std::uint64_t word_of(Input& in) {
  std::uint64_t value = 0;
  for (unsigned left = in.next() % 9; left > 0; --left) value = value << 8 | in.next();
  return value;
}

std::string text_of(Input& in, unsigned bytes) {
  std::string text;
  for (; bytes > 0; --bytes) text += static_cast<char>(in.next());
  return text;
}

// ---- strangers dial

class Strangers {
 public:
  Strangers() : base_(descriptors()) {}
  ~Strangers() {
    for (End& e : ends_) e.hang_up(true);
  }

  void step(unsigned what, unsigned much, Input& in) {
    End* e = ends_.empty() ? nullptr : &ends_[much % ends_.size()];
    const std::string greeting = kShown + tickets_[much / 16 % tickets_.size()].text;
    switch (what % 12) {
      case 0:
      case 1: connect(what % 12 == 1); break;
      case 2:
        for (unsigned left = much % 48; left > 0; --left) connect(left % 2 == 0);
        break;
      case 3:
        if (tickets_.size() < 16) offer(much % 2 == 0, much / 2 % 2 == 0);
        break;
      case 4:
        if (e) e->say(text_of(in, in.next() % 64));
        break;
      case 5:  // as far as it has come with it, a little further
        if (e && e->said.size() < kGreeting) e->say(greeting.substr(e->said.size(), 1 + in.next()));
        break;
      case 6:
        if (e) e->say(greeting + text_of(in, in.next() % 32));
        break;
      case 7:
        if (e && e->fd.get() >= 0) e->hang_up(in.next() % 2 == 0);
        break;
      case 8: node_.passes(std::chrono::milliseconds(much * 20)); break;
      case 9: node_.breaks(); break;
      case 10: node_.says(much * 300); break;
      default:
        if (e) e->scribble(in.next(), word_of(in));
    }
    node_.works();
    check();
  }

  void check() {
    std::set<std::string> shown;
    for (End& e : ends_) {
      const bool was_gone = e.is_gone;
      e.listen();
      const auto is_entitled = [&](const Ticket& t) {
        return t.is_local == e.is_local && e.said == kShown + t.text && !t.text.empty();
      };
      const auto ticket = std::find_if(tickets_.begin(), tickets_.end(), is_entitled);
      if (ticket != tickets_.end()) shown.insert(ticket->text);
      // An end that has not shown a ticket receives nothing, neither bytes nor descriptors.
      demand(ticket != tickets_.end() || (e.heard.empty() && e.passed.empty()));
      demand(kTaken.starts_with(e.heard.substr(0, kTaken.size())));
      demand(e.passed.size() == (e.is_local && !e.heard.empty() ? 3u : 0u));
      if (e.is_gone && !was_gone && ticket == tickets_.end() && !e.said.empty() && !e.is_reset &&
          node_.now() < e.since + node_.patience())
        ++refused_;
    }
    demand(node_.sockets().channels() <= shown.size() &&
           node_.sockets().rings() <= node_.sockets().channels());
    demand(node_.dropped() >= refused_);
    std::size_t own = 0;
    for (const End& e : ends_) own += (e.fd.get() >= 0) + e.passed.size();
    // Descriptors of the node: three for itself, an end and perhaps rings of a channel or its
    // remains, and strangers.
    if (ends_.size() > BulkSockets::kStrangers)
      demand(descriptors() <= base_ + kOfNode + own + 2 * shown.size() + BulkSockets::kStrangers);
  }

 private:
  struct Ticket {
    std::string text;
    bool is_local;
  };
  static constexpr std::size_t kOfNode = 4;

  void offer(bool is_local, bool is_sealed) {
    const wire::Bulk terms = node_.greeted(is_local, is_sealed);
    (is_local ? where_locally_ : where_) = terms.where;
    tickets_.push_back(
        {std::string(reinterpret_cast<const char*>(terms.ticket.data()), terms.ticket.size()),
         is_local});
  }
  void connect(bool is_local) {
    if ((is_local ? where_locally_ : where_).empty()) offer(is_local, false);
    if (ends_.size() == 96) return;
    if (ends_.size() % 32 == 0) node_.works();  // more do not fit into the queue of a local socket
    OwnedDescriptor fd = is_local ? connect_locally("troupe-" + where_locally_)
                                  : connect_to("tcp://127.0.0.1:" + where_);
    demand(fd.get() >= 0);
    ends_.push_back({.fd = std::move(fd), .is_local = is_local, .since = node_.now()});
  }

  const std::size_t base_;
  Node node_{true};
  // the first was never issued
  std::vector<Ticket> tickets_{{std::string(wire::Bulk::kSecretBytes, '\0'), false}};
  std::string where_, where_locally_;
  std::vector<End> ends_;
  std::uint64_t refused_ = 0;
};

// ---- the dialled end answers

/// Returns a name for this process alone.
std::string local_name() { return fmt::format("{:x}", getpid()); }

/// Returns a descriptor to pass along: `kind` 0 and 1 are valid.
OwnedDescriptor passable(unsigned kind) {
  const auto sealed = [](std::size_t bytes, int seals) {
    OwnedDescriptor memory(memfd_create("any", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    demand(ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0 &&
           fcntl(memory.get(), F_ADD_SEALS, seals) == 0);
    return memory;
  };
  constexpr int kBoth = F_SEAL_SHRINK | F_SEAL_GROW;
  switch (kind % 13) {
    case 0: return fixed_memory("rings", kRings);
    case 1: return make_slab(kSlab);
    case 2: return sealed(kRings, kBoth);
    case 3: return sealed(kRings, kBoth | F_SEAL_SEAL | F_SEAL_WRITE);
    case 4: return sealed(kRings - 1, kBoth | F_SEAL_SEAL);
    case 5: return sealed(0, kBoth | F_SEAL_SEAL);
    case 6: return sealed(std::size_t(1) << 42, kBoth | F_SEAL_SEAL);
    case 7: return OwnedDescriptor(::open("/dev/null", O_RDWR | O_CLOEXEC));
    case 8: return OwnedDescriptor(::open("/", O_PATH | O_CLOEXEC));
    case 9: return OwnedDescriptor(eventfd(0, EFD_CLOEXEC));
    case 10: return OwnedDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    case 11: return sealed(kRings, F_SEAL_SHRINK);
    default: {  // huge pages, of which there may be none when they are touched
      OwnedDescriptor memory(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
      if (ftruncate(memory.get(), 2 << 20) != 0 ||
          fcntl(memory.get(), F_ADD_SEALS, kBoth | F_SEAL_SEAL) != 0)
        return passable(5);
      return memory;
    }
  }
}

class Answers {
 public:
  explicit Answers(bool is_local)
      : is_local_(is_local),
        listening_(is_local ? listen_locally("troupe-" + local_name()) : OwnedDescriptor()) {
    if (!is_local) {
      ListeningSocket at = listen_at("tcp://127.0.0.1:0", "");
      listening_ = std::move(at.fd);
      where_ = at.address.substr(at.address.rfind(':') + 1);
    }
    demand(listening_.get() >= 0);
    wire::Bulk terms;
    terms.kinds = 1;
    terms.where = is_local ? local_name() : where_;
    terms.ticket.fill(std::byte{'t'});
    node_.dials(is_local, terms);
    node_.works();
    end_ = {.fd = OwnedDescriptor(
                accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)),
            .is_local = is_local,
            .since = node_.now()};
    demand(end_.fd.get() >= 0);
    node_.works();
  }
  ~Answers() {
    if (end_.fd.get() >= 0) end_.hang_up(true);
  }

  void step(unsigned what, unsigned much, Input& in) {
    switch (what % 8) {
      case 0: end_.say(text_of(in, much % 64)); break;
      case 1: end_.say(kTaken.substr(std::min(end_.said.size(), kTaken.size()), much)); break;
      case 2: pass(much, in); break;
      case 3: end_.hang_up(much % 2 == 0); break;
      case 4: node_.passes(std::chrono::milliseconds(much * 20)); break;
      case 5: node_.breaks(), is_broken_ = true; break;
      case 6: node_.says(much * 300); break;
      default: end_.scribble(in.next(), word_of(in));
    }
    node_.works();
    check();
  }

 private:
  // Up to kMostDescriptors and one, with what is to be said next, or with a byte of nothing.
  void pass(unsigned much, Input& in) {
    if (!is_local_ || end_.fd.get() < 0) return;
    std::vector<OwnedDescriptor> all;
    std::vector<int> numbers;
    for (unsigned left = much % (kMostDescriptors + 1); left > 0; --left) {
      // As it should be unless another is asked for: rings, and two slabs.
      const unsigned other = in.next();
      all.push_back(passable(other != 0 ? other - 1 : numbers.empty() ? 0 : 1));
      numbers.push_back(all.back().get());
    }
    const std::string text = much / 4 % 2 == 0
                                 ? kTaken.substr(std::min(end_.said.size(), kTaken.size() - 1))
                                 : std::string(1, static_cast<char>(in.next()));
    if (numbers.empty()) return end_.say(text);
    if (!send_descriptors(end_.fd.get(), text.data(), text.size(), numbers)) return;
    end_.said = (end_.said + text).substr(0, kGreeting);
    may_be_rings_ |= numbers.size() == 3;
    if (end_.passed.empty()) end_.passed = std::move(all);
  }
  void check() {
    end_.listen();
    const bool is_taken = end_.said.starts_with(kTaken);
    demand(node_.sockets().channels() <= (is_taken ? 1u : 0u));
    demand(node_.sockets().rings() == (is_local_ ? node_.sockets().channels() : 0u) &&
           (may_be_rings_ || node_.sockets().rings() == 0));
    const bool is_in_time =
        !end_.is_reset && !is_broken_ && node_.now() < end_.since + node_.patience();
    if (end_.said.size() >= kTaken.size() && !is_taken && is_in_time && end_.is_gone)
      demand(node_.dropped() > 0);
    // The first bytes sent are the ticket, and nothing else until that was accepted.
    const std::string greeting = kShown + std::string(wire::Bulk::kSecretBytes, 't');
    demand(greeting.starts_with(end_.heard));
  }

  const bool is_local_;
  OwnedDescriptor listening_;
  std::string where_;
  Node node_{false};
  End end_;
  bool may_be_rings_ = false, is_broken_ = false;
};

// ---- or says where any channel is

bool is_port(const std::string& where) {
  const bool has_digits = !where.empty() && where.size() <= 5 &&
                          where.find_first_not_of("0123456789") == std::string::npos;
  return has_digits && std::stoi(where) > 0 && std::stoi(where) < 65536;
}
bool is_local_place(const std::string& where) {
  return !where.empty() && where.size() <= 64 &&
         where.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// A channel that was not requested, or has no valid address, is refused, and counted once; nothing
/// else is.
void answer_any(Input& in) {
  Node node(false);
  wire::Bulk terms;
  terms.kinds = static_cast<std::uint8_t>(in.next());
  const bool is_sealed = in.next() % 2 != 0;
  terms.where = text_of(in, in.next() % 80);
  for (std::byte& b : terms.ticket) b = static_cast<std::byte>(in.next());
  const std::uint8_t asked = node.dials_any(is_sealed, terms);
  const bool was_asked = std::has_single_bit(terms.kinds) && (terms.kinds & asked) != 0;
  const bool is_shared = terms.kinds == static_cast<std::uint8_t>(BulkKind::shared_memory);
  const bool is_meant =
      was_asked && (is_shared ? is_local_place(terms.where) : is_port(terms.where));
  demand(node.dropped() == (terms.kinds == 0 || is_meant ? 0u : 1u));
  node.works();
  node.passes(node.patience());
  node.works();
}

template <class Side>
void run(Side& side, Input& in) {
  for (unsigned left = 64; left > 0 && !in.is_empty(); --left) {
    const unsigned what = in.next(), much = in.next();
    side.step(what, much, in);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // Over TCP and locally: a ticket, shown whole, with more behind it, in pieces; a wrong one; no
  // ticket.
  seed("\0\3\0\0\0\5\x10\xff\x0a\5"s), seed("\0\3\0\1\0\5\x10\xff\x0a\5\x0b\0\1\2\xff\xff"s),
      seed("\0\3\1\0\0\6\x10\5\1\2\3\4\5"s);
  seed("\0\3\1\0\0\5\x10\4\5\x10\x14\5\x10\x40\x09\0\x08\xff"s), seed("\0\0\0\6\0\1x\1\0\5\1\xff"s),
      seed("\0\0\0\4\0\x10GET / HTTP/1.1\r\n\7\0\1"s);
  seed("\0\2\x2f\2\x2f\3\0\x08\x80\5\x10\xff"s);
  // Answers: what is right, in pieces, with what should come along and with other things; nothing.
  seed("\1\1\xff\6\x20\6\xff"s), seed("\1\0\x8troupe+c\0\4abcd"s),
      seed("\2\2\3\0\0\0\6\x20\7\0\2\xff\xff"s), seed("\2\2\3\0\x0d\0\6\x80"s);
  seed("\2\2\3\3\0\0"s), seed("\2\2\2\0\0"s), seed("\2\2\3\0\7\1"s);
  seed("\2\1\4\2\3\0\0\0"s), seed("\1\4\xff"s), seed("\2\2\3\0\0\0\5\0\4\xff"s),
      seed("\2\1\xff\4\xff"s), seed("\2\3\1\1\xff"s);
  // Terms: of each kind, of none, of several, of one that was not asked for; locations that are
  // none.
  for (const char* where : {"7118", "1", "65535", "65536", "0", "abcde", "g", ""})
    for (const char kinds : {1, 4})
      seed("\3"s + kinds + '\0' + static_cast<char>(std::strlen(where)) + where + "ticket");
  seed(
      "\3\2\1\4"
      "7118"s),
      seed(
          "\3\x8\1\4"
          "7118"s),
      seed(
          "\3\3\0\4"
          "7118"s),
      seed(
          "\3\2\0\4"
          "7118"s),
      seed(
          "\3\0\0\4"
          "7118"s);
  seed("\3\4\0\x41"s + std::string(65, 'a'));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static std::size_t executions = 0, before = 0;
  Input in(data, size);
  switch (const unsigned who = in.next() % 4) {
    case 0: {
      Strangers side;
      run(side, in);
      break;
    }
    case 3: answer_any(in); break;
    default: {
      Answers side(who == 2);
      run(side, in);
    }
  }
  if (executions++ % 64 != 1) return 0;
  const std::size_t now = descriptors();
  demand(before == 0 || now == before);
  before = now;
  return 0;
}
