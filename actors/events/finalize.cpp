#include <troupe/actors/events/finalize.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe::events {

void Finalize::refuse(std::string sentence) {
  ++counters_.refused;
  complain(std::move(sentence));
}

void Finalize::process(std::size_t, Batch batch) {
  if (inserts_only_ && memory_ == kForever) {
    bool is_sound = true;
    for (std::size_t i = 0; i < batch.size(); ++i)
      is_sound &= batch.is_insert(i) && batch.begin[i] < batch.end[i];
    if (is_sound) {
      for (Key& key : batch.key) key = keys_.next();
      return pass(std::move(batch));
    }
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    max_sync_ = std::max(max_sync_, batch.sync(i));
    if (max_sync_ != kNever) cut_ = std::max(cut_, earlier(max_sync_, memory_));
    if (batch.is_insert(i)) insert(batch, i);
    else retract(batch, i);
  }
  count_state(known_.size() + parked_.size());
}

void Finalize::insert(Batch& batch, std::size_t i) {
  const Key user = batch.key[i];
  Time begin = batch.begin[i], end = batch.end[i];
  bool is_shrunk = false;
  if (begin >= end)
    return refuse(
        fmt::format("key {} is inserted with the lifetime [{},{}), which is empty; let "
                    "it end after its begin",
                    user, begin, end));
  if (known_.contains(user))
    return refuse(fmt::format("key {} is inserted twice; give each event a key of its own", user));
  if (const auto it = parked_.find(user); it != parked_.end()) {
    is_shrunk = true;
    end = std::max(begin, std::min(end, it->second.end));
    parked_.erase(it);
  }
  if (begin < cut_ && begin < end) {
    if (end <= cut_) {
      ++counters_.dropped;
      return complain(
          fmt::format("the insert of key {}, [{},{}), is later than M = {} permits; it "
                      "is dropped, because the cut is {}",
                      user, begin, end, memory_, cut_));
    }
    ++counters_.clipped;
    begin = cut_;
  }
  const Key key = keys_.next();
  if (begin < end) {
    Batch& out = output();
    out.append(batch, i);
    out.key.back() = key;
    out.begin.back() = begin;
    out.end.back() = end;
  }
  if (!inserts_only_) known_.emplace(user, Known{key, begin, end, is_shrunk, batch.row(i)});
}

void Finalize::retract(const Batch& batch, std::size_t i) {
  const Key user = batch.key[i];
  Time end = batch.end[i];
  if (inserts_only_)
    return refuse(
        fmt::format("key {} is retracted, and the source promises inserts only; declare "
                    "it without inserts_only",
                    user));
  const auto it = known_.find(user);
  const bool is_late = end < cut_;
  if (it == known_.end()) {
    const auto [parked, is_new] = parked_.try_emplace(user, Parked{end, is_late});
    parked->second.end = std::min(parked->second.end, end);
    parked->second.was_late |= is_late;
    parked_until_ = std::min(parked_until_, end);
    return;
  }
  Known& known = it->second;
  if (end > known.end && !known.is_shrunk)
    return refuse(
        fmt::format("the retraction of key {} to {} lengthens [{},{}); retract the event "
                    "and insert another one",
                    user, end, known.begin, known.end));
  known.is_shrunk = true;
  end = std::max(end, known.begin);
  if (end >= known.end) return;  // repeated, or overtaken by a shorter one
  if (end < cut_) {
    end = cut_;
    if (end >= known.end) {
      ++counters_.dropped;
      return complain(
          fmt::format("the retraction of key {} to {} is later than M = {} permits; it "
                      "has no effect, because the cut is {}",
                      user, batch.end[i], memory_, cut_));
    }
    ++counters_.clipped;
  }
  output().shrink(known.key, known.begin, end, known.end, known.payload);
  known.end = end;
}

Time Finalize::advance(Time g) {
  const Time promised = std::max(g, before(cut_));
  forget(promised);
  if (g >= parked_until_) {
    parked_until_ = kForever;
    for (auto it = parked_.begin(); it != parked_.end();) {
      if (it->second.end > g) {
        parked_until_ = std::min(parked_until_, it->second.end);
        ++it;
        continue;
      }
      ++counters_.dropped;
      if (!it->second.was_late)
        complain(
            fmt::format("the retraction of key {} to {} has no insert, or a shorter one came "
                        "first, and the guarantee {} excludes an insert; it is dropped",
                        it->first, it->second.end, g));
      it = parked_.erase(it);
    }
  }
  count_state(known_.size() + parked_.size());
  return promised;
}

/// Drops events that no retraction can shrink any more, when they may be half of all.
void Finalize::forget(Time g) {
  if (known_.size() < 2 * swept_ + 64 && g != kForever) return;
  std::erase_if(known_, [g](const auto& entry) {
    return is_settled(entry.second.end, g) && is_settled(later(entry.second.begin, 1), g);
  });
  swept_ = known_.size();
}

}  // namespace troupe::events
