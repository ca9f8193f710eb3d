#include <troupe/actors/runtime/lean_actor.hpp>

#include <troupe/actors/runtime/clock.hpp>
#include <troupe/actors/runtime/scheduler_module.hpp>
#include <troupe/devices/base/spin.hpp>

#include <caf/default_attachable.hpp>
#include <caf/detail/sync_request_bouncer.hpp>
#include <caf/sec.hpp>
#include <caf/system_messages.hpp>

namespace troupe {

struct InboxActor::ControlNode : InboxNode {
  explicit ControlNode(caf::mailbox_element_ptr what) : element(std::move(what)) {
    recycle = [](InboxNode* node) noexcept { delete static_cast<ControlNode*>(node); };
    control = true;
  }
  caf::mailbox_element_ptr element;  // null once it has been dispatched
};

namespace {

/// Answers a request with `unreachable`. Unlike monitorable_actor::bounce it takes no lock, because
/// CAF enqueues exit messages while it holds the receiver's lock.
void refuse(const caf::mailbox_element& element) {
  const caf::detail::sync_request_bouncer bouncer(caf::make_error(caf::exit_reason::unreachable));
  bouncer(element);
}

}  // namespace

InboxActor::InboxActor(caf::actor_config& config)
    : monitorable_actor(config), module_(SchedulerModule::of(home_system())) {}

InboxActor::~InboxActor() = default;

void InboxActor::enqueue(caf::mailbox_element_ptr element, caf::execution_unit*) {
  auto node = std::make_unique<ControlNode>(std::move(element));
  if (push(node.get()) == Inbox::Pushed::closed) refuse(*node->element);
  else node.release();
}

void InboxActor::intrusive_ptr_add_ref_impl() { caf::intrusive_ptr_add_ref(ctrl()); }
void InboxActor::intrusive_ptr_release_impl() { release_actor(ctrl()); }

/// The scheduler holds a reference to an actor that is about to run.
void InboxActor::schedule() {
  caf::intrusive_ptr_add_ref(ctrl());
  if (module_ != nullptr) module_->enqueue(this);
  else home_system().scheduler().enqueue(this);
}

// ---- a turn ------------------------------------------------------------------------------------

caf::resumable::resume_result InboxActor::resume(caf::execution_unit* host,
                                                 std::size_t max_messages) {
  if (getf(is_terminated_flag)) return done;
  constexpr int kTurns = 64;  // a caller in a worker's slot looks between jobs whether it is done
  for (int turn = 0;; ++turn) {
    host_ = host;
    const bool again = handle(max_messages);
    if (over()) {
      cleanup(std::move(quit_reason_), host);
      host_ = nullptr;
      return done;
    }
    host_ = nullptr;
    if (again) return resume_later;
    if (turn < kTurns && linger()) continue;
    // and then another worker may be in resume already
    return inbox_.try_block() ? awaiting_message : resume_later;
  }
}

/// Waits for the next message where the worker has nothing else to do. The message then costs a
/// cache line: no worker is found for the actor, and its data stay where they are. True: one has
/// come.
bool InboxActor::linger() const {
  constexpr std::int64_t kLinger = 3000;  // ns; a worker without work spins ten times as long
  constexpr int kLooks = 16;              // at the inbox, for each at the clock
  const Worker* const worker = Worker::current();
  if (worker == nullptr || worker->pool().size() == 1 || !awaits_soon()) return false;
  const std::int64_t until = steady_ns() + kLinger;
  do
    for (int look = 0; look < kLooks; ++look) {
      if (worker->has_more()) return false;
      if (inbox_.has_new()) return true;
      pause_core();
    }
  while (steady_ns() < until);
  return false;
}

bool InboxActor::take_turn(void (*first)(void*), void* what) {
  if (module_ == nullptr || !inbox_.try_wake()) return false;
  first_ = first;
  first_of_ = what;
  caf::intrusive_ptr_add_ref(ctrl());
  module_->run_here(this);
  return true;
}

/// Handles what has arrived; true if the actor wants its next turn without waiting for a message.
bool InboxActor::handle(std::size_t max_messages) try {
  if (auto* const first = std::exchange(first_, nullptr)) {
    first(first_of_);
    if (over()) return false;
  }
  inbox_.collect();
  for (std::size_t handled = 0; handled < max_messages; ++handled) {
    auto* const node = inbox_.next();
    if (node == nullptr) break;
    struct Done {
      Inbox& inbox;
      InboxNode* node;
      ~Done() { inbox.done(node); }
    } done_with{inbox_, node};
    dispatch(*node);
    if (over()) return false;
  }
  if (inbox_.empty()) return continue_turn();
  break_turn();
  return true;
} catch (...) {
  fail(std::current_exception());
  return false;
}

void InboxActor::dispatch(InboxNode& node) {
  if (!node.control) return deliver(node);
  dispatch_control(static_cast<ControlNode&>(node));
}

void InboxActor::dispatch_control(ControlNode& node) {
  const auto element = std::move(node.element);
  receive_control(*element);
}

void InboxActor::receive_control(caf::mailbox_element& element) {
  if (handle_system_message(element, host_, false)) return;
  reply(element, caf::make_error(caf::sec::unexpected_message));
}

// ---- the end -----------------------------------------------------------------------------------

void InboxActor::quit(caf::error reason) {
  if (std::exchange(quitting_, true)) return;
  quit_reason_ = std::move(reason);
}

void InboxActor::fail(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    quit(caf::make_error(caf::sec::runtime_error, std::string(e.what())));
  } catch (...) {
    quit(caf::make_error(caf::sec::runtime_error, std::string("unknown exception")));
  }
}

void InboxActor::ended(const caf::error&) {}

bool InboxActor::cleanup(caf::error&& reason, caf::execution_unit* host) {
  if (getf(is_cleaned_up_flag)) return false;
  ended(reason);
  inbox_.close();
  discard_waiting();
  return monitorable_actor::cleanup(std::move(reason), host);
}

void InboxActor::discard_waiting() {
  while (auto* const node = inbox_.next()) {
    if (node->control) refuse(*static_cast<ControlNode&>(*node).element);
    else discard(*node);
    inbox_.done(node);
  }
}

/// Called when the last reference has gone, so no message can come any more.
void InboxActor::on_destroy() {
  if (!getf(is_cleaned_up_flag)) cleanup(caf::make_error(caf::exit_reason::unreachable), nullptr);
  monitorable_actor::on_destroy();
}

// ---- watching others ---------------------------------------------------------------------------

void InboxActor::monitor(const caf::strong_actor_ptr& other) {
  if (other != nullptr)
    other->get()->attach(caf::default_attachable::make_monitor(other->address(), address()));
}

void InboxActor::demonitor(const caf::strong_actor_ptr& other) {
  if (other == nullptr) return;
  const caf::default_attachable::observe_token token{address(), caf::default_attachable::monitor};
  other->get()->detach(token);
}

}  // namespace troupe
