#include <troupe/cluster/node/eager_service.hpp>

#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include <troupe/cluster/node/eager_limits.hpp>
#include <troupe/cluster/node/request_use.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/devices/list/list.hpp>

namespace troupe {
namespace {

using What = EagerStep::What;

// Names of plans: the owner's own plans have smaller numbers.
constexpr std::uint64_t kPlans = std::uint64_t{1} << 48;

[[noreturn]] void refuse(const std::string& what) { throw Error(Code::data_loss, what); }

void describe(const Value& value, std::vector<EagerSpec>& all) {
  if (!value.has_value()) {
    all.push_back({{}, EagerSpec::kUnwritten});
    return;
  }
  all.push_back({spec_of_value(value), value.is_list() ? value.list().length() : 0});
  if (!value.is_list()) return;
  const List& list = value.list();
  for (std::int64_t i = 0; i < list.length(); ++i) describe(list.peek(i), all);
}

}  // namespace

/// A program of the other node. Guarded by the session's lock until it is made.
struct EagerService::Program {
  std::uint64_t batch = 0, bytes = 0;
  bool is_made = false;
  std::shared_ptr<CompiledPlan> compiled;  // null: `refusal` has the reason
  Status refusal;
  std::set<std::uint64_t> waiting;  // streams
};

/// A value, which its step fills once. Guarded likewise until then.
struct EagerService::Slot {
  bool is_filled = false;
  Value value;
  std::uint64_t cause = 0;          // the call that failed, instead of a value
  std::set<std::uint64_t> waiting;  // streams
};

/// A step whose names are resolved. It belongs to the function that runs it.
struct EagerService::Work {
  EagerStep step;
  std::uint64_t batch = 0;
  std::shared_ptr<Program> program;
  std::shared_ptr<Slot> of;
  std::vector<std::shared_ptr<Slot>> in, out;  // null: an element that was never written
};

struct EagerService::Stream {
  std::deque<Work> work;
  bool is_running = false, is_ended = false;
  Ref<Run> run;  // under way, or the last
};

class EagerService::Session {
 public:
  Session(Peer from, std::uint64_t of) : peer(from), owner(of) {}

  struct Batch {
    std::size_t left = 0;
    std::uint64_t bytes = 0;
  };

  const Peer peer;
  const std::uint64_t owner;
  std::mutex mutex;  // guards everything below
  bool is_over = false;
  RequestUse use;
  std::unordered_map<std::uint64_t, std::shared_ptr<Slot>> values;
  std::map<std::uint64_t, std::shared_ptr<Program>> programs;
  std::map<std::uint64_t, Stream> streams;
  std::map<std::uint64_t, Batch> batches;

  void take_room(std::uint64_t batch, std::size_t steps, std::uint64_t bytes,
                 const EarlyLimits& limits) {
    if (!use.has_room(bytes, limits))
      throw Error(Code::resource_exhausted,
                  "more eager work of the peer waits here than NodeOptions::early permits");
    if (batch == 0 || !batches.emplace(batch, Batch{steps, bytes}).second)
      refuse("a batch of eager steps whose number is taken");
    use.add(bytes);
  }

  /// Returns the work of a step, with what it names.
  Work resolved(EagerStep&& step, std::uint64_t batch) {
    Work work;
    work.batch = batch;
    switch (step.what) {
      case What::put:
        if (!step.value.has_value()) refuse("an eager value of nothing");
        fill(*made(step.of), std::move(step.value), 0);
        break;
      case What::pack:
        if (!step.list.is_list()) refuse("an eager list that is none");
        for (const std::uint64_t id : step.in) work.in.push_back(id != 0 ? known(id) : nullptr);
        work.of = made(step.of);
        break;
      case What::unpack:
        work.of = known(step.of);
        for (const std::uint64_t id : step.out) work.out.push_back(id != 0 ? made(id) : nullptr);
        break;
      case What::call: {
        const auto program = programs.find(step.of);
        if (program == programs.end()) refuse("a call of an eager program that is not there");
        work.program = program->second;
        for (const std::uint64_t id : step.in) work.in.push_back(known(id));
        for (const std::uint64_t id : step.out) work.out.push_back(made(id));
        break;
      }
      case What::read: work.of = known(step.of); break;
      case What::release:
        known(step.of);
        values.erase(step.of);
        break;
      case What::drop:
        if (programs.erase(step.of) == 0) refuse("an eager program that is dropped and not there");
        break;
      case What::end: break;
    }
    work.step = std::move(step);
    return work;
  }

