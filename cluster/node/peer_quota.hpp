// Requests of peers to this node: done one after the other, within a quota for each peer.
//
//   request ──► submit ──► jobs of its peer ──► done, answered ──► the transport, until the peer
//                  │            ▲                                          │         has it
//   over the quota: throws      └── paused, while more answers than the quota are unread ◄─┘
//
// A peer that sends requests and does not read takes, of this node's memory, the quota of requests,
// the quota of answers, and one more answer of any size. The transport reports the unread bytes. It
// does not count a reply that it has not taken up yet, for microseconds. A peer that keeps to the
// protocol always reads, and only waits.
//
// Threads: any. Jobs run on the request worker (`Hooks::run_later`), in order, without the lock.
// `has_session` is asked with the lock held: it takes no lock under which PeerQuota is called.
//
// Invariants:
// 1. The jobs of a paused peer run in order once it has read. `lost` drops them, and is called
//    after the session has ended, so that no peer is paused for ever.
// 2. The quota counts a request until its job has run or was dropped.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include <troupe/cluster/node/request_use.hpp>
#include <troupe/cluster/protocol/messages.hpp>

namespace troupe {

class PeerQuota {
 public:
  using Job = std::function<std::optional<Answer>()>;
  struct Hooks {
    std::function<bool(Peer)> has_session;
    /// Bytes for this peer that the transport has not sent, or that are not acknowledged.
    std::function<std::uint64_t(Peer)> unread_bytes;
    /// Runs a job on the request worker, behind all before it.
    std::function<void(std::function<void()>)> run_later;
    std::function<void(Peer, Lane, Message)> send;
    /// An answer of this node to itself.
    std::function<void(Answer&&)> answer_here;
  };

  /// `node`: this one's name, for error texts.
  PeerQuota(std::string node, const detail::EarlyLimits& limits, Hooks hooks)
      : node_(std::move(node)), limits_(limits), hooks_(std::move(hooks)) {}

  /// Runs `job` later, and sends its answer, if it has one, to the peer; 0: to this node. `bytes`:
  /// the memory that the request keeps meanwhile. Throws resource_exhausted over the quota.
  void submit(Peer from, std::uint64_t bytes, Job job);
  /// Runs jobs of peers that have read their answers; false if others are still paused.
  bool resume();
  /// True if the unread answers of a peer are within the quota. Calls the transport.
  bool is_draining(Peer peer);
  /// Sends an answer, which counts until the peer has read it.
  template <class M>
  void reply(Peer to, const M& answer) {
    Message message = written(answer);
    note_reply(to, bytes_of(message));
    hooks_.send(to, M::kLane, std::move(message));
  }
  /// Runs other work on the request worker, behind what was submitted before.
  void run_later(std::function<void()> work) { hooks_.run_later(std::move(work)); }
  void lost(Peer peer);

 private:
  struct Waiting {
    std::uint64_t bytes;
    Job work;
  };

  void run_next(Peer from);
  void note_reply(Peer to, std::uint64_t bytes);
  void release(Peer from, std::uint64_t bytes);

  const std::string node_;
  const detail::EarlyLimits limits_;
  const Hooks hooks_;

  std::mutex mutex_;  // guards everything below
  // requests that are not done, by peer; peers without any have no entry
  std::map<Peer, RequestUse> in_use_;
  std::map<Peer, std::deque<Waiting>> jobs_;  // not begun, in order; likewise
  std::map<Peer, std::uint64_t> replied_;     // bytes of answers that are unread at the most
  std::set<Peer> paused_;                     // peers whose jobs wait until they read
};

}  // namespace troupe
