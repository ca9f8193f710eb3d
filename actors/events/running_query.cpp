#include <troupe/actors/events/running_query.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/events/direct_run.hpp>
#include <troupe/actors/events/operator_actor.hpp>
#include <troupe/actors/events/partition_host.hpp>
#include <troupe/actors/events/placed_partition.hpp>
#include <troupe/actors/events/query_report.hpp>
#include <troupe/actors/runtime/scheduler_module.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::events {

/// Takes what users feed to a source: an upstream that may block.
class SourcePort {
 public:
  SourcePort(OperatorActor& actor, int window) : actor_(actor), tokens_(window) {}

  /// False if the port has no room; the batch is kept then.
  bool add(Batch& batch) {
    const std::lock_guard lock(mutex_);
    if (!tokens_.has_room()) return false;
    tokens_.add(std::move(batch));
    send();
    return true;
  }
  void grant() {
    const std::lock_guard lock(mutex_);
    tokens_.grant();
    send();
    room_.notify_all();
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    room_.notify_all();
  }
  template <class Done>
  void wait_for_room(Done done) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return tokens_.has_room() || done(); });
  }

 private:
  void send() {
    for (Batch token; tokens_.take(token);) actor_.send(Deliver{0, std::move(token)});
  }

  OperatorActor& actor_;
  std::mutex mutex_;  // guards tokens_, and orders what is sent
  std::condition_variable room_;
  TokenQueue tokens_;
};

class RunningQuery::Run {
 public:
  Run(const Query& query, Receive receive, RunOptions options);
  ~Run();
  void feed(std::size_t source, Batch batch);
  bool try_feed(std::size_t source, Batch& batch);
  void finish();
  std::vector<Counters> counters();
  std::vector<OperatorReport> reports(std::chrono::nanoseconds patience);
  Time set_consistency(const Consistency& level);
  const Query query;

 private:
  struct Member {
    QueryActor* actor;
    std::size_t step;       // its operator's, or the first one of a placed partition
    std::size_t partition;  // 0: also of none
    bool is_placed;
  };

  std::shared_ptr<ReportsOfOperators> ask();
  void open(const Query& of, const RunOptions& options);
  void spawn();
  void connect(int window);
  std::vector<OutputEdges::Consumer> consumers_of(const Member& of) const;
  void expand(std::vector<OperatorReport>& reports) const;
  void note(std::size_t source, Time g);
  void fail(const std::exception_ptr& error);
  void throw_if_failed();
  bool has_failed() {
    const std::lock_guard lock(mutex_);
    return error_ != nullptr;
  }
  template <class Done>
  void wait(Done done);
  template <class Done>
  void step_until(Done done);
  void step();
  void poll();
  bool is_placed(std::size_t step) const { return !query.steps()[step].node.empty(); }

  std::optional<WorkerPool> own_pool_;
  WorkerPool& pool_;
  Engine* const engine_;  // null: none
  const Receive receive_;
  caf::actor_system_config config_;
  std::optional<caf::actor_system> system_;
  std::vector<LeanRef<OperatorActor>> actors_;           // by step; null: placed
  std::vector<std::unique_ptr<PartitionLine>> lines_;    // by placed partition
  std::vector<LeanRef<PlacedPartition>> partitions_;     // likewise
  std::vector<std::vector<Query::Consumer>> consumers_;  // by step
  std::vector<Member> members_;                          // all actors
  std::vector<std::unique_ptr<SourcePort>> ports_;
  std::mutex progress_mutex_;  // guards progress_, and orders the guarantees of a source
  SourceProgress progress_;
  std::mutex switching_;  // held for a change of level, so that no other one comes between
  std::mutex mutex_;      // guards all below
  std::condition_variable changed_;
  std::exception_ptr error_;
  std::size_t open_outputs_, alive_ = 0;
  std::shared_ptr<QueryReporter> reporter_;  // null: no node shows it
  Reporting reporting_;
};

namespace {

Query placed_or_partitioned(const Query& of, const RunOptions& options) {
  check_query(of);
  const auto partitions = static_cast<std::size_t>(options.partitions);
  if (options.nodes.empty()) return partitioned(of, partitions);
  if (!options.engine)
    throw Error(
        Code::invalid_argument,
        fmt::format("a query on node '{}' has no engine; give RunOptions::engine, that of a "
                    "node of the cluster",
                    options.nodes[0]));
  if (!of.text())
    throw Error(Code::invalid_argument,
                fmt::format("a query on node '{}' has operators of C++, which the node does not "
                            "have; write the query as text for parse_query",
                            options.nodes[0]));
  return placed(of, options.nodes, partitions);
}

}  // namespace

