#include <troupe/actors/events/placed_partition.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/events/partition_host.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/graph/actor_node.hpp>

namespace troupe::events {
namespace {

/// Returns a graph with a user's actor on a node, compiled: bytes of a call in, of an answer out.
Function function_of_host(Engine& engine, const std::string& node, std::size_t slot) {
  const std::string name = PartitionHost::slot_name(slot);
  Graph graph;
  const Expr call = graph.input("call", DType::u8, {kAny});
  const auto there = graph.on_device(full_name(kHostDevice, node));
  const Expr answer =
      detail::actor_node(graph, name, {call}, {{DType::u8, Shape{kAny}}}, *detail::find_actor(name),
                         std::source_location::current())[0];
  return engine.compile(graph, {call}, {answer});
}

}  // namespace

// ---- calls -------------------------------------------------------------------------------------

PartitionLine::PartitionLine(Engine& engine, std::string node, std::string run, std::size_t slot)
    : node_(std::move(node)), run_(std::move(run)),
      has_threads_(!engine.impl().options().deterministic),
      function_(function_of_host(engine, node_, slot)) {}

PartitionLine::~PartitionLine() {
  stop();
  if (!is_open_) return;
  try {
    // The run ends by itself.
    function_.start({tensor_of({.kind = PartitionCall::Kind::close, .run = run_})});
  } catch (...) {}  // the node is lost, and the operators with it
}

void PartitionLine::open(PartitionCall call) {
  call.kind = PartitionCall::Kind::open;
  call.run = run_;
  RunHandle run = function_.start({tensor_of(call)});
  const Answered end = answer_of(run);
  if (end.error) std::rethrow_exception(end.error);
  is_open_ = true;
  if (has_threads_) thread_ = std::thread([this] { live(); });
}

void PartitionLine::start(PartitionCall call) {
  call.run = run_;
  Tensor token = tensor_of(call);
  const std::lock_guard lock(mutex_);
  next_ = std::move(token);
  changed_.notify_one();
}

/// Waits for the end of a run, and returns it.
Answered PartitionLine::answer_of(RunHandle& run) {
  try {
    auto answer = std::make_shared<PartitionAnswer>(read_answer(run.get().at(0)));
    if (answer->code != Code::ok) throw Error(answer->code, answer->error);
    return {std::move(answer), nullptr};
  } catch (...) { return failed(); }
}

/// Returns the exception in flight, which names the node.
Answered PartitionLine::failed() const {
  const Status status = Status::from_current_exception();
  const std::string& why = status.message();
  const bool is_named = why.find(fmt::format("node '{}'", node_)) != std::string::npos;
  return {nullptr, std::make_exception_ptr(Error(
                       status.code(), is_named ? why : fmt::format("node '{}': {}", node_, why)))};
}

void PartitionLine::live() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return next_ || is_stopped_; });
    if (is_stopped_) return;
    Tensor token = std::move(*next_);
    next_.reset();
    lock.unlock();
    Answered end;
    try {
      RunHandle run = function_.start({std::move(token)});
      lock.lock();
      if (is_stopped_) return run.cancel();
      call_ = std::move(run);
      lock.unlock();
      end = answer_of(*call_);
    } catch (...) { end = failed(); }  // it did not start
    lock.lock();
    call_.reset();
    if (is_stopped_) return;
    done_(std::move(end));
  }
}

void PartitionLine::poll() {
  if (has_threads_ || is_stopped_) return;
  if (next_ && !call_) {
    Tensor token = std::move(*next_);
    next_.reset();
    try {
      call_ = function_.start({std::move(token)});
    } catch (...) { return done_(failed()); }
  }
  if (!call_ || !call_->is_done()) return;
  Answered end = answer_of(*call_);
  call_.reset();
  done_(std::move(end));
}

void PartitionLine::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    if (call_) call_->cancel();
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  call_.reset();
}

// ---- the actor ---------------------------------------------------------------------------------

PlacedPartition::PlacedPartition(caf::actor_config& config, PartitionLine& line, const Query& query,
                                 std::size_t partition)
    : LeanActor(config), line_(line), shape_(shape_of(query, partition)) {
  for (const std::size_t s : shape_.steps)
    last_.emplace_back().counters.name = query.steps()[s].name;
  for (const std::size_t s : shape_.exits) schemas_.push_back(query.steps()[s].schema);
}

