// Inbox: the queue of a lean actor's messages: a lock-free stack that the reader reverses.
//
//   if (inbox.push(node) == Inbox::Pushed::woke) schedule();      // any thread
//
//   inbox.collect();                                              // reader: takes arrived messages
//   while (InboxNode* node = inbox.next()) { handle; inbox.done(node); }
//   if (inbox.try_block()) return awaiting;                       // else more has arrived
//
// Threads: many senders, one reader. The states of `head_` and the memory order are in Note [Inbox]
// in actors/NOTES.md.
//
// Invariants
// 1. Exactly one push turns `blocked` into a node; that sender schedules the reader. So the actor
//    is in the scheduler at most once, and `collect` … `try_block` run on one thread at a time.
// 2. `collect` does not detach: it walks from head_ down to `kept_`, the newest node of the last
//    walk, turning the links around. Senders only ever write the link of a node they have not
//    pushed yet.
// 3. The newest node collected stays where it is, handled or not, until head_ has moved on, as
//    kept_. It is not recycled before.
// 4. A reader that is not woken by a push (`try_wake`) pushes the inbox's own node, which counts as
//    handled.
// 5. push (acq_rel) publishes the node to collect (acquire).
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace troupe {

/// An entry of an inbox: a link, and the function that frees the node's memory after its content
/// has been destroyed.
struct InboxNode {
  InboxNode* link = nullptr;                       // the inbox's while the node is in it
  void (*recycle)(InboxNode*) noexcept = nullptr;  // memory only: the content has been destroyed
  bool control = false;                            // a CAF mailbox element, not a message
};

/// Multi-producer single-consumer queue of nodes; each method names the thread that may call it.
class Inbox {
 public:
  enum class Pushed { queued, woke, closed };

  Inbox() = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  /// Any thread. `woke`: the caller must schedule the reader. `closed`: the caller keeps the node.
  Pushed push(InboxNode* node) {
    auto* head = head_.load(std::memory_order_relaxed);
    do {
      if (head == closed()) return Pushed::closed;
      node->link = head == blocked() ? nullptr : head;
    } while (!head_.compare_exchange_weak(head, node, std::memory_order_acq_rel,
                                          std::memory_order_relaxed));
    return head == blocked() ? Pushed::woke : Pushed::queued;
  }

  /// Any thread. Wakes the actor like a push, without a message, and makes the caller the reader.
  /// False: the actor does not wait.
  bool try_wake() {
    auto* head = blocked();
    if (!head_.compare_exchange_strong(head, &nothing_, std::memory_order_acq_rel,
                                       std::memory_order_relaxed))
      return false;
    kept_ = &nothing_;
    return true;
  }

  /// Reader: appends the messages that have arrived to those that `next` returns.
  void collect() {
    auto* const head = head_.load(std::memory_order_acquire);
    if (head != kept_) adopt(head);
  }

  /// Reader: the oldest collected node, or null. Its owner until it is handed to `done`.
  InboxNode* next() {
    in_hand_ = first_;
    if (first_ != nullptr) first_ = first_->link;
    return in_hand_;
  }

  /// Reader: the node's content has been destroyed; its memory is recycled as soon as invariant 3
  /// allows.
  void done(InboxNode* node) {
    in_hand_ = nullptr;
    if (node != kept_) node->recycle(node);
  }

  /// Reader: something has arrived since `collect`.
  bool has_new() const { return head_.load(std::memory_order_acquire) != kept_; }

  /// Reader: nothing collected is left to handle.
  bool empty() const { return first_ == nullptr; }

  /// Reader, when empty: waits for the next push if nothing has arrived since `collect`. Once this
  /// is true the next reader may be at work already: touch nothing of the actor's.
  bool try_block() {
    auto* const last = std::exchange(kept_, nullptr);
    auto* head = last;
    if (!head_.compare_exchange_strong(head, blocked(), std::memory_order_acq_rel,
                                       std::memory_order_relaxed)) {
      kept_ = last;
      return false;
    }
    if (last != nullptr) last->recycle(last);
    return true;
  }

  /// Reader: refuses messages from now on. Messages that had arrived are left for `next` and
  /// `done`.
  void close() {
    auto* const head = head_.exchange(closed(), std::memory_order_acq_rel);
    if (head == closed()) return;
    if (head != kept_ && head != blocked()) adopt(head);
    if (first_ == nullptr) return drop_kept();
    // kept_ is still in the list; no sender can push above it any more, so it is like the others
    kept_ = nullptr;
  }

 private:
  static InboxNode* blocked() { return reinterpret_cast<InboxNode*>(std::uintptr_t{1}); }
  static InboxNode* closed() { return reinterpret_cast<InboxNode*>(std::uintptr_t{2}); }

  /// Takes the nodes from `head` down to kept_ in order of arrival; `head` is the new kept_.
  void adopt(InboxNode* head) {
    InboxNode* oldest = nullptr;
    for (auto* node = head; node != kept_;)
      node = std::exchange(node->link, std::exchange(oldest, node));
    if (first_ == nullptr) {
      drop_kept();
      first_ = oldest;
    } else {
      last_->link = oldest;  // last_ is the old kept_, not handled yet: `done` will recycle it
    }
    last_ = kept_ = head;
  }

  /// Lets go of kept_, which has been handled; a node still in hand is left to `done`.
  void drop_kept() {
    auto* const node = std::exchange(kept_, nullptr);
    if (node != nullptr && node != in_hand_) node->recycle(node);
  }

  alignas(64) std::atomic<InboxNode*> head_{blocked()};
  alignas(64) InboxNode* first_ = nullptr;  // collected, oldest first; reader only, as all below
  // the newest collected, equal to kept_ while first_ is set
  InboxNode* last_ = nullptr;
  InboxNode* in_hand_ = nullptr;  // between `next` and `done`
  InboxNode* kept_ = nullptr;     // bottom of the stack: collected, not yet recycled
  // node of `try_wake`; pushed only while blocked, when no other thread can refer to it
  InboxNode nothing_{.recycle = [](InboxNode*) noexcept {}};
};

}  // namespace troupe