RunningQuery::Run::Run(const Query& of, Receive receive, RunOptions options)
    : query(placed_or_partitioned(of, options)),
      own_pool_(options.pool || options.engine
                    ? std::optional<WorkerPool>()
                    : std::optional<WorkerPool>(std::in_place, options.workers)),
      pool_(options.engine ? *options.engine->impl().pool()
            : options.pool ? *options.pool
                           : *own_pool_),
      engine_(options.engine), receive_(std::move(receive)), consumers_(query.consumers()),
      progress_(query), open_outputs_(query.outputs().size()) {
  SchedulerModule::load(config_, pool_);
  system_.emplace(config_);
  if (pool_.deterministic()) system_->await_actors_before_shutdown(false);
  open(of, options);
  spawn();
  alive_ = members_.size();
  for (const Query::Port& source : query.sources())
    ports_.push_back(std::make_unique<SourcePort>(*actors_[source.step], options.window));
  connect(options.window);
  if (!options.engine) return;
  reporter_ = std::make_shared<QueryReporter>(
      query, options.name.empty() ? query.outputs()[0].name : options.name, options.window,
      [this](std::chrono::nanoseconds patience) { return reports(patience); });
  reporting_ = Reporting(options.engine->impl(), reporter_);
}

/// Makes the operators of placed partitions on their nodes.
void RunningQuery::Run::open(const Query& of, const RunOptions& options) {
  const auto each = static_cast<std::size_t>(options.partitions);
  const std::size_t all = options.nodes.size() * each;
  if (all == 0) return;
  // Distinguishes runs of this process at the nodes, and spreads their partitions over slots.
  static std::atomic<std::uint64_t> next{0};  // publishes nothing but itself
  const std::uint64_t first = next.fetch_add(all);
  PartitionCall call;
  call.text = *of.text();
  call.plan = query.explain();
  call.nodes = options.nodes;
  call.partitions = each;
  call.level = query.consistency();
  for (std::size_t p = 0; p < all; ++p) {
    const std::string run = fmt::format("{}/{}", engine_->impl().node(), first + p);
    lines_.push_back(std::make_unique<PartitionLine>(*engine_, options.nodes[p / each], run,
                                                     (first + p) % PartitionHost::kSlots));
    call.partition = p;
    lines_.back()->open(call);
  }
}

void RunningQuery::Run::spawn() {
  for (std::size_t p = 0; p < lines_.size(); ++p) {
    partitions_.push_back(lean_spawn<PlacedPartition>(*system_, *lines_[p], query, p));
    lines_[p]->deliver([to = partitions_[p]](Answered end) { to->send(std::move(end)); });
    members_.push_back({partitions_[p].get(), shape_of(query, p).steps.at(0), p, true});
  }
  actors_.resize(query.steps().size());
  for (std::size_t s = 0; s < actors_.size(); ++s) {
    const Query::Step& step = query.steps()[s];
    if (is_placed(s)) continue;
    std::unique_ptr<Operator> op = step.make(step.name);
    op->set_consistency(query.consistency());
    actors_[s] = lean_spawn<OperatorActor>(*system_, std::move(op));
    members_.push_back(
        {actors_[s].get(), s, static_cast<std::size_t>(std::max(0, step.partition)), false});
  }
}

/// Returns the consumers of an actor's output.
std::vector<OutputEdges::Consumer> RunningQuery::Run::consumers_of(const Member& of) const {
  std::vector<OutputEdges::Consumer> all;
  if (of.is_placed) {
    const std::vector<std::size_t> exits = shape_of(query, of.partition).exits;
    for (std::size_t e = 0; e < exits.size(); ++e) {
      for (const auto& [to, input, partition, is_last] : consumers_[exits[e]])
        if (!is_placed(to)) all.push_back({actors_[to].get(), input, -1, false, e});
      all.back().is_last = true;
    }
    return all;
  }
  std::vector<bool> has_taken(partitions_.size());
  for (const auto& [to, input, partition, is_last] : consumers_[of.step]) {
    if (!is_placed(to)) {
      all.push_back({actors_[to].get(), input, partition, is_last});
      continue;
    }
    // A placed partition takes each stream once, for all its operators.
    const auto p = static_cast<std::size_t>(partition);
    if (has_taken[p]) continue;
    has_taken[p] = true;
    const std::vector<std::size_t> entries = shape_of(query, p).entries;
    const auto entry = std::find(entries.begin(), entries.end(), of.step);
    all.push_back(
        {partitions_[p].get(), static_cast<std::size_t>(entry - entries.begin()), partition, true});
  }
  return all;
}

