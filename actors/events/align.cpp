#include <troupe/actors/events/align.hpp>

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace troupe::events {

bool Align::leaves_after(const Item& a, const Item& b) {
  return std::tie(a.sync, a.is_retraction, a.arrival) >
         std::tie(b.sync, b.is_retraction, b.arrival);
}

/// A message that its source has excluded by a guarantee.
void Align::refuse_late(Batch& batch) {
  std::vector<std::uint8_t> marks;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch.sync(i) > guarantee() && guarantee() != kForever) continue;
    if (marks.empty()) marks.assign(batch.size(), 1);
    marks[i] = 0;
    ++counters_.refused;
    complain(
        fmt::format("time goes backwards: key {} comes with sync {} after the guarantee {}; "
                    "give guarantees that hold",
                    batch.key[i], batch.sync(i), guarantee()));
  }
  if (!marks.empty()) batch.keep(marks);
}

void Align::process(std::size_t, Batch batch) {
  if (is_ingress_) {
    check_schema(batch, schema(), name());
    if (guarantee() != kNever) refuse_late(batch);
    if (batch.empty()) return;
  }
  for (std::size_t i = 0; i < batch.size(); ++i) max_sync_ = std::max(max_sync_, batch.sync(i));
  if (blocking_ == 0 && heap_.empty()) return pass(std::move(batch));
  const auto shared = std::make_shared<const Batch>(std::move(batch));
  for (std::size_t i = 0; i < shared->size(); ++i) {
    heap_.push_back({shared->sync(i), !shared->is_insert(i), arrivals_++, max_sync_, shared, i});
    std::push_heap(heap_.begin(), heap_.end(), leaves_after);
    if (shared->is_insert(i)) continue;
    const auto [it, is_new] =
        shrunk_.try_emplace(shared->key[i], Shrunk{shared->end[i], shared->old_end[i]});
    if (is_new) continue;
    it->second.end = std::min(it->second.end, shared->end[i]);
    it->second.old_end = std::max(it->second.old_end, shared->old_end[i]);
  }
  count_state(heap_.size());
}

Time Align::advance(Time g) {
  const Time bound =
      blocking_ == 0 ? kForever
                     : std::max(g, blocking_ == kForever ? kNever : earlier(max_sync_, blocking_));
  while (!heap_.empty() && heap_.front().sync <= bound) {
    std::pop_heap(heap_.begin(), heap_.end(), leaves_after);
    release(heap_.back());
    heap_.pop_back();
  }
  count_state(heap_.size());
  return heap_.empty() ? g : std::min(g, before(heap_.front().sync));
}

void Align::release(const Item& item) {
  const Batch& from = *item.batch;
  ++counters_.blocked;
  if (item.arrived != kNever && max_sync_ > item.arrived)
    counters_.blocking += static_cast<double>(max_sync_ - item.arrived);
  const Key key = from.key[item.row];
  const auto it = shrunk_.empty() ? shrunk_.end() : shrunk_.find(key);
  if (item.is_retraction) {
    if (it == shrunk_.end() || it->second.end != from.end[item.row]) return;  // merged
    Batch& out = output();
    out.append(from, item.row);
    out.old_end.back() = it->second.old_end;
    shrunk_.erase(it);
    return;
  }
  Time end = from.end[item.row];
  if (it != shrunk_.end()) {
    if (is_ingress_ && it->second.end > end) {  // it lengthens: Finalize refuses it
      output().append(from, item.row);
      return;
    }
    end = std::min(end, it->second.end);
    const bool is_nothing = end <= from.begin[item.row];
    // Finalize learns of the retraction later, without effect
    if (!is_ingress_ || is_nothing) shrunk_.erase(it);
    if (is_nothing) return;
  }
  Batch& out = output();
  out.append(from, item.row);
  out.end.back() = end;
}

}  // namespace troupe::events
