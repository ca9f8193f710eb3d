// Runs over several nodes, seen from one of them: the run that a message is for, the nodes that
// have still to leave it, and its end when a node fails or is lost. RUNS.md has the protocol and
// the argument that it ends.
//
//   DistributedRuns runs(host, transport, self, limits, log);  runs.open(engine);
//   runs.handle_tokens(peer, message);  runs.handle(peer, owner, begin_run, compiled);  ...
//
// A message is for a run that is under way here, for one that is over (dropped), or for one that
// has not begun here yet (buffered), because tokens of other nodes overtake the owner's BeginRun.
// The number separates the last two: the runs of an owner begin in the order of their numbers.
//
// Threads: any; the messages of one peer one at a time. The lock is held for book-keeping only, and
// while BeginRuns are sent.
//
// Ownership: the node owns DistributedRuns; a DistributedPlan keeps both alive.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/cluster/runs/combining_actor.hpp>
#include <troupe/cluster/runs/early_limits.hpp>
#include <troupe/cluster/runs/run_host.hpp>

namespace troupe {

class DistributedRuns;

/// A plan over several nodes, on any of them.
class DistributedPlan final : public RemotePlan {
 public:
  /// `peers`: one for each of the plan's nodes; the entry of this node is not used.
  DistributedPlan(std::shared_ptr<DistributedRuns> runs, RunKey key,
                  std::shared_ptr<const Plan> plan, std::vector<Peer> peers, Peer owner);
  ~DistributedPlan() override;

  int nodes() const override { return static_cast<int>(others_.size()); }
  bool is_broken() const override { return broken_.load(std::memory_order_acquire); }
  void post(std::span<Posted> posted) override;
  void meet(std::uint64_t run, std::int32_t node, const MeetingPlace& place,
            std::vector<Tensor> values) override;
  void start(Run& run) override;
  std::vector<LoopReport> loops() override;
  std::vector<NodeCost> costs() override;
  void failed(Run& run) override;
  void refused(Run& run, std::int32_t partition, const std::string& what) override;

  /// The peers that take part.
  const std::vector<Peer>& others() const { return others_; }
  Peer owner() const { return owner_; }
  std::uint64_t number() const { return key_.number; }
  bool is_owned() const { return owner_ == 0; }
  Peer peer_of(std::int32_t partition) const {
    return peers_[static_cast<std::size_t>(
        plan_->partitions[static_cast<std::size_t>(partition)].node)];
  }
  const Plan& plan() const { return *plan_; }
  /// Returns the index of a peer among the plan's nodes; -1 if it takes no part.
  std::int32_t node_of_peer(Peer peer) const;
  /// True if this fetch comes from that node.
  bool is_fetched_from(std::int32_t node, std::int32_t fetch) const {
    const auto f = static_cast<std::size_t>(fetch);
    return f < fetched_from_.size() && fetched_from_[f] == node;
  }
  std::size_t fetches_from(std::int32_t node) const {
    return static_cast<std::size_t>(std::count(fetched_from_.begin(), fetched_from_.end(), node));
  }
  const RunKey& key() const { return key_; }
  void break_off() { broken_.store(true, std::memory_order_release); }
  /// Why no run may begin here any more: one of its nodes was lost, or a later driver acts. Guarded
  /// by DistributedRuns::mutex_.
  Status ended;

 private:
  bool post_message(const RunKey& run, std::span<Posted> posted, Peer to);

  const std::shared_ptr<DistributedRuns> runs_;  // and the node that it is a part of
  const RunKey key_;                             // owner, number of the plan
  const std::shared_ptr<const Plan> plan_;
  const std::vector<Peer> peers_;
  const Peer owner_;  // 0: this node
  std::vector<Peer> others_;
  std::vector<std::int32_t> fetched_from_;  // by fetch, among the plan's nodes
  std::atomic<bool> broken_{false};         // publishes nothing but itself
};

class DistributedRuns {
 public:
  /// `log`: may be empty.
  DistributedRuns(RunHost& host, Transport& transport, const NodeId& self,
                  const detail::EarlyLimits& limits, std::function<void(const std::string&)> log)
      : host_(host), transport_(transport), name_(self.name), self_(self.incarnation),
        limits_(limits), log_(std::move(log)) {}

  /// Before any message. `engine` outlives `close`.
  void open(EngineImpl& engine) {
    engine_ = &engine;
    combining_ = lean_spawn<CombiningActor>(engine.system());
  }

  RunHost& host() { return host_; }
  Transport& transport() { return transport_; }

