#include <troupe/actors/events/alter_lifetime.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

void lifetime_demand(Time length, const char* what) {
  if (length < 1)
    throw Error(Code::invalid_argument,
                fmt::format("a window has a {} of {}; give 1 or more", what, length));
}

}  // namespace

Lifetimes Lifetimes::sliding(Time size) {
  lifetime_demand(size, "size");
  return {Kind::sliding, size};
}

Lifetimes Lifetimes::hopping(Time hop, Time size) {
  lifetime_demand(size, "size");
  lifetime_demand(hop, "hop");
  return {Kind::hopping, size, hop};
}

Lifetimes Lifetimes::clip(Time from, Time to) {
  if (from >= to)
    throw Error(
        Code::invalid_argument,
        fmt::format("a slice is [{},{}), which is empty; let it end after its begin", from, to));
  Lifetimes lifetimes{Kind::clip};
  lifetimes.from = from;
  lifetimes.to = to;
  return lifetimes;
}

Lifetimes::Span Lifetimes::of(Time begin, Time end) const {
  switch (kind) {
    case Kind::sliding: return {begin, std::min(end, later(begin, size))};
    case Kind::hopping: {
      const Time start = round_down(begin, hop);
      return {start, later(start, size)};
    }
    case Kind::extend: return {begin, kForever};
    case Kind::deletes: return {end, kForever};
    case Kind::clip: {
      const Time start = std::max(begin, from);
      return {start, std::max(start, std::min(end, to))};
    }
  }
  return {begin, end};
}

std::string Lifetimes::text() const {
  switch (kind) {
    case Kind::sliding: return fmt::format("sliding {}", size);
    case Kind::hopping:
      return hop == size ? fmt::format("tumbling {}", size)
                         : fmt::format("hopping {} by {}", size, hop);
    case Kind::extend: return "extend";
    case Kind::deletes: return "deletes";
    case Kind::clip: return fmt::format("slice [{},{})", from, to);
  }
  return "";
}

/// Maps a retraction; false if the new lifetime does not change.
bool AlterLifetime::shrink(Batch& batch, std::size_t i) const {
  const Time begin = batch.begin[i];
  const Lifetimes::Span old = lifetimes_.of(begin, batch.old_end[i]);
  const Time end = batch.end[i] == begin ? old.begin : lifetimes_.of(begin, batch.end[i]).end;
  batch.begin[i] = old.begin;
  batch.old_end[i] = old.end;
  batch.end[i] = end;
  return end < old.end;
}

Time AlterLifetime::reach() const {
  using Kind = Lifetimes::Kind;
  if (lifetimes_.kind == Kind::extend || lifetimes_.kind == Kind::deletes) return kForever;
  return later(lifetimes_.size, lifetimes_.hop - 1);
}

void AlterLifetime::process(std::size_t, Batch batch) {
  if (lifetimes_.kind == Lifetimes::Kind::deletes) {
    for (std::size_t i = 0; i < batch.size(); ++i) process_deletes(batch, i);
    return count_state(moved_.size());
  }
  std::vector<std::uint8_t> marks(batch.size(), 1);
  bool keeps_all = true;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch.is_insert(i)) {
      const Lifetimes::Span span = lifetimes_.of(batch.begin[i], batch.end[i]);
      batch.begin[i] = span.begin;
      batch.end[i] = span.end;
      marks[i] = span.begin < span.end;
    } else {
      marks[i] = shrink(batch, i);
    }
    keeps_all &= marks[i] != 0;
  }
  if (!keeps_all) batch.keep(marks);
  pass(std::move(batch));
}

/// An earlier end begins the output earlier: the row is removed and comes again under a new key.
void AlterLifetime::process_deletes(const Batch& batch, std::size_t i) {
  const Key key = batch.key[i];
  if (batch.is_insert(i)) {
    if (batch.end[i] == kForever) return;
    const Moved& moved = moved_[key] = {keys_.next(), batch.end[i]};
    output().insert(moved.key, batch.end[i], kForever, batch.row(i));
    return;
  }
  const Row row = batch.row(i);
  const auto it = moved_.find(key);
  if (it != moved_.end())
    output().shrink(it->second.key, it->second.end, it->second.end, kForever, row);
  if (batch.end[i] == batch.begin[i]) {
    if (it != moved_.end()) moved_.erase(it);
    return;
  }
  const Moved& moved = moved_[key] = {keys_.next(), batch.end[i]};
  output().insert(moved.key, batch.end[i], kForever, row);
}

Time AlterLifetime::advance(Time g) {
  if (moved_.size() >= 2 * swept_ + 64) {
    std::erase_if(moved_, [g](const auto& entry) { return is_settled(entry.second.end, g); });
    swept_ = moved_.size();
    count_state(swept_);
  }
  if (lifetimes_.kind != Lifetimes::Kind::hopping || g == kForever || g == kNever) return g;
  return before(round_down(g + 1, lifetimes_.hop));
}

}  // namespace troupe::events
