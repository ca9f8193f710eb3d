#include <troupe/cluster/runs/distributed_runs.hpp>

#include <algorithm>
#include <bit>
#include <optional>

#include <fmt/format.h>

#include <troupe/actors/plan/exchange.hpp>
#include <troupe/actors/plan/instances.hpp>
#include <troupe/actors/runtime/clock.hpp>
#include <troupe/devices/base/text.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/mesh/instances.hpp>

namespace troupe {
namespace {

constexpr std::uint64_t kCombinedHere = 64 << 10;  // bytes, on the transport's thread

// which its owner has said, with the reason behind it
constexpr const char* kElsewhere = "the run has failed on another node";

Ref<Run> share(Run& run) {
  run.retain();
  return Ref<Run>(&run);
}

// Returns the memory of a waiting value, which may be more than its sender announced: an element
// that a list lacks is a byte of a message.
std::uint64_t memory_of(const Value& value) {
  constexpr std::uint64_t kList = 512;                // its log
  constexpr std::uint64_t kTensor = 64;               // its body
  constexpr std::uint64_t kSlot = 2 * sizeof(Value);  // chunks double
  if (!value.is_list()) return value.has_value() ? kTensor + value.tensor().bytes() : 0;
  std::uint64_t bytes = kList;
  for (std::int64_t i = 0; i < value.list().length(); ++i)
    bytes += kSlot + memory_of(value.list().peek(i));
  return bytes;
}

DistributedPlan& plan_of(const Run& run) {
  return static_cast<DistributedPlan&>(*run.troupe->remote);
}

// A node's own name comes first, unless the error's origin added it.
Status from_node(const std::string& node, const Status& status) {
  const std::string name = fmt::format("node '{}'", node);
  return status.message().starts_with(name)
             ? status
             : Status(status.code(), fmt::format("{}: {}", name, status.message()));
}

// Names the values that other nodes, and the caller, get from a plan's partitions on one node.
std::string edges_out_of(const Plan& plan, std::int32_t node) {
  constexpr std::size_t kNamed = 3;
  std::set<std::int32_t> sources;
  for (const PartitionPlan& p : plan.partitions)
    for (const PartitionPlan::Send& s : p.sends)
      if (p.node == node && !plan.is_on(s.partition, node)) sources.insert(s.source);
  for (const PartitionPlan& p : plan.partitions)
    for (const Target& t : p.targets)
      if (p.node == node && t.is(Destination::fetch))
        sources.insert(plan.program.fetches[at(t.index())].node);
  const Graph& g = plan.program.graph;
  const bool has_instances = has_instances_on(plan, node);
  for (std::int32_t id = 0; plan.exchange && id < g.size(); ++id)
    if (mesh::detail::meets_others(g.node(id)) && g.node(id).op->name != "MeshTake" &&
        (is_of_instances(plan, id) ? has_instances : plan.is_on(plan.partition_of[at(id)], node)))
      sources.insert(id);
  if (sources.empty()) return "that it has done its part";
  std::string out;
  std::size_t named = 0;
  for (std::int32_t id : sources) {
    if (named++ == kNamed) return fmt::format("{} and {} more", out, sources.size() - kNamed);
    out += (out.empty() ? "" : ", ") + plan.program.graph.describe(id);
  }
  return out;
}

Status lost_status(const NodeId& who, const Status& why) {
  return Status(Code::unavailable, fmt::format("node '{}' was lost ({})", who.name, why.message()));
}

Status lost_status(const Plan& plan, std::int32_t node, const NodeId& who, const Status& why) {
  return Status(Code::unavailable,
                fmt::format("{}; awaited from it: {}", lost_status(who, why).message(),
                            edges_out_of(plan, node)));
}

/// Tokens and grants in memory that is used again, which go however the use of it ends.
class Emptied {
 public:
  explicit Emptied(RunTokens& all) : all_(all) {}
  ~Emptied() {
    all_.grants.clear();
    all_.tokens.clear();
  }
  Emptied(const Emptied&) = delete;
  Emptied& operator=(const Emptied&) = delete;

