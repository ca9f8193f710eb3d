// LeanActor: an actor for tokens, with CAF's identity, monitors and links around its own inbox.
//
//   class Counter : public LeanActor<int> {
//    public:
//     explicit Counter(caf::actor_config& config) : LeanActor(config) {}
//     void receive(int& n) override { if ((sum_ += n) > 100) quit(); }
//    private:
//     int sum_ = 0;
//   };
//   LeanRef<Counter> counter = lean_spawn<Counter>(system);
//   counter->send(5);                                  // any thread
//   caf::actor_cast<caf::actor>(counter.strong());     // to monitor, link, register, send to
//
// Ownership and threads: an actor lives while a LeanRef, a CAF handle, its entry in the scheduler
// or a link refers to it; if the last reference goes before it has quit, it ends as unreachable.
// `send` and `enqueue` from any thread; virtual and protected functions on the worker that runs the
// turn. Lean actors do not count as running for `await_all_actors_done`: their owner ends them, or
// the system's end does. Handles must be gone before the system is.
//
// Invariants; costs and the states of a turn are in Note [Lean actors] in actors/NOTES.md:
// 1. A turn handles what had arrived when it began, at most the scheduler's max-throughput.
// 2. On the end the inbox closes, waiting messages are dropped or bounced, then monitors and links
//    are notified, once.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include <caf/actor_config.hpp>
#include <caf/actor_system.hpp>
#include <caf/exit_reason.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/make_actor.hpp>
#include <caf/monitorable_actor.hpp>
#include <caf/resumable.hpp>

#include <troupe/actors/runtime/mpsc_queue.hpp>
#include <troupe/actors/runtime/node_pool.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

class SchedulerModule;

/// The part of a lean actor that does not depend on its message type.
class InboxActor : public caf::monitorable_actor, public caf::resumable {
 public:
  explicit InboxActor(caf::actor_config& config);
  ~InboxActor() override;

  /// Accepts a stock CAF message into the inbox; bounces a request if the actor has ended.
  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* host) override;
  using caf::abstract_actor::enqueue;

  const char* name() const override { return "lean_actor"; }

  // CAF's side; called by the scheduler and by CAF.
  resume_result resume(caf::execution_unit* host, std::size_t max_messages) final;
  // scheduled_actor means a CAF class to CAF
  subtype_t subtype() const final { return unspecified; }
  void intrusive_ptr_add_ref_impl() final;
  void intrusive_ptr_release_impl() final;
  bool cleanup(caf::error&& reason, caf::execution_unit* host) override;
  void on_destroy() override;

 protected:
  /// Handles a stock CAF message. This default ends the actor on an exit_msg with an abnormal
  /// reason, answers CAF's `sys` queries, bounces other requests as unexpected and drops the rest.
  /// Overrides call it for messages that they do not handle.
  virtual void receive_control(caf::mailbox_element& element);

  /// Called after the messages of a turn. Does a bounded piece of further work and returns true to
  /// be resumed again even if no message arrives.
  virtual bool continue_turn() { return false; }
  /// Called instead if a turn ends before its messages do, so that others get theirs.
  virtual void break_turn() {}
  /// Called at the end of a turn. True if the next message may come from another worker within
  /// microseconds: a worker without other work waits for it.
  virtual bool awaits_soon() const { return false; }

  /// Called once when the actor ends, before monitors and links are notified. Must not throw.
  virtual void ended(const caf::error& reason);

  /// Ends the actor after the current message; the first reason counts. No reason: normal.
  void quit(caf::error reason = {});

  /// A down_msg will arrive at `receive_control` when `other` ends (at once if it has).
  void monitor(const caf::strong_actor_ptr& other);
  /// Takes one `monitor` back.
  void demonitor(const caf::strong_actor_ptr& other);

  /// Answers a request that arrived at `receive_control`; does nothing for other messages.
  template <class... Ts>
  void reply(caf::mailbox_element& request, Ts&&... values) {
    if (request.sender == nullptr || !request.mid.is_request() || request.mid.is_answered()) return;
    auto answer = caf::make_mailbox_element(ctrl(), request.mid.response_id(), {},
                                            std::forward<Ts>(values)...);
    request.mid.mark_as_answered();
    request.sender->enqueue(std::move(answer), host());
  }

  /// The worker running this turn, as CAF sees it; null outside of a turn.
  caf::execution_unit* host() const { return host_; }

  /// Runs a turn on the calling thread, which acts as a worker and holds a reference, if the actor
  /// waits for a message. The turn begins with `first(what)` instead of a message. False: the actor
  /// is busy or has ended, and nothing was done.
  bool take_turn(void (*first)(void*), void* what);

  /// Hands one message to `receive`, and destroys it also if that throws.
  virtual void deliver(InboxNode& node) = 0;
  /// Destroys a message that will not be received.
  virtual void discard(InboxNode& node) noexcept = 0;

  Inbox::Pushed push(InboxNode* node) {
    const auto pushed = inbox_.push(node);
    if (pushed == Inbox::Pushed::woke) schedule();
    return pushed;
  }

 private:
  struct ControlNode;

  void schedule();
  bool linger() const;
  bool handle(std::size_t max_messages);
  void dispatch(InboxNode& node);
  void dispatch_control(ControlNode& node);
  void fail(std::exception_ptr error);
  void discard_waiting();
  bool over() const { return quitting_ || getf(is_terminated_flag); }

  Inbox inbox_;
  SchedulerModule* const module_;  // null under a stock scheduler
  caf::execution_unit* host_ = nullptr;
  void (*first_)(void*) = nullptr;  // first call of a turn by `take_turn`; null: an ordinary turn
  void* first_of_ = nullptr;        // its argument
  caf::error quit_reason_;
  bool quitting_ = false;
};