void RunningQuery::Run::connect(int window) {
  using Grants = std::vector<std::function<void()>>;
  std::map<QueryActor*, Grants> grants;  // by receiver, then by input
  std::map<QueryActor*, std::vector<OutputEdges::Consumer>> consumers;
  for (const Member& m : members_) {
    consumers[m.actor] = consumers_of(m);
    grants[m.actor].resize(m.is_placed
                               ? shape_of(query, m.partition).entries.size()
                               : std::max<std::size_t>(1, query.steps()[m.step].inputs.size()));
  }
  for (const auto& [up, all] : consumers)
    for (std::size_t c = 0; c < all.size(); ++c)
      grants[all[c].actor][all[c].input] = [up = up, c] { up->send(Grant{c}); };
  for (std::size_t p = 0; p < ports_.size(); ++p)
    grants[actors_[query.sources()[p].step].get()][0] = [port = ports_[p].get()] { port->grant(); };
  const auto failed = [this](const std::exception_ptr& error) { fail(error); };
  const auto gone = [this] {
    const std::lock_guard lock(mutex_);
    --alive_;
    changed_.notify_all();
  };
  const std::vector<int> output_of = outputs_by_step(query);
  for (const Member& m : members_) {
    ActorWiring to_others{std::move(consumers[m.actor]), std::move(grants[m.actor]), failed, gone,
                          window};
    if (m.is_placed) {
      partitions_[m.partition]->connect(std::move(to_others));
      continue;
    }
    OperatorActor::Wiring wiring{std::move(to_others), query.steps()[m.step].split};
    if (const int output = output_of[m.step]; output >= 0) {
      wiring.receive = [this, o = static_cast<std::size_t>(output)](Batch& batch) {
        receive_(o, batch);
      };
      wiring.ended = [this] {
        const std::lock_guard lock(mutex_);
        --open_outputs_;
        changed_.notify_all();
      };
    }
    actors_[m.step]->connect(std::move(wiring));
  }
}

/// Calls end first, then actors one after another; ports and the system outlive them.
RunningQuery::Run::~Run() {
  reporting_ = {};
  if (reporter_) reporter_->close();
  for (auto& line : lines_) line->stop();
  for (const Member& m : members_) m.actor->send(End{});
  if (pool_.deterministic()) pool_.run_all();
  else wait([this] { return alive_ == 0; });
  actors_.clear();
  partitions_.clear();
}

/// Waits, or takes steps, until `done` holds. Other threads change it under the lock.
template <class Done>
void RunningQuery::Run::wait(Done done) {
  if (pool_.deterministic()) return step_until(done);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, done);
}

/// Takes steps: of the pool, and of the other nodes if there are partitions on them.
template <class Done>
void RunningQuery::Run::step_until(Done done) {
  if (lines_.empty()) {
    pool_.run_all();
    return;
  }
  while (!done()) step();
}

void RunningQuery::Run::step() {
  if (lines_.empty()) {
    pool_.step();
    return;
  }
  poll();
  bool has_stepped = false;
  engine_->impl().step_until([&] { return std::exchange(has_stepped, true); });
}

/// Starts and ends calls to nodes, if there are no threads that do.
void RunningQuery::Run::poll() {
  for (auto& line : lines_) line->poll();
}

void RunningQuery::Run::fail(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    changed_.notify_all();
  }
  for (auto& port : ports_) port->wake();
}

void RunningQuery::Run::throw_if_failed() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

bool RunningQuery::Run::try_feed(std::size_t source, Batch& batch) {
  if (pool_.deterministic()) poll();
  throw_if_failed();
  if (batch.size() <= Batch::kMost) {
    const Time g = batch.guarantee;
    if (g == kNever) return ports_[source]->add(batch);
    // Held over both, so that no follow-up of this source comes between.
    const std::lock_guard lock(progress_mutex_);
    batch.guarantee = progress_.carried(source, g);
    if (!ports_[source]->add(batch)) {
      batch.guarantee = g;
      return false;
    }
    note(source, g);
    return true;
  }
  throw Error(Code::invalid_argument,
              fmt::format("a batch for '{}' has {} messages of at most {}; feed several",
                          query.sources()[source].name, batch.size(), Batch::kMost));
}

/// Gives idle sources their guarantees, under `progress_mutex_`.
void RunningQuery::Run::note(std::size_t source, Time g) {
  progress_.note(source, g, [this](std::size_t idle, Time follows) {
    Batch none(query.steps()[query.sources()[idle].step].schema);
    none.guarantee = follows;
    return ports_[idle]->add(none);
  });
}

