#include <troupe/actors/runtime/user_actor.hpp>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <variant>

#include <fmt/format.h>
#include <caf/send.hpp>
#include <caf/system_messages.hpp>

#include <troupe/actors/runtime/clock.hpp>
#include <troupe/actors/runtime/lean_actor.hpp>
#include <troupe/ops/graph/saved_actor.hpp>

namespace troupe {
namespace {

// A firing, or a visit (VisitedActor), in the order in which they came.
struct ActorFiring {
  std::uint64_t run_id = 0;
  std::vector<Value> inputs;
  Completion completion;
  VisitedActor::Use use = {};  // a visit's
  VisitedActor::Done done = {};

  bool is_visit() const { return static_cast<bool>(done); }
  void fail(Status status) {
    if (is_visit()) done(status);
    else completion.fail(std::move(status));
  }
};
struct Done {
  bool is_visit = false;
  bool failed = false;  // set by an actor on its own thread; an actor on a worker ends instead
};
struct CancelFirings {
  std::uint64_t run_id;
  Status status;
};
using SupervisorMessage = std::variant<ActorFiring, Done, CancelFirings>;

// While the user's code runs: one thread at a time.
class Stay {
 public:
  Stay(AtWork& at_work, std::uint64_t run) : at_work_(at_work), since_(steady_ns()) {
    at_work_.run.store(run, std::memory_order_relaxed);
    at_work_.since_ns.store(since_, std::memory_order_relaxed);
  }
  ~Stay() {
    at_work_.longest_ns.store(
        std::max(at_work_.longest_ns.load(std::memory_order_relaxed), steady_ns() - since_),
        std::memory_order_relaxed);
    at_work_.since_ns.store(0, std::memory_order_relaxed);
  }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  AtWork& at_work_;
  const std::int64_t since_;
};

// Runs one firing; false, with the completion failed, if the actor threw.
bool fire(NodeActor& actor, const StateSpec& spec, AtWork& at_work, ActorFiring& firing) {
  if (firing.is_visit()) {
    Status status;
    try {
      const Stay stay(at_work, firing.run_id);
      firing.use(actor);
    } catch (...) { status = Status::from_current_exception(); }
    firing.done(status);
    return true;
  }
  std::vector<Value> outputs;
  try {
    const Stay stay(at_work, firing.run_id);
    outputs = fire_actor(actor, spec.name, spec.values, std::move(firing.inputs));
  } catch (...) {
    firing.completion.fail(Status::from_current_exception());
    return false;
  }
  firing.completion.fulfil(outputs);
  return true;
}

class Supervisor;

// The actor on a worker.
class UserActor final : public LeanActor<ActorFiring> {
 public:
  UserActor(caf::actor_config& config, const StateSpec& spec, AtWork& at_work,
            LeanRef<Supervisor> supervisor);
  const char* name() const override { return "user_actor"; }

 protected:
  void receive(ActorFiring& firing) override;

 private:
  const StateSpec& spec_;
  AtWork& at_work_;  // the supervisor's, as spec_ is
  LeanRef<Supervisor> supervisor_;
  std::unique_ptr<NodeActor> actor_;
};

// The actor on a thread of its own. Protocol: one firing at a time goes in by `start`, Done comes
// back.
class OwnThread {
 public:
  OwnThread(const StateSpec& spec, AtWork& at_work, std::function<void(Done)> done)
      : spec_(spec), at_work_(at_work), done_(std::move(done)), thread_([this] { live(); }) {}
  ~OwnThread() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void start(ActorFiring firing) {
    {
      std::lock_guard lock(mutex_);
      next_ = std::move(firing);
      has_next_ = true;
    }
    changed_.notify_one();
  }

 private:
  void live() {
    std::unique_ptr<NodeActor> actor;
    for (;;) {
      ActorFiring firing;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return has_next_ || closing_; });
        if (closing_) return;
        firing = std::move(next_);
        has_next_ = false;
      }
      bool ok = true;
      try {
        const Stay stay(at_work_, firing.run_id);
        if (!actor) actor = make_actor(spec_.name, *spec_.actor);
      } catch (...) {
        firing.fail(Status::from_current_exception());
        ok = false;
      }
      ok = ok && fire(*actor, spec_, at_work_, firing);
      if (!ok) actor.reset();
      done_({firing.is_visit(), !ok});
    }
  }

  const StateSpec& spec_;
  AtWork& at_work_;
  std::function<void(Done)> done_;
  std::mutex mutex_;  // guards next_, has_next_, closing_
  std::condition_variable changed_;
  ActorFiring next_;
  bool has_next_ = false;
  bool closing_ = false;
  std::thread thread_;  // last: it uses the others
};

