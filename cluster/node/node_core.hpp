// What a node is made of, behind `ClusterNode`: requests to other nodes and their answers, plans
// made for others, and what follows when somebody comes or goes. Who is there is the `Roster`'s,
// runs are `SharedRuns`'.
//
//   caller's thread:  prepare, get, set ──request──►  ┌─────────┐ ──►  transport ──►  other nodes
//   partitions:       tokens, grants ───────────────► │ NodeCore│ ◄── listener: gossip, tokens, grants, outcomes
//                                                     └────┬────┘
//                                    make_plan, variables: the clerk, an actor on the engine's workers
//
// What takes long (making kernels) is the clerk's; the transport's thread decodes, looks up and
// posts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/cluster/membership/observed_members.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/node/roster.hpp>
#include <troupe/cluster/node/shared_runs.hpp>

namespace troupe {

class NodeCore final : public TransportListener,
                       public Peers,
                       public std::enable_shared_from_this<NodeCore> {
 public:
  explicit NodeCore(NodeOptions& options);
  ~NodeCore();

  /// `engine` outlives `close`.
  void open(EngineImpl& engine, const std::vector<std::string>& join);
  void close();

  EngineImpl& engine() { return *engine_; }
  Transport& transport() { return *transport_; }
  SharedRuns& runs() { return runs_; }
  /// Of a peer that is connected.
  std::string name_of(Peer peer) const;
  std::vector<std::string> nodes() const;
  std::vector<Member> members() const;
  bool has_joined() const;
  Status status() const;
  MembershipCounters membership_counters() const;
  std::chrono::nanoseconds detection_bound(std::size_t nodes) const {
    return roster_.detection_bound(nodes);
  }
  void connect(const std::string& address);
  // node_join.cpp
  void wait_for(const std::vector<std::string>& names, std::chrono::nanoseconds timeout);
  bool wait_joined(std::chrono::nanoseconds timeout, const std::function<bool()>& gives_up);

  template <class M>
  void send(Peer peer, const M& message) {
    transport_->send(peer, M::kLane, written(message).take());
  }

  Cleared clear_container(const std::string& container, std::vector<std::string> nodes);
  std::vector<LoopReport> loops(const SharedPlan& plan);
  std::vector<NodeCost> costs(const SharedPlan& plan);

  // ---- inspections: node_inspect.cpp
  ClusterReport inspect(const NodeQuestion& question, std::chrono::nanoseconds patience,
                        const std::string& only);
  std::vector<Verdict> diagnose(std::chrono::nanoseconds apart, std::chrono::nanoseconds patience);
  void tell_of(const Records& records);
  void forget(const Records& records);

  // ---- Peers
  const std::string& name() const override { return self_.name; }
  std::uint64_t incarnation() const override { return self_.incarnation; }
  std::vector<NodeLabels> nodes_with_labels() const override;
  std::shared_ptr<RemotePlan> prepare(const std::shared_ptr<const Plan>& plan,
                                      const Placed& placed) override;
  std::vector<LinkBetween> links() override;
  Tensor get(const std::string& node, const StateSpec& variable) override;
  void set(const std::string& node, const StateSpec& variable, Tensor value) override;
  void ask_about(const Run& run, std::function<void(const RunSnapshot&)> heard) override;
  bool step() override { return step_ && step_(); }

  // ---- TransportListener
  void connected(Peer peer, const PeerInfo& info) override;
  void refused(const std::string& address, const Status& why) override;
  void received(Peer peer, Lane lane, Message message) override;
  void received_direct(Peer peer, std::span<const std::byte> record) override;
  void lost(Peer peer, const Status& why) override;
  void broken(Peer peer) override;
  std::chrono::nanoseconds tick(std::chrono::nanoseconds now) override;

 private:
  class Clerk;
  class Inspector;
  struct Request {
    Peer to = 0;
    // that it keeps there until it is done; 0: not in the row of those
    std::uint64_t bytes = 0, turn = 0;
    bool is_done = false;
    Status status;
    Tensor value;
    std::vector<LoopReport> loops = {};
    std::vector<NodeCost> costs = {};
    std::uint64_t ns = 0;  // that a probe took
    std::uint64_t states = 0;
    // Of a probe: when it was sent, and the request of another node that it is for.
    std::chrono::nanoseconds began{};
    Peer asked_by = 0;
    std::uint64_t number_there = 0;
    std::shared_ptr<NodeReport> report = {};
    std::int64_t ended_ns = 0;
    // nobody waits: who sent it wants to be told
    std::function<void(const NodeReport&)> heard = {};
  };
  /// Requests of a peer, and the memory that they keep.
  struct Asked {
    std::size_t requests = 0;
    std::uint64_t bytes = 0;
    /// May this come to them? One is taken whatever its size, if the others keep nothing.
    bool has_room(std::uint64_t more, const EarlyLimits& most) const {
      return requests < most.messages &&
             (bytes == 0 || more == 0 || (more <= most.bytes && bytes <= most.bytes - more));
    }
  };
  struct MeasuredLink {
    LinkCost cost;
    std::chrono::nanoseconds holds_until;
  };
  /// What a peer has asked for, and what that keeps of this node's memory.
  struct Job {
    std::uint64_t bytes;
    std::function<std::optional<Answer>()> work;
  };
  /// A plan of another node that waits for connections with the nodes that take part in it.
  struct Waiting {
    Peer from;
    std::shared_ptr<Message> message;
  };

  void dispatch(Peer peer, std::uint64_t from, Message& message);  // from: its incarnation
  template <class Event>
  auto on_roster(Event event);
  void act(Roster::Effects effects);
  void handle(Peer from, Answer&& answer);
  std::vector<LoopReport> loops_of(RunKey plan);
  std::vector<NodeCost> costs_of(RunKey plan);
  // node_costs.cpp
  void handle(Peer from, ProbeFor&& m);
  std::uint64_t probe(const std::string& a, const std::string& b, std::uint64_t bytes);
  void tell_of_probes();
  std::optional<Answer> make_plan(Peer from, const std::shared_ptr<Message>& message);
  bool try_make_plan(Peer from, const std::shared_ptr<Message>& message, const MakePlan& m,
                     MessageReader& reader, std::uint64_t& states);
  void drop_plan(Peer from, RunKey key);
  void do_later(std::function<void()> job);
  // node_jobs.cpp
  /// The same, for a peer that has asked for it, and whose request keeps so much of this node's
  /// memory meanwhile (0: next to nothing). The peer, 0 for this node, is answered when it keeps
  /// nothing any more. Throws resource_exhausted if too many of its requests wait, or too much.
  void do_for(Peer from, std::uint64_t bytes, std::function<std::optional<Answer>()> work);
  void do_next(Peer from);
  /// False: there are peers whose jobs still wait for them to read.
  bool resume_jobs();
  /// Does it read what it asks for? Not as long as more wait for it than `most_asked_.bytes` of
  /// answers.
  bool reads(Peer peer);
  /// What a peer has asked for.
  template <class M>
  void reply(Peer to, const M& answer) {
    Message message = written(answer).take();
    note_reply(to, bytes_of(message));
    transport_->send(to, M::kLane, std::move(message));
  }
  void note_reply(Peer to, std::uint64_t bytes);
  /// Under the lock: of a peer that is lost. Jobs of it that waited for it to read.
  std::deque<Job> forget_replies(Peer peer);
  void retry_plans();

  // node_states.cpp
  EngineImpl::OthersStates states_for(std::uint64_t owner, const std::string& container);
  // `bytes`: of the message, which are kept while it waits.
  void handle(Peer from, std::uint64_t owner, GetVariable&& m, std::uint64_t bytes);
  void handle(Peer from, std::uint64_t owner, SetVariable&& m, std::uint64_t bytes);
  void handle(Peer from, std::uint64_t owner, ClearContainer&& m, std::uint64_t bytes);
  /// How many were dropped, or ClearContainer::kKept.
  std::uint64_t clear_here(std::uint64_t owner, const std::string& container);
  // `states`: of each of the plan's nodes.
  void note_states(const Plan& plan, const std::vector<std::uint64_t>& states);
  void drop_states();

  void handle(Peer from, std::uint64_t asker, InspectNode&& m);  // asker: its incarnation
  void handle(Peer from, Inspected&& said);
  void start_inspector();
  void stop_inspector();
  void hang_up(Peer peer);
  void answer(Peer peer, std::uint64_t asker, const InspectNode& m, std::int64_t received_ns);
  NodeReport report(std::uint64_t asker, const NodeQuestion& question, std::int64_t received_ns);
  void measure_process(NodeReport& report);
  std::vector<PeerReport> peer_reports() const;
  /// Under the lock.
  NodeQuestion question_for(const std::string& node, NodeQuestion question);
  /// Of the Unix epoch, as this node's clock says.
  std::int64_t time_ns() const;
  /// Under the lock; what is to be logged of it, without.
  std::vector<LogRecord> note_states(const std::vector<std::string>& changed);
  std::string why_apart(const Member& m, std::int64_t since_ns) const;
  void log(const std::vector<LogRecord>& records) const;
  /// `is_done`: called under the lock.
  bool wait_until(const std::function<bool()>& is_done, std::chrono::nanoseconds patience);
  std::chrono::nanoseconds age_heap(std::chrono::nanoseconds now);
  std::uint64_t request(Peer to);
  /// Asks every other node of a plan, for as many answers.
  template <class Question>
  std::vector<std::uint64_t> ask_others(const SharedPlan& plan);
  /// One that was made for another; null if it is not there, or no more.
  std::shared_ptr<Compiled> plan_of(RunKey key);
  /// Sends what a request is, which is kept there until it is done: when those that this node sent
  /// to that peer before leave room for it, by the bound that it has for its own peers. Who sends
  /// more is disconnected.
  void ask(std::uint64_t request, Lane lane, Message message);
  /// `is_done`: called under the lock.
  void await(const std::function<bool()>& is_done);
  /// Throws not_found, naming what of the plan is there.
  Peer peer_of(const std::string& node, const Plan* plan = nullptr) const;
  Request answer_to(std::uint64_t request);

  const NodeId self_;
  const std::string container_;
  const EarlyLimits most_asked_;  // of a peer's requests that wait
  const bool deterministic_;
  const std::function<bool()> step_;
  const std::function<std::int64_t()> clock_;  // none: the system's
  std::unique_ptr<Transport> transport_;
  EngineImpl* engine_ = nullptr;
  LeanRef<Clerk> clerk_;
  std::shared_ptr<Inspector> inspector_;  // null without threads
  SharedRuns runs_;

  std::chrono::nanoseconds next_age_{};  // of the heap; the transport's thread's

  std::mutex records_mutex_;  // guards records_, and those of whom is being told
  std::vector<const Records*> records_;

  std::atomic<Peer> direct_from_{0};  // there is a session with it; written under mutex_
  mutable std::mutex mutex_;          // guards everything below
  std::condition_variable changed_;   // of roster_, refusals_ and requests_
  Roster roster_;
  std::map<std::string, Status> refusals_;  // by address
  std::vector<std::string> join_;
  bool has_joined_ = false;
  std::map<std::uint64_t, Request> requests_;
  std::uint64_t last_request_ = 0, last_turn_ = 0;
  std::map<RunKey, std::shared_ptr<Compiled>> plans_;  // made for others
  std::vector<Waiting> waiting_plans_;
  std::map<Peer, Asked> asked_;  // of each what is not done; those with nothing are not there
  // that have not begun, in order; those without are not there
  std::map<Peer, std::deque<Job>> jobs_;
  std::map<Peer, std::uint64_t> replied_;  // bytes, which wait for it at the most
  std::set<Peer> unread_;                  // peers whose jobs wait until they read
  // the lesser name first; until one of the two is lost
  std::map<std::pair<std::string, std::string>, MeasuredLink> links_;
  ObservedMembers observed_;
  // by node and variable: in which life it had a value
  std::map<std::pair<std::string, std::string>, std::uint64_t> seen_states_;
  struct {
    std::int64_t at_ns = 0;
    std::uint64_t cpu_ns = 0;
    double cores = 0;
    bool is_known = false;
  } load_;  // of the last second or so that was looked at
  bool closed_ = false;
};

}  // namespace troupe
