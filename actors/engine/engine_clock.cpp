#include <troupe/actors/engine/engine_clock.hpp>

#include <algorithm>

#include <caf/actor_system.hpp>

namespace troupe {

// Ends runs whose deadline has passed in virtual time. CAF's clock sends it their ids, and its
// steps are drawn like the steps of all actors. In real time it would wait for a worker, which may
// run the very kernel that takes too long; `Deadlines` has a thread instead.
class EngineClock::Timekeeper final : public LeanActor<std::uint64_t> {
 public:
  Timekeeper(caf::actor_config& config, std::function<void(std::uint64_t)> expire)
      : LeanActor(config), expire_(std::move(expire)) {}
  const char* name() const override { return "timekeeper"; }

 protected:
  void receive(std::uint64_t& run) override { expire_(run); }
  void receive_control(caf::mailbox_element& element) override {
    if (element.content().match_elements<std::uint64_t>())
      expire_(element.content().get_as<std::uint64_t>(0));
    else LeanActor::receive_control(element);
  }

 private:
  std::function<void(std::uint64_t)> expire_;
};

EngineClock::EngineClock(std::function<void(std::uint64_t run)> expire)
    : expire_(std::move(expire)), deadlines_(expire_) {}
EngineClock::~EngineClock() = default;

void EngineClock::use_virtual_time(caf::actor_system& system) {
  system_ = &system;
  timekeeper_ = lean_spawn<Timekeeper>(system, expire_);
}

void EngineClock::leave_system() { timekeeper_ = {}; }

std::chrono::nanoseconds EngineClock::now() const {
  return system_ ? std::chrono::nanoseconds(system_->scheduler().clock().now().time_since_epoch())
                 : std::chrono::steady_clock::now().time_since_epoch();
}

EngineClock::Due EngineClock::remind(std::uint64_t run, std::chrono::nanoseconds delay) {
  delay = std::min(delay, kLongest);
  if (!system_) {
    const Due due = Deadlines::Clock::now() + delay;
    deadlines_.add(due, run);
    return due;
  }
  auto& clock = system_->scheduler().clock();
  clock.schedule_message(clock.now() + delay,
                         caf::actor_cast<caf::strong_actor_ptr>(timekeeper_.strong()),
                         caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, run));
  return {};
}

void EngineClock::forget(Due due, std::uint64_t run) {
  if (due != Due{}) deadlines_.remove(due, run);
}

}  // namespace troupe