class Supervisor final : public LeanActor<SupervisorMessage> {
 public:
  Supervisor(caf::actor_config& config, StateSpec spec, bool has_threads,
             std::shared_ptr<AtWork> at_work)
      : LeanActor(config), spec_(std::move(spec)), at_work_(std::move(at_work)),
        needs_thread_(spec_.actor->options.blocks && has_threads) {}
  const char* name() const override { return "supervisor"; }

 protected:
  void receive(SupervisorMessage& message) override {
    if (auto* firing = std::get_if<ActorFiring>(&message)) {
      waiting_.push_back(std::move(*firing));
    } else if (auto* outcome = std::get_if<Done>(&message)) {
      busy_ = false;
      if (outcome->failed) ++failures_;
      else if (!outcome->is_visit) failures_ = 0;
    } else {
      auto& cancel = std::get<CancelFirings>(message);
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (it->is_visit() || it->run_id != cancel.run_id) {
          ++it;
          continue;
        }
        it->completion.fail(cancel.status);
        it = waiting_.erase(it);
      }
    }
    next();
  }

  // The actor ended: it threw, or could not be made.
  void receive_control(caf::mailbox_element& element) override {
    if (!element.content().match_elements<caf::down_msg>())
      return LeanActor::receive_control(element);
    actor_ = {};
    busy_ = false;
    ++failures_;
    next();
  }

  void ended(const caf::error&) override {
    for (ActorFiring& f : waiting_) f.fail(Status(Code::aborted, "the engine is shutting down"));
    waiting_.clear();
    actor_ = {};
    own_thread_.reset();  // waits for the user's code to return: it cannot be interrupted
  }

 private:
  void next();

  const StateSpec spec_;
  const std::shared_ptr<AtWork> at_work_;
  const bool needs_thread_;
  std::deque<ActorFiring> waiting_;
  bool busy_ = false;
  int failures_ = 0;  // in a row
  LeanRef<UserActor> actor_;
  std::unique_ptr<OwnThread> own_thread_;
};

UserActor::UserActor(caf::actor_config& config, const StateSpec& spec, AtWork& at_work,
                     LeanRef<Supervisor> supervisor)
    : LeanActor(config), spec_(spec), at_work_(at_work), supervisor_(std::move(supervisor)) {}

void UserActor::receive(ActorFiring& firing) {
  try {
    const Stay stay(at_work_, firing.run_id);
    if (!actor_) actor_ = make_actor(spec_.name, *spec_.actor);
  } catch (...) {
    firing.fail(Status::from_current_exception());
    throw;
  }
  if (!fire(*actor_, spec_, at_work_, firing))
    throw Error(Code::aborted, "the user's actor has failed");
  supervisor_->send(Done{firing.is_visit(), false});
}

void Supervisor::next() {
  while (!busy_ && !waiting_.empty()) {
    ActorFiring firing = std::move(waiting_.front());
    waiting_.pop_front();
    if (failures_ > spec_.actor->options.max_restarts) {
      firing.fail(actor_is_down(spec_.name, failures_));
      continue;
    }
    busy_ = true;
    if (needs_thread_) {
      if (!own_thread_)
        own_thread_ =
            std::make_unique<OwnThread>(spec_, *at_work_, [this](Done end) { send(end); });
      own_thread_->start(std::move(firing));
      continue;
    }
    if (!actor_) {
      actor_ = lean_spawn<UserActor>(home_system(), spec_, *at_work_, LeanRef<Supervisor>(this));
      monitor(actor_.strong());
    }
    actor_->send(std::move(firing));
  }
}

class HostedActor final : public ActorState, public VisitedActor {
 public:
  HostedActor(caf::actor_system& system, const StateSpec& spec, bool has_threads,
              std::shared_ptr<AtWork> at_work)
      : supervisor_(lean_spawn<Supervisor>(system, spec, has_threads, std::move(at_work))) {}
  ~HostedActor() override {
    caf::anon_send_exit(caf::actor_cast<caf::actor>(supervisor_.strong()),
                        caf::exit_reason::user_shutdown);
  }
  void fire(std::uint64_t run_id, std::vector<Value> inputs, Completion completion) override {
    supervisor_->send(ActorFiring{run_id, std::move(inputs), std::move(completion)});
  }
  void visit(Use use, Done done) override {
    supervisor_->send(ActorFiring{0, {}, {}, std::move(use), std::move(done)});
  }
  void cancel(std::uint64_t run_id, const Status& status) override {
    supervisor_->send(CancelFirings{run_id, status});
  }

 private:
  LeanRef<Supervisor> supervisor_;
};

}  // namespace

Ref<State> host_actor(caf::actor_system& system, const StateSpec& spec, bool has_threads,
                      std::shared_ptr<AtWork> at_work) {
  return Ref<State>(new HostedActor(system, spec, has_threads, std::move(at_work)));
}

}  // namespace troupe