 private:
  RunTokens& all_;
};

void check(bool holds, const char* what) {
  if (!holds) MessageReader::malformed(what);
}

// Returns a partition of this node. `number` counts those of all nodes, and from here on those of
// this node's part of the plan.
const PartitionPlan& own_partition(std::int32_t& number, const Run& run, const char* why_not) {
  number = run.plan().partition_of_number(number);
  check(number >= 0 && run.troupe->partitions[at(number)], why_not);
  return run.plan().partitions[at(number)];
}

// Only what this peer may send.
void check(RunToken& m, const Run& run, const DistributedPlan& shared, Peer from) {
  const Plan& plan = run.plan();
  const PartitionPlan& to =
      own_partition(m.partition, run, "a token for no partition of this node");
  check(m.receive >= 0 && at(m.receive) < to.receives.size(), "a token of no edge");
  const PartitionPlan::Receive& edge = to.receives[at(m.receive)];
  check(shared.peer_of(edge.partition) == from, "a token of another's edge");
  const FramePlan& frame = to.frames[at(edge.frame)];
  check(m.path.depth == frame.depth, "a token of another loop");
  check(m.path.depth == 0 || m.path.number[m.path.depth - 1] <= INT64_MAX - std::max(1, m.times),
        "a token of no iteration");
  // A sender is never more than an iteration window ahead of the last grant of the receiver.
  const bool may_be_several =
      frame.depth > 0 && !frame.function && edge.says == PartitionPlan::Says::value;
  check(m.times == 1 || (m.times > 1 && m.times <= edge.window && may_be_several),
        "a token for too many iterations");
  if (edge.says == PartitionPlan::Says::begins)
    check(!m.is_dead && fits(m.value, {DType::u64, Shape{}}), "a call without its tag");
  else if (m.is_dead || edge.output < 0) check(!m.value.has_value(), "a value where there is none");
  else
    check(fits(m.value, plan.program.graph.spec({edge.source, edge.output})),
          "a value of another kind than its edge's");
}

void check(RunGrant& m, const Run& run, const DistributedPlan& shared, Peer from) {
  const PartitionPlan& to =
      own_partition(m.partition, run, "a grant for no partition of this node");
  check(m.send >= 0 && at(m.send) < to.sends.size(), "a grant of no edge");
  const PartitionPlan::Send& edge = to.sends[at(m.send)];
  check(shared.peer_of(edge.partition) == from, "a grant of another's edge");
  check(m.path.depth > 0 && m.path.depth <= to.frames[at(edge.frame)].depth,
        "a grant of another loop");
}

// The partition that all of a message is for; -1: there are several, or none.
std::int32_t only_partition(const RunTokens& m) {
  if (m.tokens.empty() && m.grants.empty()) return -1;
  const std::int32_t first =
      m.tokens.empty() ? m.grants.front().partition : m.tokens.front().partition;
  const auto is_for_it = [first](const auto& x) { return x.partition == first; };
  return std::all_of(m.grants.begin(), m.grants.end(), is_for_it) &&
                 std::all_of(m.tokens.begin(), m.tokens.end(), is_for_it)
             ? first
             : -1;
}

}  // namespace

// ---- plans

void DistributedRuns::add(const std::shared_ptr<DistributedPlan>& plan) {
  std::lock_guard lock(mutex_);
  std::erase_if(plans_, [](const auto& weak) { return weak.expired(); });
  plans_.push_back(plan);
  if (closed_) plan->break_off();
}

// ---- at the owner

void DistributedRuns::begin(Run& run, DistributedPlan& plan) {
  Ref<Run> keep = share(run);
  Status why(Code::unavailable,
             "a node that takes part in this function was lost, or its states were cleared, as the "
             "run began; call it again");
  std::vector<Peer> asked;
  {
    std::lock_guard lock(mutex_);
    run.key = {self_, ++last_};
    if (!plan.is_broken()) {
      try {
        asked.reserve(plan.others().size());
        owned_.emplace(last_, Owned{keep, plan.others()});
        for (Peer peer : plan.others()) {
          BeginRun m{last_, run.info().id, plan.number(), run.info().step, run.info().seed, {}};
          std::set<std::int32_t> feeds;
          for (const std::int32_t p : plan.plan().partitions_on[at(plan.node_of_peer(peer))])
            for (const PartitionPlan::Feed& f : plan.plan().partitions[at(p)].feeds)
              feeds.insert(f.index);
          for (std::int32_t f : feeds) m.feeds.emplace_back(f, run.feeds()[at(f)]);
          send(transport_, peer, m);
          asked.push_back(peer);
        }
        return;
      } catch (...) {  // nodes that were not asked leave now, the others by themselves
        why = Status::from_current_exception();
        if (auto it = owned_.find(last_); it != owned_.end()) {
          std::erase_if(it->second.awaited, [&](Peer peer) {
            return std::find(asked.begin(), asked.end(), peer) == asked.end();
          });
          if (asked.empty()) owned_.erase(it);
        }
      }
    }
  }
  engine_->fail(run, why);
  for (int i = static_cast<int>(asked.size()); i < plan.nodes(); ++i) run.leave();
}

void DistributedRuns::handle(Peer from, RunFailed&& m) {
  Ref<Run> run = find({self_, m.run});
  check(!m.status.ok(), "a failure that is none");
  if (run)
    check(plan_of(*run).node_of_peer(from) >= 0, "a failure of a run that it takes no part in");
  if (!run) return;
  // two of the others may have lost each other: it is made again
  if (m.status.code() == Code::unavailable) plan_of(*run).break_off();
  engine_->fail(*run, from_node(host_.name_of(from), m.status));
}

void DistributedRuns::handle(Peer from, LeftRun&& m) {
  Ref<Run> run;
  {
    std::lock_guard lock(mutex_);
    auto it = owned_.find(m.run);
    if (it == owned_.end() || std::erase(it->second.awaited, from) == 0) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    run = it->second.run;
    if (it->second.awaited.empty()) owned_.erase(it);
  }
  const Program& program = run->plan().program;
  const DistributedPlan& plan = plan_of(*run);
  const std::int32_t node = plan.node_of_peer(from);
  std::set<std::int32_t> came;
  for (auto& [index, value] : m.fetches) {
    const bool fits_here = index >= 0 && plan.is_fetched_from(node, index) &&
                           fits(value, program.graph.spec(program.fetches[at(index)])) &&
                           came.insert(index).second;
    if (fits_here) run->set_fetch(index, std::move(value));
    else if (m.status.ok()) m.status = Status(Code::data_loss, "it sent what was not fetched");
  }
  if (m.status.ok() && came.size() != plan.fetches_from(node))
    m.status = Status(Code::data_loss, "it did not send all that was fetched from it");
  if (!m.status.ok()) engine_->fail(*run, from_node(host_.name_of(from), m.status));
  // the first of its partitions stands for all
  for (const std::int32_t p : run->plan().partitions_on[at(node)])
    run->has_done(p, std::exchange(m.done, {}));
  run->leave();
}

void DistributedRuns::break_off(const std::vector<Peer>& peers) {
  // kept: the last of one may not go under the lock
  std::vector<std::shared_ptr<DistributedPlan>> plans;
  std::lock_guard lock(mutex_);
  for (const auto& weak : plans_)
    if (auto plan = weak.lock()) {
      const auto takes_part = [&](Peer peer) { return peer != 0 && plan->node_of_peer(peer) >= 0; };
      if (plan->is_owned() && std::any_of(peers.begin(), peers.end(), takes_part))
        plan->break_off();
      plans.push_back(std::move(plan));
    }
}

// Two others have lost each other, or one has lost states of the plan's; the next call of its
// function makes it anew.
void DistributedRuns::handle(Peer from, PlanBroken&& m) {
  // kept: the last of one may not go under the lock
  std::vector<std::shared_ptr<DistributedPlan>> plans;
  std::lock_guard lock(mutex_);
  for (const auto& weak : plans_)
    if (auto plan = weak.lock()) {
      if (plan->is_owned() && plan->number() == m.plan && plan->node_of_peer(from) >= 0)
        plan->break_off();
      plans.push_back(std::move(plan));
    }
}

// Runs the short consequences of a message on the thread that brings it: no worker need be woken,
// nor wake the transport's thread to send the results. Wake-ups are most of the time of an
// iteration that waits for another node.
template <class Send>
void DistributedRuns::here_if_light(const PlanActors& troupe, Send send) {
  std::optional<CallerWorker> worker;
  // Only if it is the only run, as for callers. Otherwise it may wake work of another run, which
  // may be long, or a user's code that sends a request to a peer.
  if (engine_->in_flight() <= 1 && troupe.is_light.load(std::memory_order_relaxed))
    worker.emplace(*engine_->pool(), CallerWorker::Stepped::drawn);
  const bool is_here = worker && *worker;
  send(is_here);
  if (is_here) worker->run_some(kJobsHere - 1);
}

// ---- at the others

void DistributedRuns::handle(Peer from, std::uint64_t owner, BeginRun&& m,
                             const std::shared_ptr<CompiledPlan>& compiled) {
  const RunKey key{owner, m.run};
  check(m.id != 0, "a run without its owner's number");
  {
    std::lock_guard lock(mutex_);
    check(m.run > begun_[owner], "a run that began before");
    all_begun(owner, m.run - 1);
    begun_[owner] = m.run;
  }
  auto refuse = [&](Code code, const char* why) {
    send(transport_, from, LeftRun{m.run, Status(code, why), {}});
  };
  // dropped as the run began: its owner has not heard of that yet
  if (!compiled)
    return refuse(
        Code::unavailable,
        "it has no such plan any more, because its states were cleared, it is drained, or "
        "a later driver acts; call the function again");
  const Plan& plan = *compiled->troupe.plan;
  std::vector<Tensor> feeds(plan.feeds.size());
  for (auto& [index, value] : m.feeds) {
    check(index >= 0 && at(index) < feeds.size() && fits(value, plan.feeds[at(index)]),
          "a feed that does not fit");
    feeds[at(index)] = std::move(value);
  }
  for (std::size_t p = 0; p < plan.partitions.size(); ++p)
    if (plan.is_here(p))
      for (const PartitionPlan::Feed& f : plan.partitions[p].feeds)
        check(feeds[at(f.index)].has_value(), "a run without a feed");
  Ref<Run> run;
  try {
    run = engine_->begin_part(compiled, key, m.id, m.step, m.seed, std::move(feeds),
                              [this](Run& r) { ended(r); });
  } catch (...) {  // it is shutting down, or has no memory: nothing that the owner has done
    const Status why = Status::from_current_exception();
    return refuse(why.code(), why.message().c_str());
  }
  std::vector<Waiting> waiting;
  Status why_not;  // by this node only: the owner may not know of it
  {
    std::lock_guard lock(mutex_);
    parts_.emplace(key, run);
    why_not = plan_of(*run).ended;
    waiting = take_waiting(key);
  }
  if (!why_not.ok()) engine_->fail(*run, why_not);
  here_if_light(compiled->troupe, [&](bool) {
    for (const auto& partition : compiled->troupe.partitions)
      if (partition) partition->send(StartRun{run});
  });
  for (Waiting& w : waiting) {
    try {
      if (auto* tokens = std::get_if<RunTokens>(&w.message)) handle(w.from, std::move(*tokens));
      else if (auto* values = std::get_if<MeshValues>(&w.message))
        handle(w.from, std::move(*values));
      else handle(w.from, owner, std::move(std::get<AbandonRun>(w.message)));
    } catch (...) {  // the sender is at fault, not the owner, whose message led to this check
      const Status why = Status::from_current_exception();
      refused(w.from, why.message());
      transport_.disconnect(w.from, why);
      host_.lost(w.from, why);
    }
  }
}

void DistributedRuns::handle(Peer from, std::uint64_t owner, AbandonRun&& m) {
  const RunKey key{owner, m.run};
  const Status why(m.status.ok() ? Code::aborted : m.status.code(),
                   fmt::format("{}: {}", kElsewhere, m.status.message()));
  if (Ref<Run> run = find(key)) return engine_->fail(*run, why);
  if (wait(key, {from, m})) return;
  // The run was here, so this node reports its end nevertheless.
  EndedRun end;
  end.run = m.id;
  end.is_owned = false;
  end.plan = {host_.name_of(from), m.plan, owner};
  end.ended_ns = epoch_ns();
  end.error = why.message();
  end.code = why.code();
  engine_->keep_failed_elsewhere(std::move(end));
}

void DistributedRuns::handle(std::uint64_t owner, RunsBegun&& m) {
  std::lock_guard lock(mutex_);
  all_begun(owner, m.last);
}

// Drops messages of other nodes for runs up to `last` whose BeginRun this node has not got: it was
// lost with a session. Called under the lock.
void DistributedRuns::all_begun(std::uint64_t owner, std::uint64_t last) {
  std::uint64_t& begun = begun_[owner];
  begun = std::max(begun, last);
  drop_waiting({owner, 0}, {owner, last});
  take_waiting({owner, last});
}

void DistributedRuns::end(const RunKey& ending, const Status& why) {
  // kept: the last of one may not go under the lock
  std::vector<std::shared_ptr<DistributedPlan>> plans;
  std::vector<Ref<Run>> parts;
  {
    std::lock_guard lock(mutex_);
    for (const auto& weak : plans_)
      if (auto plan = weak.lock()) {
        plans.push_back(plan);
        if (!plan->is_owned() && plan->key() == ending) plan->ended = why;
      }
    for (auto& [key, run] : parts_)
      if (plan_of(*run).key() == ending) parts.push_back(run);
  }
  for (const Ref<Run>& run : parts) engine_->fail(*run, why);
}

// All of the run that was here has left it.
void DistributedRuns::ended(Run& run) {
  Ref<Run> last;
  {
    std::lock_guard lock(mutex_);
    auto it = parts_.find(run.key);
    last = std::move(it->second);
    parts_.erase(it);
  }
  // It is enough that the run is poisoned. The thread that makes it fail may still be notifying
  // others, and work that was skipped since is no result.
  LeftRun m{run.key.number, run.is_poisoned() ? run.status() : Status(), {}};
  for (std::size_t p = 0; p < run.plan().partitions.size(); ++p)
    if (const std::optional<RunTotals> done = run.done_by(p))
      m.done.fired += done->fired, m.done.sent += done->sent, m.done.received += done->received;
  if (m.status.ok()) {
    std::vector<Tensor> fetches = run.take_fetches();
    for (std::size_t f = 0; f < fetches.size(); ++f)
      if (fetches[f].has_value())
        m.fetches.emplace_back(static_cast<std::int32_t>(f), std::move(fetches[f]));
  }
  send(transport_, plan_of(run).owner(), m);
}

// ---- both

Ref<Run> DistributedRuns::find(const RunKey& key) {
  std::lock_guard lock(mutex_);
  if (key.owner == self_) {
    auto it = owned_.find(key.number);
    return it == owned_.end() ? Ref<Run>() : it->second.run;
  }
  auto it = parts_.find(key);
  return it == parts_.end() ? Ref<Run>() : it->second;
}

bool DistributedRuns::is_over(const RunKey& key) const {
  if (key.owner == self_ || gone_.contains(key.owner) || closed_) return true;
  auto begun = begun_.find(key.owner);
  return begun != begun_.end() && key.number <= begun->second;
}

void DistributedRuns::drop_waiting(const RunKey& from, const RunKey& to) {
  for (auto it = waiting_.lower_bound(from); it != waiting_.end() && it->first < to;
       it = waiting_.lower_bound(from))
    take_waiting(it->first);
}

std::vector<DistributedRuns::Waiting> DistributedRuns::take_waiting(const RunKey& key) {
  auto it = waiting_.find(key);
  if (it == waiting_.end()) return {};
  std::vector<Waiting> taken = std::move(it->second);
  waiting_.erase(it);
  for (const Waiting& w : taken) {
    Early& early = early_[w.from];
    early.messages -= w.messages, early.bytes -= w.bytes;
  }
  return taken;
}

// Buffers a message for a run that has not begun here; returns false if the run is over. A sender
// that exceeds the limits is disconnected.
bool DistributedRuns::wait(const RunKey& key, Waiting&& message) {
  std::lock_guard lock(mutex_);
  if (is_over(key)) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  if (const auto* tokens = std::get_if<RunTokens>(&message.message)) {
    message.messages = tokens->tokens.size();
    for (const RunToken& token : tokens->tokens)
      message.bytes += sizeof token + memory_of(token.value);
  } else if (const auto* of_mesh = std::get_if<MeshValues>(&message.message)) {
    for (const Tensor& value : of_mesh->values) message.bytes += sizeof value + memory_of(value);
  } else {
    message.bytes += std::get<AbandonRun>(message.message).status.message().size();
  }
  Early& early = early_[message.from];
  if (early.messages + message.messages > limits_.messages ||
      early.bytes + message.bytes > limits_.bytes)
    throw Error(
        Code::resource_exhausted,
        fmt::format("it sent more than {} messages or {} for runs that have not begun on node "
                    "'{}'; NodeOptions::early sets the limits",
                    limits_.messages, readable_bytes(static_cast<double>(limits_.bytes)), name_));
  early.messages += message.messages, early.bytes += message.bytes;
  waiting_[key].push_back(std::move(message));
  waited_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Handles the tokens and grants that `read` puts into them.
template <class Read>
void DistributedRuns::handle_read(Peer from, Read read) {
  thread_local RunTokens of_thread;
  RunTokens& said = of_thread;  // to find it takes a call
  const Emptied emptied(said);
  read(said);
  handle(from, std::move(said));
}

void DistributedRuns::handle_tokens(Peer from, std::span<const std::byte> record) {
  handle_read(from, [&](RunTokens& said) { read_tokens(record, said); });
}
void DistributedRuns::handle_tokens(Peer from, Message& message) {
  handle_read(from, [&](RunTokens& said) { read_tokens(message, said); });
}

// A grant for a run that is not under way here is dropped: without an instance of a loop no token
// waits for credit.
void DistributedRuns::handle(Peer from, RunTokens&& m) {
  const Ref<Run> run = find(m.run);
  if (!run) {
    if (!m.tokens.empty()) wait(m.run, {from, RunTokens{m.run, {}, std::move(m.tokens)}});
    else dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const DistributedPlan& plan = plan_of(*run);
  for (RunGrant& g : m.grants) check(g, *run, plan, from);
  for (RunToken& t : m.tokens) check(t, *run, plan, from);
  const auto& partitions = run->troupe->partitions;
  const auto each = [&](auto pass) {
    for (const RunGrant& g : m.grants)
      pass(*partitions[at(g.partition)], std::in_place_type<Grant>, run, g.send, g.path, g.last);
    for (RunToken& t : m.tokens)
      pass(*partitions[at(t.partition)], std::in_place_type<Token>, run, t.receive, t.is_dead,
           std::move(t.value), t.path, t.times);
  };
  here_if_light(*run->troupe, [&](bool is_here) {
    const std::int32_t only = is_here ? only_partition(m) : -1;
    const bool ran_inline = only >= 0 && partitions[at(only)]->turn_here([&](auto receive) {
      each([&](PartitionActor&, auto&&... of) {
        PartitionMessage message(std::forward<decltype(of)>(of)...);
        receive(message);
      });
    });
    if (ran_inline)
      taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    else each([](PartitionActor& to, auto&&... of) { to.send(std::forward<decltype(of)>(of)...); });
  });
}

void DistributedRuns::handle(Peer from, MeshValues&& m) {
  const Ref<Run> run = find(m.run);
  if (!run) {
    wait(m.run, {from, std::move(m)});
    return;
  }
  const std::int32_t node = plan_of(*run).node_of_peer(from);
  const std::shared_ptr<mesh::detail::Exchange>& exchange = run->plan().exchange;
  check(node >= 0 && exchange, "values of devices that take no part");
  std::uint64_t bytes = 0;
  for (const Tensor& value : m.values) bytes += memory_of(value);
  // The run keeps the exchange.
  std::function<void()> rest = exchange->take(run->info(), node, m.place, std::move(m.values));
  if (!rest) return;
  LeanRef<CombiningActor> combining;
  if (bytes > kCombinedHere) {
    std::lock_guard lock(mutex_);
    combining = combining_;
  }
  if (combining) combining->send([run, rest = std::move(rest)] { rest(); });
  else here_if_light(*run->troupe, [&](bool) { rest(); });
}

std::optional<RunKey> DistributedRuns::key_of(std::uint64_t run) {
  std::lock_guard lock(mutex_);
  for (const auto& [number, owned] : owned_)
    if (owned.run->info().id == run) return owned.run->key;
  for (const auto& [key, part] : parts_)
    if (part->info().id == run) return key;
  return std::nullopt;
}

void DistributedRuns::failed(Run& run, DistributedPlan& plan) {
  if (plan.is_owned()) {
    const AbandonRun m{run.key.number, run.number(), plan.number(), run.status()};
    for (Peer peer : plan.others()) send(transport_, peer, m);
  } else if (!run.status().message().starts_with(kElsewhere)) {
    send(transport_, plan.owner(), RunFailed{run.key.number, run.status()});
  }
}

void DistributedRuns::refused(Peer peer, const std::string& what) {
  const std::uint64_t so_far = refused_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (log_ && std::has_single_bit(so_far))
    log_(fmt::format("node '{}' sent what it should not have: {}; dropped{}", host_.name_of(peer),
                     what, so_far > 1 ? fmt::format(", as {} so far", so_far) : ""));
}

void DistributedRuns::lost(Peer peer, const NodeId& node, const Status& why) {
  // kept: the last of one may not go under the lock
  std::vector<std::shared_ptr<DistributedPlan>> plans;
  std::vector<Ref<Run>> owned, parts;
  {
    std::lock_guard lock(mutex_);
    for (const auto& weak : plans_)
      if (auto plan = weak.lock()) {
        plans.push_back(plan);
        if (plan->node_of_peer(peer) < 0) continue;
        plan->break_off();
        if (plan->ended.ok())
          plan->ended =
              Status(Code::unavailable,
                     fmt::format("node '{}' was lost before the run began here", node.name));
        if (!plan->is_owned() && plan->owner() != peer)
          send(transport_, plan->owner(), PlanBroken{plan->number()});
      }
    for (auto it = owned_.begin(); it != owned_.end();) {
      if (std::erase(it->second.awaited, peer) > 0) owned.push_back(it->second.run);
      it = it->second.awaited.empty() ? owned_.erase(it) : std::next(it);
    }
    for (auto& [key, run] : parts_)
      if (key.owner == node.incarnation || plan_of(*run).node_of_peer(peer) >= 0)
        parts.push_back(run);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      std::erase_if(it->second, [&](const Waiting& w) { return w.from == peer; });
      it = it->second.empty() ? waiting_.erase(it) : std::next(it);
    }
    early_.erase(peer);
    gone_.insert(node.incarnation);
    drop_waiting({node.incarnation, 0}, {node.incarnation, UINT64_MAX});
  }
  for (const Ref<Run>& run : owned) {
    engine_->fail(*run, lost_status(run->plan(), plan_of(*run).node_of_peer(peer), node, why));
    run->leave();
  }
  for (const Ref<Run>& run : parts) {
    const std::int32_t lost_node = plan_of(*run).node_of_peer(peer);
    if (run->key.owner == node.incarnation) {
      engine_->fail(
          *run, lost_node >= 0
                    ? lost_status(run->plan(), lost_node, node, why)
                    : Status(Code::unavailable,
                             fmt::format("node '{}', whose run this was, was lost", node.name)));
      continue;
    }
    // An exchange does not know which meetings are to come.
    if (lost_node >= 0 && run->plan().exchange) {
      engine_->fail(*run, lost_status(run->plan(), lost_node, node, why));
      continue;
    }
    // It may have done its part: a partition that has all it awaits of it goes on. If it had not,
    // the owner knows.
    for (const auto& partition : run->troupe->partitions)
      if (partition) partition->send(NodeLost{run, lost_node, lost_status(node, why)});
  }
}

// The earlier runs of the peer are over here, and tokens of others for them are recognised by their
// numbers; a run that it begins now is of a plan that this node makes after this. This node sends
// the number of its newest run ahead of the beginnings of others: no plan uses the session yet.
void DistributedRuns::met(Peer peer, std::uint64_t incarnation) {
  std::lock_guard lock(mutex_);
  gone_.erase(incarnation);
  if (last_ != 0) send(transport_, peer, RunsBegun{last_});
}

void DistributedRuns::close() {
  std::vector<Ref<Run>> owned, parts;
  LeanRef<CombiningActor> combining;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    combining = std::exchange(combining_, {});
    for (const auto& weak : plans_)
      if (auto plan = weak.lock()) plan->break_off();
    for (auto& [number, o] : owned_) owned.push_back(o.run);
    for (auto& [key, run] : parts_) parts.push_back(run);
  }
  for (const Ref<Run>& run : owned)
    engine_->fail(*run, Status(Code::cancelled, fmt::format("node '{}' is leaving", name_)));
  // The loss and this failure carry the same reason, so their order at the owner does not matter.
  for (const Ref<Run>& run : parts)
    engine_->fail(*run, lost_status(run->plan(), run->plan().here, {name_, self_, {}},
                                    Status(Code::unavailable, "it is leaving")));
}

}  // namespace troupe
