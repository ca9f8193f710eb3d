#include <troupe/cluster/node/eager_service.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <troupe/cluster/node/eager_session.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/devices/list/list.hpp>
#include <troupe/devices/list/list_walk.hpp>

namespace troupe {
namespace {

using StepKind = EagerStep::Kind;

// Names of plans: the owner's own plans have smaller numbers.
constexpr std::uint64_t kPlans = std::uint64_t{1} << 48;

// Calls f for the value and, if it is a list, for all within it, until f returns false. Open lists
// are kept on the heap, because a peer decides how deep they nest.
template <class F>
bool each_value(const Value& value, const F& f) {
  struct Open {
    List list;
    std::int64_t next;
  };
  std::vector<Open> open;
  const auto visit = [&](Value v) {
    if (!f(v)) return false;
    if (v.is_list()) open.push_back({std::move(v.list()), 0});
    return true;
  };
  if (!visit(value)) return false;
  while (!open.empty()) {
    Open& top = open.back();
    if (top.next == top.list.length()) open.pop_back();
    else if (!visit(top.list.peek(top.next++))) return false;
  }
  return true;
}

EagerSpec described(const Value& value) {
  if (!value.has_value()) return {{}, EagerSpec::kUnwritten};
  return {spec_of_value(value), value.is_list() ? value.list().length() : 0};
}

}  // namespace

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
      Session::refuse("an eager program whose number is taken");
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
    if (is_draining_.load(std::memory_order_relaxed))
      throw Error(Code::unavailable,
                  "it is being drained and takes no new eager programs; compute on another node");
    Placed placed;
    MessageReader reader(m.program);
    troupe::read(reader, placed, node_.self.name);
    reader.end();
    for (const std::string& device : placed.device)
      if (node_of(device) != node_.self.name || placed.part)
        Session::refuse("an eager program of which a part is on another node");
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
  if (m.steps.empty()) Session::refuse("a batch of no eager steps");
  const SessionRef session = session_of(from, owner);
  static_assert(sizeof(Work) <= EagerLimits::kStepBytes);
  const std::uint64_t memory = bytes + memory_of(m.steps);
  std::set<std::uint64_t> streams;
  bool is_done = false;
  {
    std::lock_guard lock(session->mutex);
    if (session->is_over) return;
    session->take_room(m.batch, m.steps.size(), memory, node_.limits);
    for (EagerStep& step : m.steps) {
      const std::uint64_t number = step.stream;
      const StepKind kind = step.kind;
      Work work = session->resolved(std::move(step), m.batch);
      // names alone are done: what waits keeps what it uses
      if (kind == StepKind::put || kind == StepKind::release || kind == StepKind::drop) {
        is_done = session->is_last(m.batch);
        continue;
      }
      if (number == 0) Session::refuse("an eager step of no stream");
      const auto [of, is_new] = session->streams.try_emplace(number);
      if (is_new && ++session->open_streams > EagerLimits::kStreams)
        throw Error(Code::resource_exhausted, "the peer has too many eager streams here");
      Stream& stream = of->second;
      if (stream.is_ended) Session::refuse("a step of an eager stream that has ended");
      streams.insert(number);
      if (kind == StepKind::end) {
        stream.is_ended = true;
        --session->open_streams;
        is_done = session->is_last(m.batch);
      } else {
        stream.work.push_back(std::move(work));
      }
    }
  }
  for (const std::uint64_t stream : streams) later(session, stream);
  if (is_done) send_results(session, m.batch, {});
}

// Runs a job on the request worker, unless the session is over.
void EagerService::post(const SessionRef& session, std::function<void()> job) {
  std::lock_guard lock(session->mutex);
  if (!session->is_over) node_.quota.run_later(std::move(job));
}

// Lets the stream go on, on the request worker.
void EagerService::later(const SessionRef& session, std::uint64_t stream) {
  post(session, [this, session, stream] { advance(session, stream); });
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
      bool waits = next.step.kind != StepKind::pack && waits_for(next.of);
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
    if (work.step.kind == StepKind::call)
      return call(session, std::make_shared<Work>(std::move(work)));
    if (work.step.kind == StepKind::read)
      return answer(session, std::make_shared<Work>(std::move(work)), true);
    if (!rearrange(session, work)) {  // a list of another length, or no list
      node_.transport.disconnect(
          session->peer,
          Status(Code::data_loss, "an eager list that differs from its description"));
      return;
    }
    done(session, work, {});
  }
}

