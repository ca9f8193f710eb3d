// Bulk channels over sockets: a second connection beside each of the transport's. Over TCP payload
// is read from the socket straight into its tensor. Between processes of one host the channel is a
// unix socket. It passes shared memory (shared_rings.hpp), then serves as the bell, and shows that
// the other process is alive.
//
//   BulkSockets bulk(router, clock, senders, options);
//   bulk.listen("tcp://127.0.0.1:7117");  // at 7118 if that is free
//   // listening node: an address and a ticket, in the handshake's answer
//   wire::Bulk answer = bulk.offer(connection, is_local, keys);
//   // dialling node:
//   bulk.open(connection, dialled, is_local, answer, keys);
//   // both, later:
//   router.bulk_opened(connection);  bulk.send(connection, frame);  bulk.work();
//
// The dialling node presents the ticket, 32 random bytes that are good once, and gets an answer
// when it is taken. A stranger that does not present one in time and in full is closed. There are
// kStrangers places of fixed size for strangers, and the oldest stranger leaves first.
//
// A channel that makes no progress for `stall` breaks (TCP_USER_TIMEOUT). The transport sets
// `stall` to RouterOptions::away: a receiver reads nothing while a wire frame waits for one of the
// connection, and the connection's own `silence` is to end such a wait first.
//
// Threads: the transport's. Calls of the router come from within `work` and `take_direct`. `open`
// only counts a drop.
#pragma once

#include <fcntl.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <troupe/cluster/transport/channel/bulk_record.hpp>
#include <troupe/cluster/transport/channel/direct_senders.hpp>
#include <troupe/cluster/transport/channel/shared_rings.hpp>
#include <troupe/cluster/transport/net/tcp_socket.hpp>

namespace troupe {

struct BulkSocketOptions {
  int port = 0;          // to listen at; 0: the one above the transport's, or any
  int port_outside = 0;  // announced to peers; 0: the port itself
  std::string congestion = "cubic";
  Time stall = std::chrono::seconds(10);
  bool shared_memory = true;
  // lent to a peer at once at most, and as much by it
  std::size_t slab_bytes = std::size_t(256) << 20;
  std::uint64_t seal_boxes = kMostSealBoxes;  // boxes that a key may seal
  Time patience = std::chrono::seconds(2);    // for a stranger without a ticket
};

class BulkSockets {
 public:
  static constexpr std::size_t kStrangers = 32;

  BulkSockets(Router& router, const FrameLink& clock, DirectSenders& senders,
              BulkSocketOptions options);
  ~BulkSockets();

  /// Next to the transport's own address. Throws unavailable if a port that was asked for cannot be
  /// had.
  void listen(const std::string& address, bool is_port_chosen);
  bool is_listening() const { return listening_.get() >= 0; }
  bool is_listening_locally() const { return local_.get() >= 0; }
  wire::Bulk offer(Connection connection, bool is_local, const std::optional<SealKeys>& keys);
  void open(Connection connection, const std::string& dialled, bool is_local,
            const wire::Bulk& answer, const std::optional<SealKeys>& keys);
  /// False if it has broken.
  bool send(Connection connection, const Ref<OutFrame>& frame);
  void close(Connection connection);
  /// Returns the slab from which tensors are lent on this connection, or null.
  Ref<LendingSlab> slab(Connection connection) const;
  /// Listens no more.
  void stop();

  /// Moves what can be moved without waiting, by shared memory only or by sockets too; did
  /// anything?
  bool work(bool looks_at_sockets = true);
  /// Passes arrived direct records to the listener, at most so many. Returns their number.
  std::size_t take_direct(std::size_t most);
  /// Is there anything in shared memory?
  bool has_news() const;
  /// Channels that are open, and of them those by shared memory.
  std::size_t channels() const { return open_; }
  std::size_t rings() const { return rings_; }
  /// Before and after blocking on `descriptor`; false: there is something to do.
  bool fall_asleep();
  void wake_up();
  /// Readable when there is something to do.
  int descriptor() const { return epoll_.get(); }
  /// By sealing, and into shared memory.
  std::uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct Channel;
  struct Stranger;
  /// The socket of a channel that has ended; its bytes are ignored.
  struct Retired {
    OwnedDescriptor fd;
    Time deadline;
  };

  void take_spare();
  void hear_listeners(bool whether);
  void accept_all(int listening);
  void opened(Channel& channel);
  bool share_memory(Channel& channel);
  void share_memory(Channel& channel, std::vector<OwnedDescriptor> told);
  void flush_ring(Channel& channel);
  void receive_ring(Channel& channel);
  void ring(Channel& channel);
  void hear(Stranger& stranger);
  void hear(std::uint64_t id, Retired& retired);
  void admit(Stranger& stranger);
  void greet(Channel& channel);
  void receive(Channel& channel);
  void flush(Channel& channel);
  void watch(Channel& channel);
  void broken(Channel& channel);
  void retire(OwnedDescriptor fd);
  void dismiss(std::uint64_t id);
  OwnedDescriptor prepared(OwnedDescriptor fd) const;
  Channel& add(Connection connection, OwnedDescriptor fd, bool is_local,
               const std::optional<SealKeys>& keys);

  Router& router_;
  const FrameLink& clock_;
  DirectSenders& senders_;
  const BulkSocketOptions options_;
  OwnedDescriptor epoll_, listening_, local_;
  OwnedDescriptor spare_{::open("/dev/null", O_RDONLY | O_CLOEXEC)};  // for when there is no other
  Time deaf_until_{};  // no descriptor was left for new connections until then; 0: it listens
  std::string where_, where_locally_;
  struct Offer {
    wire::Bulk::Secret ticket;
    bool is_local;
    std::optional<SealKeys> keys;
  };
  std::map<Connection, Offer> offers_;
  // by their own number, which epoll reports
  std::map<std::uint64_t, std::unique_ptr<Channel>> channels_;
  std::map<Connection, std::uint64_t> by_connection_;
  std::map<std::uint64_t, std::unique_ptr<Stranger>> strangers_;
  std::map<std::uint64_t, Retired> retired_;
  std::vector<Channel*> all_;                     // at the beginning of a turn
  std::vector<std::unique_ptr<Channel>> closed_;  // kept until no call of theirs is on the stack
  std::uint64_t next_id_ = 2, copied_bytes_ = 0;
  std::size_t open_ = 0, rings_ = 0;
};

}  // namespace troupe
