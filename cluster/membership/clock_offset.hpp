// The offset of another node's clock from this one's, estimated from questions and answers as NTP
// does (Mills, RFC 5905):
//
//        sent ──────── question ────────► received
//       ended ◄──────── answer ────────── answered
//   offset = (received - sent + answered - ended) / 2, wrong by half of the travel time at most
//
//   clock.observe(incarnation, {sent, received, answered, ended});  …  clock.offset_ns()
//
// The quickest question is the most precise, but clocks drift apart: an estimate grows worse with
// its age, and the next question that is more precise replaces it. An observation that contradicts
// the estimate means that a clock was set: it counts at once. Processes of one host read one clock:
// there is nothing to estimate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace troupe {

class ClockOffset {
 public:
  /// Nanoseconds; the outer two by this node's clock, the others by the other's.
  struct Question {
    std::int64_t sent, received, answered, ended;
  };
  /// The largest drift between clocks: the most by which a kernel lets NTP correct them.
  static constexpr std::int64_t kDriftDivisor = 2'000;  // 500 ns a ms

  /// Adds an observation. It ignores impossible times of a faulty node, such as an answer before
  /// the question.
  void observe(std::uint64_t incarnation, const Question& q) {
    constexpr std::int64_t kLatest = INT64_MAX / 2;
    if (q.received < 0 || q.answered < q.received || q.answered > kLatest) return;
    const std::int64_t way =
        std::max<std::int64_t>(0, (q.ended - q.sent) - (q.answered - q.received));
    const std::int64_t offset = ((q.received - q.sent) + (q.answered - q.ended)) / 2;
    // or this clock was set
    const bool is_another = !is_known_ || is_same_ || incarnation != incarnation_ || q.ended < at_;
    const bool contradicts = std::abs(offset - offset_ns_) > way / 2 + error_ns(q.ended);
    if (!is_another && !contradicts && way / 2 > error_ns(q.ended)) return;
    is_known_ = true;
    is_same_ = false;
    incarnation_ = incarnation;
    at_ = q.ended;
    round_trip_ns_ = way;
    offset_ns_ = offset;
  }

  /// The other reads the same clock, and answered a question that took so long on its way.
  void is_same(std::uint64_t incarnation, std::int64_t round_trip_ns) {
    *this = {};
    is_known_ = is_same_ = true;
    incarnation_ = incarnation;
    round_trip_ns_ = std::max<std::int64_t>(0, round_trip_ns);
  }

  bool is_known() const { return is_known_; }
  /// The other clock less this one.
  std::int64_t offset_ns() const { return offset_ns_; }
  /// Returns the round trip of the question that the estimate is from.
  std::int64_t round_trip_ns() const { return round_trip_ns_; }
  /// How far off the estimate can be at that time of this clock.
  std::int64_t error_ns(std::int64_t now) const {
    return is_same_ ? 0 : round_trip_ns_ / 2 + std::max<std::int64_t>(0, now - at_) / kDriftDivisor;
  }

 private:
  bool is_known_ = false, is_same_ = false;
  std::uint64_t incarnation_ = 0;
  std::int64_t at_ = 0, round_trip_ns_ = 0, offset_ns_ = 0;
};

}  // namespace troupe
