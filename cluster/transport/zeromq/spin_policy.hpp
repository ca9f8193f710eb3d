// How long a transport's thread looks for messages by itself before it blocks until it is woken. To
// be woken takes longer than a small message does, so that is waited for awake; but not where
// others want the core.
//
//   if (awake.has_moved(now, messages, bytes, false)) continue;
//   if (awake.has_rested(now)) block();
//   else { std::this_thread::yield(); awake.yielded(now, clock()); }
//
// Threads: one. Invariant: the answers follow from the times passed in: no clock is read.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

class SpinPolicy {
 public:
  using Time = std::chrono::nanoseconds;
  // bytes of a message whose arrival is waited for awake
  static constexpr std::uint64_t kSmall = 32 << 10;
  // Cores are wanted by others if they took more than an eighth of the time while the thread
  // offered its own; what takes it once, for less than kLost, does not count: to sleep for a while
  // costs a loop over two processes more than that each time.
  static constexpr Time kLost = std::chrono::microseconds(500);
  // a yield that no thread takes is over much sooner
  static constexpr Time kOffered = std::chrono::microseconds(20);
  static constexpr int kLostShare = 8;
  static constexpr Time kCrowdedFor = std::chrono::milliseconds(20);
  static constexpr std::uint64_t kPatience = 64, kGained = 8;

  /// `spin`: how long it stays awake after what came, or went, last.
  explicit SpinPolicy(Time spin) : spin_(spin) {}

  /// There were so many messages and bytes until now, either way: are they more than before?
  /// `waits_for_all`: large ones are worth it too.
  bool has_moved(Time now, std::uint64_t messages, std::uint64_t bytes, bool waits_for_all) {
    if (messages == messages_) return false;
    const bool is_worth_it = waits_for_all || bytes - bytes_ < (messages - messages_) * kSmall;
    if (patience_ == 0 && messages / kPatience != messages_ / kPatience) patience_ = 1;
    messages_ = messages;
    bytes_ = bytes;
    rest_at_ = is_worth_it && now >= crowded_until_ ? now + spin_ : now;
    return true;
  }
  bool has_rested(Time now) const { return now >= rest_at_; }
  /// The next piece of an arriving message is on its way.
  void expect(Time now) {
    if (now >= crowded_until_) rest_at_ = now + spin_;
  }
  /// The core was offered to others at `then`, and was back `now`.
  void yielded(Time then, Time now) {
    lost_ = std::max(Time::zero(), lost_ - (then - offered_at_) / kLostShare);
    offered_at_ = then;
    if (now - then > kOffered) lost_ += now - then;
    if (lost_ <= kLost) return;
    lost_ = Time::zero();
    crowded_until_ = now + kCrowdedFor;
    rest_at_ = then;
  }

  /// Returns true if a look for news, in about the time that a yield takes, is worth its time. If
  /// mostly nothing came, as with more processes than cores, it is true once in kPatience messages
  /// only.
  bool is_patient() const { return patience_ != 0; }
  /// Notes the outcome of a look: one success makes up for kGained looks without news.
  void looked(bool has_come) {
    patience_ = has_come ? std::min(patience_ + kGained, kPatience) : patience_ - 1;
  }

 private:
  const Time spin_;
  Time rest_at_{}, crowded_until_{};
  // to others while the core was offered to them, lately; when that was last
  Time lost_{}, offered_at_{};
  std::uint64_t messages_ = 0, bytes_ = 0;  // as of the last turn that moved any
  std::uint64_t patience_ = kPatience;
};

}  // namespace troupe
