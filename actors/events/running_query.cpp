#include <troupe/actors/events/running_query.hpp>

#include <condition_variable>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/events/direct_run.hpp>
#include <troupe/actors/events/operator_actor.hpp>
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
  std::shared_ptr<ReportsOfOperators> ask();
  void connect(int window);
  void note(std::size_t source, Time g);
  void fail(const std::exception_ptr& error);
  void throw_if_failed();
  bool has_failed() {
    const std::lock_guard lock(mutex_);
    return error_ != nullptr;
  }
  template <class Done>
  void wait(Done done);

  std::optional<WorkerPool> own_pool_;
  WorkerPool& pool_;
  const Receive receive_;
  caf::actor_system_config config_;
  std::optional<caf::actor_system> system_;
  std::vector<LeanRef<OperatorActor>> actors_;  // by step
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

RunningQuery::Run::Run(const Query& of, Receive receive, RunOptions options)
    : query((check_query(of), partitioned(of, static_cast<std::size_t>(options.partitions)))),
      own_pool_(options.pool || options.engine
                    ? std::optional<WorkerPool>()
                    : std::optional<WorkerPool>(std::in_place, options.workers)),
      pool_(options.engine ? *options.engine->impl().pool()
            : options.pool ? *options.pool
                           : *own_pool_),
      receive_(std::move(receive)), progress_(query), open_outputs_(query.outputs().size()) {
  SchedulerModule::load(config_, pool_);
  system_.emplace(config_);
  if (pool_.deterministic()) system_->await_actors_before_shutdown(false);
  for (auto& op : make_operators(query))
    actors_.push_back(lean_spawn<OperatorActor>(*system_, std::move(op)));
  alive_ = actors_.size();
  for (const Query::Port& source : query.sources())
    ports_.push_back(std::make_unique<SourcePort>(*actors_[source.step], options.window));
  connect(options.window);
  if (!options.engine) return;
  reporter_ = std::make_shared<QueryReporter>(
      query, options.name.empty() ? query.outputs()[0].name : options.name, options.window,
      [this](std::chrono::nanoseconds patience) { return reports(patience); });
  reporting_ = Reporting(options.engine->impl(), reporter_);
}

void RunningQuery::Run::connect(int window) {
  const auto consumers = query.consumers();
  std::vector<OperatorActor::Wiring> wirings(actors_.size());
  for (std::size_t s = 0; s < actors_.size(); ++s)
    wirings[s].grants.resize(std::max<std::size_t>(1, query.steps()[s].inputs.size()));
  for (std::size_t s = 0; s < actors_.size(); ++s) {
    wirings[s].split = query.steps()[s].split;
    for (std::size_t c = 0; c < consumers[s].size(); ++c) {
      const auto [step, input, partition, is_last] = consumers[s][c];
      wirings[s].consumers.push_back({actors_[step].get(), input, partition, is_last});
      wirings[step].grants[input] = [up = actors_[s].get(), c] { up->send(Grant{c}); };
    }
  }
  for (std::size_t p = 0; p < ports_.size(); ++p)
    wirings[query.sources()[p].step].grants[0] = [port = ports_[p].get()] { port->grant(); };
  for (std::size_t o = 0; o < query.outputs().size(); ++o) {
    OperatorActor::Wiring& wiring = wirings[query.outputs()[o].step];
    wiring.receive = [this, o](Batch& batch) { receive_(o, batch); };
    wiring.ended = [this] {
      const std::lock_guard lock(mutex_);
      --open_outputs_;
      changed_.notify_all();
    };
  }
  for (std::size_t s = 0; s < actors_.size(); ++s) {
    wirings[s].failed = [this](const std::exception_ptr& error) { fail(error); };
    wirings[s].gone = [this] {
      const std::lock_guard lock(mutex_);
      --alive_;
      changed_.notify_all();
    };
    wirings[s].window = window;
    actors_[s]->connect(std::move(wirings[s]));
  }
}

/// Operators end one after another; ports and the system outlive them.
RunningQuery::Run::~Run() {
  reporting_ = {};
  if (reporter_) reporter_->close();
  for (auto& actor : actors_) actor->send(End{});
  wait([this] { return alive_ == 0; });
  actors_.clear();
}

/// Waits, or takes steps, until `done` holds under the lock.
template <class Done>
void RunningQuery::Run::wait(Done done) {
  if (pool_.deterministic()) {
    pool_.run_all();
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, done);
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
    if (pool_.deterministic()) pool_.step();
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
  std::vector<Time> answers(actors_.size()), reaches(actors_.size());
  std::latch answered(static_cast<std::ptrdiff_t>(actors_.size()));
  for (std::size_t s = 0; s < actors_.size(); ++s)
    actors_[s]->send(Switch{level, &answers[s], &reaches[s], &answered});
  if (pool_.deterministic()) pool_.run_all();
  answered.wait();
  for (std::size_t s = 0; s < actors_.size(); ++s)
    if (query.steps()[s].partition > 0) reaches[s] = 0;  // beside the first one
  return effective_from(answers, reaches);
}

std::shared_ptr<ReportsOfOperators> RunningQuery::Run::ask() {
  auto answers = std::make_shared<ReportsOfOperators>(actors_.size());
  for (std::size_t s = 0; s < actors_.size(); ++s) actors_[s]->send(Ask{answers, s});
  if (pool_.deterministic()) pool_.run_all();
  return answers;
}

std::vector<Counters> RunningQuery::Run::counters() {
  const auto answers = ask();
  answers->wait();
  std::vector<Counters> all;
  for (OperatorReport& report : answers->reports()) all.push_back(std::move(report.counters));
  return all;
}

std::vector<OperatorReport> RunningQuery::Run::reports(std::chrono::nanoseconds patience) {
  const auto answers = ask();
  answers->wait(patience);
  return answers->reports();
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