void PlacedPartition::connect(ActorWiring wiring) {
  wiring_ = std::move(wiring);
  edges_.connect(std::move(wiring_.consumers), nullptr, wiring_.window);
}

void PlacedPartition::receive(OperatorMessage& message) {
  if (auto* token = std::get_if<Deliver>(&message)) in_.push_back(std::move(*token));
  else if (const auto* grant = std::get_if<Grant>(&message)) edges_.grant(grant->consumer);
  else if (const auto* ask = std::get_if<Ask>(&message)) asks_.push_back(*ask);
  else if (const auto* to = std::get_if<Switch>(&message)) switches_.push_back(*to);
  else if (auto* end = std::get_if<Answered>(&message)) take(*end);
  else return quit();
  work();
}

void PlacedPartition::ended(const caf::error&) { wiring_.gone(); }

/// Begins the next call if there is work and none is under way.
void PlacedPartition::work() {
  if (has_failed_) {  // gives credit back, so that the sources end
    for (const Deliver& token : in_) wiring_.grants[token.input]();
    in_.clear();
    asked_ = asks_.size();
    report();
    while (!switches_.empty()) level_changed(kNever, 0);
    return;
  }
  if (is_calling_) return;
  PartitionCall call;
  if (edges_.has_room()) take_batches(call);
  call.wants_reports = !asks_.empty();
  asked_ = asks_.size();
  if (!switches_.empty()) {
    call.changes_level = is_changing_ = true;
    call.level = switches_.front().level;
  }
  if (call.batches.empty() && !call.wants_reports && !call.changes_level) return;
  is_calling_ = true;
  line_.start(std::move(call));
}

/// Takes tokens in the order in which they came, up to 4,096 messages.
void PlacedPartition::take_batches(PartitionCall& call) {
  for (std::size_t messages = 0; !in_.empty(); in_.pop_front()) {
    Deliver& token = in_.front();
    messages += token.batch.size();
    if (messages > Batch::kMost && !call.batches.empty()) return;
    wiring_.grants[token.input]();
    call.batches.push_back({token.input, std::move(token.batch)});
  }
}

void PlacedPartition::take(Answered& end) {
  is_calling_ = false;
  try {
    if (end.error) std::rethrow_exception(end.error);
    forward(std::move(end.answer->batches));
  } catch (...) {
    has_failed_ = true;
    return wiring_.failed(std::current_exception());
  }
  if (end.answer->reports.size() == last_.size()) last_ = std::move(end.answer->reports);
  report();
  if (std::exchange(is_changing_, false)) level_changed(end.answer->effective, end.answer->reach);
}

/// Checks what another process has sent, and sends it on.
void PlacedPartition::forward(std::vector<StreamBatch> batches) {
  for (StreamBatch& of : batches) {
    if (of.stream >= schemas_.size())
      throw Error(
          Code::data_loss,
          fmt::format("node '{}' answers with stream {} of {}; install one version of Troupe "
                      "on all nodes",
                      line_.node(), of.stream, schemas_.size()));
    check_schema(of.batch, schemas_[of.stream], fmt::format("node '{}'", line_.node()));
    edges_.forward(std::move(of.batch), of.stream);
  }
}

/// Answers the requests of the last call with the reports of its answer.
void PlacedPartition::report() {
  for (std::size_t a = 0; a < asked_; ++a)
    for (std::size_t i = 0; i < shape_.steps.size(); ++i) {
      OperatorReport r = last_[i];
      r.has_failed = has_failed_;
      const auto exit = std::find(shape_.exits.begin(), shape_.exits.end(), shape_.steps[i]);
      if (exit != shape_.exits.end())
        edges_.report(r, static_cast<std::size_t>(exit - shape_.exits.begin()));
      if (i == 0) r.waiting = in_.size();  // at the first operator, for all
      asks_[a].answers->add(shape_.steps[i], std::move(r));
    }
  asks_.erase(asks_.begin(), asks_.begin() + static_cast<std::ptrdiff_t>(asked_));
  asked_ = 0;
}

/// Answers the first of `switches_`.
void PlacedPartition::level_changed(Time effective, Time reach) {
  switches_.front().answer(effective, reach);
  switches_.erase(switches_.begin());
}

}  // namespace troupe::events
