// The actor behind caf::aout: whole lines of each actor, one after the other, on standard output.
//
// Stock CAF gives its printer a thread of its own; this one is a lean actor on the pool, so that a
// stepped system prints at a step and an idle system has one thread less. Redirection to files and
// groups (actor_ostream::redirect) is not offered: such requests are dropped.
#pragma once

#include <string>
#include <unordered_map>

#include <caf/abstract_actor.hpp>

#include <troupe/actors/runtime/lean_actor.hpp>

namespace troupe {

/// Receives the messages of actor_ostream: add text, flush, and delete when an actor has ended.
class Printer final : public InboxActor {
 public:
  using InboxActor::InboxActor;
  const char* name() const override { return "printer"; }

 private:
  void receive_control(caf::mailbox_element& element) override;
  void ended(const caf::error& reason) override;
  void add(caf::actor_id who, const std::string& text);
  void flush(caf::actor_id who);
  void deliver(InboxNode&) override {}  // there are no messages of its own
  void discard(InboxNode&) noexcept override {}

  std::unordered_map<caf::actor_id, std::string> lines_;  // begun and not ended by a newline
};

}  // namespace troupe
