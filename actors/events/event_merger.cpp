#include <troupe/actors/events/event_merger.hpp>

#include <algorithm>
#include <utility>

namespace troupe::events {
namespace {

Time end_of_event(const EngineEvent& e) { return later(e.begin, e.length); }

}  // namespace

void EventMerger::add(const std::string& clock, std::vector<FlowEvent> events, Time complete_until,
                      Time heard) {
  Source& source = sources_[clock];
  source.has_ended = false;
  source.heard = std::max(source.heard, heard);
  source.complete_until = std::max(source.complete_until, complete_until);
  for (FlowEvent& e : events) {
    if (e.flow != 0 && e.event.kind == "send") sends_waiting_.insert(e.flow);
    source.waiting.push_back(std::move(e));
  }
}

void EventMerger::end(const std::string& clock) {
  if (const auto it = sources_.find(clock); it != sources_.end()) it->second.has_ended = true;
}

bool EventMerger::may_leave(const FlowEvent& e, Time complete) const {
  if (e.flow == 0 || e.event.kind != "receive" || sent_.contains(e.flow)) return true;
  return end_of_event(e.event) <= complete && !sends_waiting_.contains(e.flow);
}

void EventMerger::remember(std::uint64_t flow, Time stamp) {
  sends_waiting_.erase(flow);
  if (!sent_.insert_or_assign(flow, stamp).second) return;
  order_.push_back(flow);
  if (order_.size() <= options_.flows) return;
  sent_.erase(order_.front());
  order_.pop_front();
}

void EventMerger::leave(Source& source, Part& part) {
  FlowEvent e = std::move(source.waiting.front());
  source.waiting.pop_front();
  const Time physical = end_of_event(e.event);
  Time cause = kNever;
  if (e.flow != 0 && e.event.kind == "receive")
    if (const auto sent = sent_.find(e.flow); sent != sent_.end()) cause = sent->second;
  const Time stamp = source.clock.stamp(physical, cause);
  if (e.flow != 0 && e.event.kind == "send") remember(e.flow, stamp);
  most_ahead_ = std::max(most_ahead_, stamp - physical);
  if (stamp <= guarantee_) {
    ++late_;
    return;
  }
  e.event.begin = stamp - e.event.length;
  part.events.push_back(std::move(e.event));
}

EventMerger::Part EventMerger::take(Time now) {
  Part part;
  Time complete = kForever;
  bool is_held = false;
  for (const auto& [name, source] : sources_) {
    if (!holds(source, now)) continue;
    is_held = true;
    complete = std::min(complete, source.complete_until);
  }
  if (!is_held) complete = kNever;
  for (;;) {
    bool has_left = false;
    Source* earliest = nullptr;
    for (auto& [name, source] : sources_) {
      // without the clocks that hold the guarantee nothing is waited for
      while (!source.waiting.empty() && (!is_held || may_leave(source.waiting.front(), complete))) {
        leave(source, part);
        has_left = true;
      }
      if (!source.waiting.empty() && end_of_event(source.waiting.front().event) <= complete &&
          (!earliest || end_of_event(source.waiting.front().event) <
                            end_of_event(earliest->waiting.front().event)))
        earliest = &source;
    }
    if (has_left) continue;
    if (!earliest) break;
    leave(*earliest, part);  // tracks of one clock contradict each other
  }
  Time g = complete;
  for (auto& [name, source] : sources_) {
    if (!source.waiting.empty()) g = std::min(g, end_of_event(source.waiting.front().event) - 1);
    else source.clock.pass(source.complete_until);
  }
  guarantee_ = std::max(guarantee_, g);
  std::stable_sort(
      part.events.begin(), part.events.end(),
      [](const EngineEvent& a, const EngineEvent& b) { return end_of_event(a) < end_of_event(b); });
  part.guarantee = guarantee_;
  return part;
}

std::vector<EventMerger::Clock> EventMerger::clocks(Time now) const {
  std::vector<Clock> all;
  for (const auto& [name, source] : sources_)
    all.push_back({name, source.complete_until, holds(source, now)});
  return all;
}

}  // namespace troupe::events