// Packs or unpacks a list. Returns false if the step does not fit its values.
bool EagerService::rearrange(const SessionRef& session, Work& work) {
  // without the lock: what has been filled stays as it is
  std::vector<std::pair<Slot*, Value>> filled;
  std::uint64_t cause = 0;
  if (work.step.kind == StepKind::pack) {
    const ValueSpec& spec = work.step.list;
    List list(spec.dtype, spec.shape, spec.depth);
    try {
      list.grow(static_cast<std::int64_t>(work.in.size()));
      for (std::size_t i = 0; i < work.in.size(); ++i) {
        if (!work.in[i]) continue;
        if (work.in[i]->cause != 0) cause = work.in[i]->cause;
        else list.put(static_cast<std::int64_t>(i), work.in[i]->value);
      }
    } catch (const Error&) { return false; }
    filled.emplace_back(work.of.get(), cause != 0 ? Value() : Value(std::move(list)));
  } else {
    const Value of = work.of->value;  // a handle of this thread
    cause = work.of->cause;
    if (cause == 0 &&
        (!of.is_list() || of.list().length() != static_cast<std::int64_t>(work.out.size())))
      return false;
    for (std::size_t i = 0; i < work.out.size(); ++i) {
      if (!work.out[i]) continue;
      Value element;
      if (cause == 0) element = of.list().read(static_cast<std::int64_t>(i));
      if (cause == 0 && !element.has_value()) return false;
      filled.emplace_back(work.out[i].get(), std::move(element));
    }
  }
  std::set<std::uint64_t> waiting;
  {
    std::lock_guard lock(session->mutex);
    for (auto& [slot, value] : filled) waiting.merge(Session::fill(*slot, std::move(value), cause));
  }
  for (const std::uint64_t stream : waiting) later(session, stream);
  return true;
}

// ---- calls

void EagerService::call(const SessionRef& session, const WorkRef& work) {
  const std::uint64_t stream = work->step.stream;
  const auto failed = [&](const Status& status) {
    called(session, work, status, {});
    later(session, stream);
  };
  for (const auto& slot : work->in)
    if (slot->cause != 0)
      return failed(Status(Code::aborted, "one of its inputs was not computed"));
  const Program& program = *work->program;
  if (!program.compiled) return failed(program.refusal);
  const Plan& plan = *program.compiled->troupe.plan;
  std::vector<Tensor> feeds(work->in.size());
  bool fit = feeds.size() == plan.feeds.size() &&
             work->out.size() == static_cast<std::size_t>(plan.fetches);
  for (std::size_t i = 0; fit && i < feeds.size(); ++i) {
    fit = fits(work->in[i]->value, plan.feeds[i]);
    static_cast<Value&>(feeds[i]) = work->in[i]->value;
  }
  if (!fit) return failed(Status(Code::invalid_argument, "its inputs do not fit its program"));
  const RunKey key{session->owner, work->step.number};
  Ref<Run> run;
  try {
    run = node_.engine.begin_part(
        program.compiled, key, key.number, work->step.step, work->step.seed, std::move(feeds),
        [this, session, work](Run& ended) {
          // it is enough that the run is poisoned: work that was skipped since is no result
          const Status status = ended.is_poisoned() ? ended.status() : Status();
          auto results = std::make_shared<std::vector<Tensor>>();
          if (status.ok()) *results = ended.take_fetches();
          const auto is_list = [](const Tensor& t) { return t.is_list(); };
          if (std::any_of(results->begin(), results->end(), is_list))
            return post(session, [this, session, work, results] {
              bring(session, work, std::move(*results));
            });
          called(session, work, status, std::move(*results));
          later(session, work->step.stream);
        });
  } catch (...) { return failed(Status::from_current_exception()); }  // it is shutting down
  bool is_over = false;
  {
    std::lock_guard lock(session->mutex);
    const auto of = session->streams.find(stream);
    is_over = session->is_over || of == session->streams.end();
    if (!is_over) of->second.run = run;
  }
  if (is_over) node_.engine.fail(*run, Status(Code::cancelled, "its node was lost"));
  for (const auto& partition : work->program->compiled->troupe.partitions)
    if (partition && !partition->send(StartRun{run})) {
      node_.engine.fail(*run, Status(Code::internal, "a partition of its program has ended"));
      run->leave();
    }
}