  /// Registers a plan, so that the loss of a node breaks it.
  void add(const std::shared_ptr<DistributedPlan>& plan);

  /// Breaks plans of this node in which these peers take part: their next call makes them anew.
  void break_off(const std::vector<Peer>& peers);

  // ---- at the owner
  void begin(Run& run, DistributedPlan& plan);
  void handle(Peer from, RunFailed&& m);
  void handle(Peer from, LeftRun&& m);
  void handle(Peer from, PlanBroken&& m);

  // ---- at the others; `owner`: the incarnation of `from`
  /// `compiled`: null if there is no such plan here.
  void handle(Peer from, std::uint64_t owner, BeginRun&& m,
              const std::shared_ptr<CompiledPlan>& compiled);
  void handle(Peer from, std::uint64_t owner, AbandonRun&& m);
  void handle(std::uint64_t owner, RunsBegun&& m);

  /// Ends, here, the runs of another node's plan, and those that begin later. They change no state
  /// once it has returned, but for an update that is under way.
  void end(const RunKey& plan, const Status& why);

  // ---- both
  /// RunTokens, the most frequent message, or a direct record of them: read into memory that is
  /// kept.
  void handle_tokens(Peer from, Message& message);
  void handle_tokens(Peer from, std::span<const std::byte> record);
  void handle(Peer from, RunTokens&& m);
  void handle(Peer from, MeshValues&& m);
  /// Returns the key of a run by its number in this engine; none if it is over, or has been left by
  /// all other nodes.
  std::optional<RunKey> key_of(std::uint64_t run);
  /// The run has failed here.
  void failed(Run& run, DistributedPlan& plan);
  void lost(Peer peer, const NodeId& node, const Status& why);
  /// Counts a message, or a part of one, that was dropped because it makes no sense. Logs it, ever
  /// more seldom as their number grows.
  void refused(Peer peer, const std::string& what);
  /// A session with this node begins; the view does not have it yet.
  void met(Peer peer, std::uint64_t incarnation);
  /// Ends all runs that are under way.
  void close();
  /// Messages for runs that were over; whose turn the thread took that brought them; that were
  /// buffered for runs that had not begun; that made no sense.
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  std::uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  std::uint64_t waited() const { return waited_.load(std::memory_order_relaxed); }
  std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kJobsHere = 4;  // jobs of a worker that run on the transport's thread

  struct Owned {
    Ref<Run> run;
    std::vector<Peer> awaited;  // nodes that have not left yet
  };
  struct Waiting {
    Peer from;
    std::variant<RunTokens, MeshValues, AbandonRun> message;
    std::size_t messages = 1;  // or tokens in it
    std::uint64_t bytes = 0;
  };
  struct Early {
    std::size_t messages = 0;
    std::uint64_t bytes = 0;
  };

  Ref<Run> find(const RunKey& key);
  bool is_over(const RunKey& key) const;
  bool wait(const RunKey& key, Waiting&& message);
  std::vector<Waiting> take_waiting(const RunKey& key);
  void all_begun(std::uint64_t owner, std::uint64_t last);
  void drop_waiting(const RunKey& from, const RunKey& to);
  void ended(Run& run);
  template <class Read>
  void handle_read(Peer from, Read read);
  template <class Send>
  void here_if_light(const PlanActors& troupe, Send send);

  RunHost& host_;
  Transport& transport_;
  EngineImpl* engine_ = nullptr;
  const std::string name_;    // this node's
  const std::uint64_t self_;  // this node's incarnation
  const detail::EarlyLimits limits_;
  const std::function<void(const std::string&)> log_;

  std::mutex mutex_;        // guards everything below
  std::uint64_t last_ = 0;  // number of a run of ours
  std::map<std::uint64_t, Owned> owned_;
  std::map<RunKey, Ref<Run>> parts_;
  // by owner: the last run that began here, or whose beginning was lost
  std::map<std::uint64_t, std::uint64_t> begun_;
  std::set<std::uint64_t> gone_;  // owners whose session has ended
  std::map<RunKey, std::vector<Waiting>> waiting_;
  std::map<Peer, Early> early_;  // sizes of waiting_, by sender
  std::vector<std::weak_ptr<DistributedPlan>> plans_;
  LeanRef<CombiningActor> combining_;  // null before `open` and after `close`
  bool closed_ = false;
  // publish nothing but themselves
  std::atomic<std::uint64_t> dropped_{0}, waited_{0}, refused_{0}, taken_{0};
};

}  // namespace troupe
