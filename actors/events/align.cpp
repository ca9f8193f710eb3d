#include <troupe/actors/events/align.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace troupe::events {

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
  if (blocking_ == 0 && held_.empty()) return pass(std::move(batch));
  hold(std::move(batch));
  count_state(waiting_);
}

void Align::hold(Batch batch) {
  const std::size_t n = batch.size();
  Run run;
  run.items.resize(n);
  bool is_sorted = true;
  for (std::size_t i = 0; i < n; ++i) {
    const bool is_insert = batch.is_insert(i);
    run.items[i] = {batch.sync(i), (arrivals_ + i) | (is_insert ? 0 : kRetraction)};
    is_sorted &= i == 0 || run.items[i - 1] < run.items[i];
    if (is_insert) continue;
    const auto [it, is_new] =
        shrunk_.try_emplace(batch.key[i], Shrunk{batch.end[i], batch.old_end[i]});
    if (is_new) continue;
    it->second.end = std::min(it->second.end, batch.end[i]);
    it->second.old_end = std::max(it->second.old_end, batch.old_end[i]);
  }
  if (!is_sorted) std::sort(run.items.begin(), run.items.end());
  runs_.push_back(std::move(run));
  merge_runs();
  held_.emplace(arrivals_, Held{std::move(batch), n, max_sync_});
  arrivals_ += n;
  waiting_ += n;
}

/// Merges the last runs until each is twice as long as the next one.
void Align::merge_runs() {
  while (runs_.size() > 1 && runs_[runs_.size() - 2].size() < 2 * runs_.back().size()) {
    const Run last = std::move(runs_.back());
    runs_.pop_back();
    Run& run = runs_.back();
    Run both;
    both.items.resize(run.size() + last.size());
    std::merge(run.items.begin() + static_cast<std::ptrdiff_t>(run.left), run.items.end(),
               last.items.begin() + static_cast<std::ptrdiff_t>(last.left), last.items.end(),
               both.items.begin());
    run = std::move(both);
  }
}

Time Align::advance(Time g) {
  const Time bound =
      blocking_ == 0 ? kForever
                     : std::max(g, blocking_ == kForever ? kNever : earlier(max_sync_, blocking_));
  take(bound);
  if (!leaving_.empty()) release();
  count_state(waiting_);
  Time first = kForever;
  for (const Run& run : runs_) first = std::min(first, run.first());
  return runs_.empty() ? g : std::min(g, before(first));
}

/// Moves the messages up to `bound` from the runs to `leaving_`, in order.
void Align::take(Time bound) {
  leaving_.clear();
  std::size_t sources = 0;
  for (Run& run : runs_) {
    if (run.first() > bound) continue;
    const auto begin = run.items.begin() + static_cast<std::ptrdiff_t>(run.left);
    const auto end = std::upper_bound(begin, run.items.end(), bound,
                                      [](Time t, const Item& item) { return t < item.sync; });
    const auto middle = static_cast<std::ptrdiff_t>(leaving_.size());
    leaving_.insert(leaving_.end(), begin, end);
    if (sources++ > 0)
      std::inplace_merge(leaving_.begin(), leaving_.begin() + middle, leaving_.end());
    run.left = static_cast<std::size_t>(end - run.items.begin());
  }
  std::erase_if(runs_, [](const Run& run) { return run.size() == 0; });
}

std::map<std::uint64_t, Align::Held>::iterator Align::holder(std::uint64_t arrival) {
  return std::prev(held_.upper_bound(arrival));
}

/// Sends `leaving_`: messages of one batch together, unless a retraction may concern them.
void Align::release() {
  std::size_t i = 0;
  const auto arrival = [this](std::size_t at) { return leaving_[at].rank & ~kRetraction; };
  while (i < leaving_.size()) {
    const auto it = holder(arrival(i));
    const std::uint64_t first = it->first;
    Held& held = it->second;
    const std::uint64_t end = first + held.batch.size();
    rows_.clear();
    for (; i < leaving_.size() && arrival(i) >= first && arrival(i) < end; ++i)
      rows_.push_back(static_cast<std::uint32_t>(arrival(i) - first));
    counters_.blocked += rows_.size();
    if (held.arrived != kNever && max_sync_ > held.arrived)
      counters_.blocking +=
          static_cast<double>(max_sync_ - held.arrived) * static_cast<double>(rows_.size());
    waiting_ -= rows_.size();
    held.waiting -= rows_.size();
    if (shrunk_.empty()) {
      for (std::size_t done = 0; done < rows_.size();) {
        Batch& out = output();
        const std::size_t some = std::min(rows_.size() - done, Batch::kMost - out.size());
        out.append(held.batch, {rows_.data() + done, some});
        done += some;
      }
    } else {
      for (const std::uint32_t row : rows_) release_changed(held, row);
    }
    if (held.waiting == 0) held_.erase(it);
  }
}

/// Sends a message whose key may have been retracted in the buffer.
void Align::release_changed(Held& held, std::size_t row) {
  const Batch& from = held.batch;
  const auto it = shrunk_.find(from.key[row]);
  if (!from.is_insert(row)) {
    if (it == shrunk_.end() || it->second.end != from.end[row]) return;  // merged
    Batch& out = output();
    out.append(from, row);
    out.old_end.back() = it->second.old_end;
    shrunk_.erase(it);
    return;
  }
  Time end = from.end[row];
  if (it != shrunk_.end()) {
    if (is_ingress_ && it->second.end > end) {  // it lengthens: Finalize refuses it
      output().append(from, row);
      return;
    }
    end = std::min(end, it->second.end);
    const bool is_nothing = end <= from.begin[row];
    // Finalize learns of the retraction later, without effect
    if (!is_ingress_ || is_nothing) shrunk_.erase(it);
    if (is_nothing) return;
  }
  Batch& out = output();
  out.append(from, row);
  out.end.back() = end;
}

}  // namespace troupe::events