// On the request worker: starts copies of what the lists among the results have on devices.
void EagerService::bring(const SessionRef& session, const WorkRef& work,
                         std::vector<Tensor>&& results) {
  const auto copies = std::make_shared<Copies>();
  std::map<Device*, std::unique_ptr<detail::Stream>> streams;
  try {
    for (Tensor& result : results) {
      if (!result.is_list()) continue;
      // elements that were swapped out are on the host
      static_cast<Value&>(result) =
          with_tensors(result, nullptr, [](const Tensor& t) { return t; });
      each_tensor(result, [&](const Tensor& t) {
        if (t.is_on_host()) return;
        Device& device = *t.device();
        std::unique_ptr<detail::Stream>& stream = streams[&device];
        if (!stream) stream = device.compute_stream();
        // a host scalar has no address to copy to
        Tensor host = device.host_empty(t.dtype(), t.shape().is_scalar() ? Shape{1} : t.shape());
        device.copy_to_host(*stream, t, View(host));
        copies->hosts.push_back(std::move(host));
      });
    }
  } catch (...) { copies->status = Status::from_current_exception(); }
  copies->results = std::move(results);
  if (streams.empty()) return brought(session, work, *copies);
  copies->left = streams.size();
  for (const auto& [device, stream] : streams)
    stream->record()->then([this, session, work, copies](const Status& status) {
      if (!status.ok()) {
        std::lock_guard lock(copies->mutex);
        copies->status = status;
      }
      if (copies->left.fetch_sub(1, std::memory_order_acq_rel) == 1)
        post(session, [this, session, work, copies] { brought(session, work, *copies); });
    });
}

// On the request worker: ends a call whose results are on the host.
void EagerService::brought(const SessionRef& session, const WorkRef& work, Copies& copies) {
  Status status = copies.status;
  try {
    std::size_t values = 0;
    auto host = copies.hosts.begin();
    for (Tensor& result : copies.results) {
      if (!status.ok()) break;
      if (!result.is_list()) continue;
      static_cast<Value&>(result) = with_tensors(result, nullptr, [&](const Tensor& t) {
        return t.is_on_host() ? t : (host++)->reshaped(t.shape());
      });
      // a list that lies in several lists is counted in each, as it is told
      if (!each_value(result, [&](const Value&) { return ++values <= EagerLimits::kValues; }))
        status = Status(Code::resource_exhausted, "its lists hold more values than a node keeps");
    }
  } catch (...) { status = Status::from_current_exception(); }
  called(session, work, status, status.ok() ? std::move(copies.results) : std::vector<Tensor>());
  later(session, work->step.stream);
}

void EagerService::called(const SessionRef& session, const WorkRef& work, const Status& status,
                          std::vector<Tensor>&& results) {
  EagerResult result;
  result.number = work->step.number;
  std::set<std::uint64_t> waiting;
  {
    std::lock_guard lock(session->mutex);
    if (session->is_over) return;
    if (!status.ok()) {
      result.cause = work->step.number;
      for (const auto& slot : work->in)
        if (slot->cause != 0) result.cause = slot->cause;
      if (result.cause == result.number) result.status = status;
    }
    for (std::size_t i = 0; i < work->out.size(); ++i) {
      Value value;
      if (status.ok()) value = std::move(static_cast<Value&>(results[i]));
      waiting.merge(Session::fill(*work->out[i], std::move(value), result.cause));
    }
  }
  if (status.ok() && work->step.is_told) {
    answer(session, work, false);
  } else {
    // a failure that only results carry on is told when one of them is read
    const bool is_new = result.cause == result.number;
    std::vector<EagerResult> told;
    if (work->step.is_told || is_new || (result.cause != 0 && work->step.acts))
      told.push_back(std::move(result));
    done(session, *work, std::move(told));
  }
  for (const std::uint64_t stream : waiting) later(session, stream);
}

// Sends the value that is read, or tells of the results of a call, which may be as long. Waits
// while the peer leaves answers unread.
void EagerService::answer(const SessionRef& session, const WorkRef& work, bool is_read) {
  const auto send = [this, session, work, is_read]() -> std::optional<Answer> {
    EagerResult result;
    result.number = work->step.number;
    // without the lock: what has been filled stays as it is
    if (is_read) {
      result.cause = work->of->cause;
      result.value = work->of->value;
    } else {
      for (const auto& slot : work->out)
        each_value(slot->value, [&](const Value& value) {
          result.told.push_back(described(value));
          return true;
        });
    }
    std::vector<EagerResult> results;
    results.push_back(std::move(result));
    done(session, *work, std::move(results));
    later(session, work->step.stream);
    return std::nullopt;
  };
  Status refusal;
  try {
    std::lock_guard lock(session->mutex);
    if (!session->is_over) node_.quota.submit(session->peer, 0, send);
  } catch (...) { refusal = Status::from_current_exception(); }
  if (!refusal.ok()) node_.transport.disconnect(session->peer, refusal);
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
  EagerResults m{batch, std::move(results)};
  try {
    node_.quota.reply(session->peer, m);
  } catch (...) {  // a value that cannot be sent
    const Status why = Status::from_current_exception();
    for (EagerResult& r : m.results) r = {r.number, why, r.number, {}, {}};
    node_.quota.reply(session->peer, m);
  }
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