void RunningQuery::Run::feed(std::size_t source, Batch batch) {
  while (!try_feed(source, batch)) {
    if (pool_.deterministic()) step();
    else ports_[source]->wait_for_room([this] { return has_failed(); });
  }
}

void RunningQuery::Run::finish() {
  for (std::size_t p = 0; p < ports_.size(); ++p) {
    Batch last(query.steps()[query.sources()[p].step].schema);
    last.guarantee = kForever;
    feed(p, std::move(last));
  }
  wait([this] { return open_outputs_ == 0 || error_; });
  throw_if_failed();
}

Time RunningQuery::Run::set_consistency(const Consistency& level) {
  check_consistency(level);
  const std::lock_guard lock(switching_);
  std::vector<Time> answers(members_.size()), reaches(members_.size());
  std::latch answered(static_cast<std::ptrdiff_t>(members_.size()));
  for (std::size_t m = 0; m < members_.size(); ++m)
    members_[m].actor->send(Switch{level, &answers[m], &reaches[m], &answered});
  if (pool_.deterministic()) step_until([&] { return answered.try_wait(); });
  answered.wait();
  for (std::size_t m = 0; m < members_.size(); ++m)
    if (members_[m].partition > 0) reaches[m] = 0;  // beside the first one
  return effective_from(answers, reaches);
}

std::shared_ptr<ReportsOfOperators> RunningQuery::Run::ask() {
  auto answers = std::make_shared<ReportsOfOperators>(query.steps().size());
  for (const Member& m : members_) m.actor->send(Ask{answers, m.step});
  return answers;
}

std::vector<Counters> RunningQuery::Run::counters() {
  const auto answers = ask();
  if (pool_.deterministic()) step_until([&] { return answers->wait(std::chrono::nanoseconds(0)); });
  answers->wait();
  std::vector<Counters> all;
  for (OperatorReport& report : answers->reports()) all.push_back(std::move(report.counters));
  return all;
}

/// A deterministic pool awaits no answers of nodes, because a node may be in a step that asks.
std::vector<OperatorReport> RunningQuery::Run::reports(std::chrono::nanoseconds patience) {
  const auto answers = ask();
  if (pool_.deterministic()) pool_.run_all();
  answers->wait(pool_.deterministic() ? std::chrono::nanoseconds(0) : patience);
  std::vector<OperatorReport> all = answers->reports();
  expand(all);
  return all;
}

/// Counts tokens by consumer of the plan: a placed partition takes those of all its operators.
void RunningQuery::Run::expand(std::vector<OperatorReport>& reports) const {
  for (std::size_t s = 0; s < reports.size() && !lines_.empty(); ++s) {
    OperatorReport& r = reports[s];
    if (is_placed(s) || r.sent.empty()) continue;
    const std::vector<std::uint64_t> sent = std::exchange(r.sent, {});
    const std::ptrdiff_t full = std::exchange(r.full, -1);
    std::map<int, std::size_t> place;  // by partition, in `sent`
    std::size_t next = 0;
    for (const Query::Consumer& to : consumers_[s]) {
      const bool is_new = !is_placed(to.step) || !place.contains(to.partition);
      const std::size_t at = is_new ? next++ : place[to.partition];
      if (is_placed(to.step)) place[to.partition] = at;
      if (full == static_cast<std::ptrdiff_t>(at) && r.full < 0)
        r.full = static_cast<std::ptrdiff_t>(r.sent.size());
      r.sent.push_back(at < sent.size() ? sent[at] : 0);
    }
  }
}

RunningQuery::RunningQuery(const Query& query, Receive receive, RunOptions options) {
  if (options.window < 1 || options.workers < 1 || options.partitions < 1)
    throw Error(
        Code::invalid_argument,
        fmt::format("a query runs with a window of {}, {} workers and {} partitions; give 1 "
                    "or more each",
                    options.window, options.workers, options.partitions));
  run_ = std::make_unique<Run>(query, std::move(receive), options);
}
RunningQuery::~RunningQuery() = default;

void RunningQuery::feed(const std::string& source, Batch batch) {
  run_->feed(run_->query.source_index(source), std::move(batch));
}
bool RunningQuery::try_feed(const std::string& source, Batch& batch) {
  return run_->try_feed(run_->query.source_index(source), batch);
}
void RunningQuery::finish() { run_->finish(); }
std::vector<Counters> RunningQuery::counters() const { return run_->counters(); }
Time RunningQuery::set_consistency(const Consistency& level) {
  return run_->set_consistency(level);
}

}  // namespace troupe::events