  /// Counts a step of the batch that is done; true for the last.
  bool is_last(std::uint64_t batch) {
    const auto of = batches.find(batch);
    if (--of->second.left > 0) return false;
    use.remove(of->second.bytes);
    batches.erase(of);
    return true;
  }

  /// Returns the streams that waited for the slot.
  static std::set<std::uint64_t> fill(Slot& slot, Value value, std::uint64_t cause) {
    slot.value = std::move(value);
    slot.cause = cause;
    slot.is_filled = true;
    return std::exchange(slot.waiting, {});
  }

 private:
  std::shared_ptr<Slot> known(std::uint64_t id) const {
    const auto it = values.find(id);
    if (it == values.end()) refuse("an eager value that is not there");
    return it->second;
  }
  std::shared_ptr<Slot> made(std::uint64_t id) {
    if (id == 0) refuse("an eager value without a number");
    if (values.size() >= EagerLimits::kValues)
      throw Error(Code::resource_exhausted, "the peer keeps too many eager values here");
    auto [it, is_new] = values.emplace(id, std::make_shared<Slot>());
    if (!is_new) refuse("an eager value whose number is taken");
    return it->second;
  }
};

EagerService::~EagerService() = default;

EagerService::SessionRef EagerService::session_of(Peer from, std::uint64_t owner) {
  std::lock_guard lock(mutex_);
  // a session that has ended is gone from the view before `lost` looks for it here
  if (is_closed_ || !node_.view.has_session(from))
    throw Error(Code::unavailable, "the session with the peer has ended");
  SessionRef& session = sessions_[from];
  if (!session) session = std::make_shared<Session>(from, owner);
  return session;
}

// ---- programs

void EagerService::make(Peer from, std::uint64_t owner, EagerProgram&& m, std::uint64_t bytes) {
  const SessionRef session = session_of(from, owner);
  auto program = std::make_shared<Program>();
  program->batch = m.batch;
  {
    std::lock_guard lock(session->mutex);
    session->take_room(m.batch, 1, bytes, node_.limits);
    if (session->programs.size() >= EagerLimits::kPrograms)
      throw Error(Code::resource_exhausted, "the peer keeps too many eager programs here");
    if (!session->programs.emplace(m.number, program).second)
      refuse("an eager program whose number is taken");
  }
  node_.quota.run_later(
      [this, session, program, kept = std::make_shared<EagerProgram>(std::move(m))] {
        make_program(session, program, *kept);
      });
}

void EagerService::make_program(const SessionRef& session, const std::shared_ptr<Program>& program,
                                EagerProgram& m) {
  std::shared_ptr<CompiledPlan> compiled;
  Status refusal;
  try {
    Placed placed;
    MessageReader reader(m.program);
    troupe::read(reader, placed, node_.self.name);
    reader.end();
    for (const std::string& device : placed.device)
      if (node_of(device) != node_.self.name || placed.part)
        refuse("an eager program of which a part is on another node");
    const std::optional<NodeId> owner = node_.view.session(session->peer);
    if (!owner) return;
    compiled = node_.engine.take_part(std::move(placed), m.call_depth,
                                      {owner->name, kPlans + m.number, owner->incarnation},
                                      states_.states_for(owner->incarnation, m.container).store);
  } catch (...) { refusal = Status::from_current_exception(); }
  std::set<std::uint64_t> waiting;
  {
    std::lock_guard lock(session->mutex);
    if (session->is_over) return;
    program->compiled = std::move(compiled);
    program->refusal = std::move(refusal);
    program->is_made = true;
    waiting = std::exchange(program->waiting, {});
  }
  Work made;
  made.batch = program->batch;
  done(session, made, {});
  for (const std::uint64_t stream : waiting) advance(session, stream);
}

// ---- steps

void EagerService::handle(Peer from, std::uint64_t owner, EagerSteps&& m, std::uint64_t bytes) {
  if (m.steps.empty()) refuse("a batch of no eager steps");
  const SessionRef session = session_of(from, owner);
  std::set<std::uint64_t> streams;
  bool is_done = false;
  {
    std::lock_guard lock(session->mutex);
    if (session->is_over) return;
    session->take_room(m.batch, m.steps.size(), bytes, node_.limits);
    for (EagerStep& step : m.steps) {
      const std::uint64_t number = step.stream;
      const What what = step.what;
      Work work = session->resolved(std::move(step), m.batch);
      // names alone are done: what waits keeps what it uses
      if (what == What::put || what == What::release || what == What::drop) {
        is_done = session->is_last(m.batch);
        continue;
      }
      if (number == 0) refuse("an eager step of no stream");
      if (session->streams.size() >= EagerLimits::kStreams && !session->streams.contains(number))
        throw Error(Code::resource_exhausted, "the peer has too many eager streams here");
      Stream& stream = session->streams[number];
      if (stream.is_ended) refuse("a step of an eager stream that has ended");
      streams.insert(number);
      if (what == What::end) {
        stream.is_ended = true;
        is_done = session->is_last(m.batch);
      } else {
        stream.work.push_back(std::move(work));
      }
    }
  }
  for (const std::uint64_t stream : streams) later(session, stream);
  if (is_done) send_results(session, m.batch, {});
}

// Lets the stream go on, on the request worker, unless the session is over.
void EagerService::later(const SessionRef& session, std::uint64_t stream) {
  std::lock_guard lock(session->mutex);
  if (!session->is_over)
    node_.quota.run_later([this, session, stream] { advance(session, stream); });
}

// Runs steps of a stream until one waits or goes on by itself.
void EagerService::advance(const SessionRef& session, std::uint64_t number) {
  for (;;) {
    Work work;
    {
      std::lock_guard lock(session->mutex);
      const auto stream = session->streams.find(number);
      if (session->is_over || stream == session->streams.end()) return;
      Stream& s = stream->second;
      if (s.is_running) return;
      if (s.work.empty()) {
        if (s.is_ended) session->streams.erase(stream);
        return;
      }
      Work& next = s.work.front();
      const auto waits_for = [&](const std::shared_ptr<Slot>& slot) {
        if (!slot || slot->is_filled) return false;
        slot->waiting.insert(number);
        return true;
      };
      bool waits = next.step.what != What::pack && waits_for(next.of);
      for (const auto& slot : next.in) waits = waits || waits_for(slot);
      if (!waits && next.program && !next.program->is_made) {
        next.program->waiting.insert(number);
        waits = true;
      }
      if (waits) return;
      work = std::move(next);
      s.work.pop_front();
      s.is_running = true;
    }
    if (work.step.what == What::call) return call(session, std::move(work));
    if (work.step.what == What::read) return read(session, std::move(work));
    if (!rearrange(session, work)) {  // a list of another length, or no list
      node_.transport.disconnect(session->peer,
                                 Status(Code::data_loss, "an eager list that is not what it said"));
      return;
    }
    done(session, work, {});
  }
}

// Packs or unpacks a list. Returns false if the step does not fit its values.
bool EagerService::rearrange(const SessionRef& session, Work& work) {
  std::set<std::uint64_t> waiting;
  const auto fill = [&](Slot& slot, Value value, std::uint64_t cause) {
    waiting.merge(Session::fill(slot, std::move(value), cause));
  };
  {
    std::lock_guard lock(session->mutex);
    if (work.step.what == What::pack) {
      const ValueSpec& spec = work.step.list;
      List list(spec.dtype, spec.shape, spec.depth);
      std::uint64_t cause = 0;
      try {
        list.grow(static_cast<std::int64_t>(work.in.size()));
        for (std::size_t i = 0; i < work.in.size(); ++i) {
          if (!work.in[i]) continue;
          if (work.in[i]->cause != 0) cause = work.in[i]->cause;
          else list.put(static_cast<std::int64_t>(i), work.in[i]->value);
        }
      } catch (const Error&) { return false; }
      fill(*work.of, cause != 0 ? Value() : Value(std::move(list)), cause);
    } else {
      const Slot& of = *work.of;
      const bool is_list = of.cause == 0 && of.value.is_list();
      if (of.cause == 0 && !is_list) return false;
      if (is_list && of.value.list().length() != static_cast<std::int64_t>(work.out.size()))
        return false;
      for (std::size_t i = 0; i < work.out.size(); ++i) {
        if (!work.out[i]) continue;
        Value element;
        if (is_list) element = of.value.list().read(static_cast<std::int64_t>(i));
        if (is_list && !element.has_value()) return false;
        fill(*work.out[i], std::move(element), of.cause);
      }
    }
  }
  for (const std::uint64_t stream : waiting) later(session, stream);
  return true;
}

// ---- calls

void EagerService::call(const SessionRef& session, Work&& work) {
  const auto failed = [&](const Status& status) {
    called(session, work, status, {});
    later(session, work.step.stream);
  };
  for (const auto& slot : work.in)
    if (slot->cause != 0)
      return failed(Status(Code::aborted, "one of its inputs was not computed"));
  const Program& program = *work.program;
  if (!program.compiled) return failed(program.refusal);
  const Plan& plan = *program.compiled->troupe.plan;
  std::vector<Tensor> feeds(work.in.size());
  bool fit = feeds.size() == plan.feeds.size() &&
             work.out.size() == static_cast<std::size_t>(plan.fetches);
  for (std::size_t i = 0; fit && i < feeds.size(); ++i) {
    fit = fits(work.in[i]->value, plan.feeds[i]);
    static_cast<Value&>(feeds[i]) = work.in[i]->value;
  }
  if (!fit) return failed(Status(Code::invalid_argument, "its inputs do not fit its program"));
  const RunKey key{session->owner, work.step.number};
  const std::uint64_t stream = work.step.stream, step = work.step.step, seed = work.step.seed;
  auto shared = std::make_shared<Work>(std::move(work));
  Ref<Run> run;
  try {
    run = node_.engine.begin_part(
        program.compiled, key, key.number, step, seed, std::move(feeds),
        [this, session, shared](Run& ended) {
          // it is enough that the run is poisoned: work that was skipped since is no result
          const Status status = ended.is_poisoned() ? ended.status() : Status();
          called(session, *shared, status,
                 status.ok() ? ended.take_fetches() : std::vector<Tensor>());
          later(session, shared->step.stream);
        });
  } catch (...) {  // it is shutting down, or has no memory
    called(session, *shared, Status::from_current_exception(), {});
    return later(session, stream);
  }
  bool is_over = false;
  {
    std::lock_guard lock(session->mutex);
    const auto of = session->streams.find(stream);
    is_over = session->is_over || of == session->streams.end();
    if (!is_over) of->second.run = run;
  }
  if (is_over) node_.engine.fail(*run, Status(Code::cancelled, "its node was lost"));
  for (const auto& partition : shared->program->compiled->troupe.partitions)
    if (partition && !partition->send(StartRun{run})) {
      node_.engine.fail(*run, Status(Code::internal, "a partition of its program has ended"));
      run->leave();
    }
}

void EagerService::called(const SessionRef& session, Work& work, const Status& status,
                          std::vector<Tensor>&& results) {
  EagerResult result;
  result.number = work.step.number;
  std::set<std::uint64_t> waiting;
  {
    std::lock_guard lock(session->mutex);
    if (session->is_over) return;
    if (!status.ok()) {
      result.cause = work.step.number;
      for (const auto& slot : work.in)
        if (slot->cause != 0) result.cause = slot->cause;
      if (result.cause == result.number) result.status = status;
    }
    for (std::size_t i = 0; i < work.out.size(); ++i) {
      Value value;
      if (status.ok()) value = std::move(static_cast<Value&>(results[i]));
      if (work.step.is_told && status.ok()) describe(value, result.told);
      waiting.merge(Session::fill(*work.out[i], std::move(value), result.cause));
    }
  }
  // a failure that only results carry on is told when one of them is read
  const bool is_new = result.cause == result.number;
  std::vector<EagerResult> told;
  if (work.step.is_told || is_new || (result.cause != 0 && work.step.acts))
    told.push_back(std::move(result));
  done(session, work, std::move(told));
  for (const std::uint64_t stream : waiting) later(session, stream);
}

void EagerService::read(const SessionRef& session, Work&& work) {
  auto shared = std::make_shared<Work>(std::move(work));
  const auto answer = [this, session, shared]() -> std::optional<Answer> {
    EagerResult result;
    result.number = shared->step.number;
    {
      std::lock_guard lock(session->mutex);
      result.cause = shared->of->cause;
      result.value = shared->of->value;
    }
    std::vector<EagerResult> results;
    results.push_back(std::move(result));
    done(session, *shared, std::move(results));
    later(session, shared->step.stream);
    return std::nullopt;
  };
  try {
    node_.quota.submit(session->peer, 0, answer);  // waits while the peer leaves answers unread
  } catch (...) { node_.transport.disconnect(session->peer, Status::from_current_exception()); }
}

// Ends a step: its stream may go on, and its batch may be done.
void EagerService::done(const SessionRef& session, const Work& work,
                        std::vector<EagerResult> results) {
  std::uint64_t batch = 0;
  {
    std::lock_guard lock(session->mutex);
    if (session->is_over) return;
    const auto stream = session->streams.find(work.step.stream);
    if (stream != session->streams.end()) {
      stream->second.is_running = false;
      stream->second.run = {};
    }
    if (session->is_last(work.batch)) batch = work.batch;
  }
  if (batch != 0 || !results.empty()) send_results(session, batch, std::move(results));
}

void EagerService::send_results(const SessionRef& session, std::uint64_t batch,
                                std::vector<EagerResult> results) {
  node_.quota.reply(session->peer, EagerResults{batch, std::move(results)});
}

// ---- the end of sessions

void EagerService::lost(Peer peer) {
  SessionRef session;
  {
    std::lock_guard lock(mutex_);
    const auto it = sessions_.find(peer);
    if (it == sessions_.end()) return;
    session = std::move(it->second);
    sessions_.erase(it);
  }
  std::map<std::uint64_t, Stream> streams;
  std::unordered_map<std::uint64_t, std::shared_ptr<Slot>> values;
  std::map<std::uint64_t, std::shared_ptr<Program>> programs;
  {
    std::lock_guard lock(session->mutex);
    session->is_over = true;
    streams.swap(session->streams);
    values.swap(session->values);
    programs.swap(session->programs);
  }
  for (const auto& [number, stream] : streams)
    if (stream.run) node_.engine.fail(*stream.run, Status(Code::cancelled, "its node was lost"));
}

void EagerService::close() {
  std::vector<Peer> all;
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    for (const auto& [peer, session] : sessions_) all.push_back(peer);
  }
  for (const Peer peer : all) lost(peer);
}

std::size_t EagerService::values() {
  std::lock_guard lock(mutex_);
  std::size_t all = 0;
  for (const auto& [peer, session] : sessions_) {
    std::lock_guard of_session(session->mutex);
    all += session->values.size();
  }
  return all;
}

}  // namespace troupe