/// An actor that receives `Message`s: a movable type, aligned to at most alignof(std::max_align_t).
template <class Message>
class LeanActor : public InboxActor {
 public:
  using InboxActor::InboxActor;

  /// Sends `Message(args...)`. Any thread; messages of one sender arrive in order. False if the
  /// actor has ended; the message is destroyed then.
  template <class... Args>
  bool send(Args&&... args) {
    auto* const node = Node::make(std::forward<Args>(args)...);
    if (push(node) != Inbox::Pushed::closed) return true;
    node->message()->~Message();
    Node::recycle_memory(node);
    return false;
  }

 protected:
  /// One message; may be moved from. An exception ends the actor with sec::runtime_error.
  virtual void receive(Message& message) = 0;

 private:
  struct Node : InboxNode {
    alignas(Message) std::byte storage[sizeof(Message)];

    Message* message() { return std::launder(reinterpret_cast<Message*>(storage)); }

    template <class... Args>
    static Node* make(Args&&... args) {
      struct Memory {
        void* piece = Pool::take();
        ~Memory() {
          if (piece != nullptr) Pool::give(piece);
        }
      } memory;
      auto* const node = new (memory.piece) Node;
      new (node->storage) Message(std::forward<Args>(args)...);
      node->recycle = &recycle_memory;
      memory.piece = nullptr;
      return node;
    }
    static void recycle_memory(InboxNode* node) noexcept { Pool::give(static_cast<Node*>(node)); }
  };
  static_assert(alignof(Message) <= alignof(std::max_align_t));

 public:
  /// The pool of the messages' memory, shared by all message types of about this size.
  using Pool = NodePool<(sizeof(Node) + 15) / 16 * 16>;

 private:
  void deliver(InboxNode& node) final {
    struct Content {
      Message* message;
      ~Content() { message->~Message(); }
    } content{static_cast<Node&>(node).message()};
    receive(*content.message);
  }
  void discard(InboxNode& node) noexcept final { static_cast<Node&>(node).message()->~Message(); }
};

/// Releases one strong reference. CAF's own does the same out of line, where TSan cannot see that
/// it orders the last use of an actor before its destruction.
inline void release_actor(caf::actor_control_block* actor) {
  if (actor->strong_refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  actor->data_dtor(actor->get());
  caf::intrusive_ptr_release_weak(actor);
}

/// An owning handle on a lean actor: one strong reference. Copies count; null when moved from.
template <class Actor>
class LeanRef {
 public:
  LeanRef() = default;
  /// Shares the ownership of `actor` (e.g. of `this`, inside an actor).
  explicit LeanRef(Actor* actor) : actor_(actor) {
    if (actor_ != nullptr) caf::intrusive_ptr_add_ref(actor_->ctrl());
  }
  LeanRef(const LeanRef& other) : LeanRef(other.actor_) {}
  LeanRef(LeanRef&& other) noexcept : actor_(std::exchange(other.actor_, nullptr)) {}
  LeanRef& operator=(LeanRef other) noexcept {
    std::swap(actor_, other.actor_);
    return *this;
  }
  ~LeanRef() {
    if (actor_ != nullptr) release_actor(actor_->ctrl());
  }

  /// Takes over a reference that exists already.
  static LeanRef adopt(Actor* actor) {
    LeanRef ref;
    ref.actor_ = actor;
    return ref;
  }

  Actor* get() const { return actor_; }
  Actor* operator->() const { return actor_; }
  Actor& operator*() const { return *actor_; }
  explicit operator bool() const { return actor_ != nullptr; }

  /// Returns CAF's handle of the actor.
  caf::strong_actor_ptr strong() const {
    return actor_ == nullptr ? nullptr : caf::strong_actor_ptr(actor_->ctrl());
  }

 private:
  Actor* actor_ = nullptr;
};

/// Makes an `Actor(caf::actor_config&, args...)` in `system`. It waits for its first message.
template <class Actor, class... Args>
LeanRef<Actor> lean_spawn(caf::actor_system& system, Args&&... args) {
  caf::actor_config config;
  auto made = caf::make_actor<Actor, caf::strong_actor_ptr>(
      system.next_actor_id(), system.node(), &system, config, std::forward<Args>(args)...);
  return LeanRef<Actor>::adopt(static_cast<Actor*>(made.release()->get()));
}

}  // namespace troupe
