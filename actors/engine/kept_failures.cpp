#include <troupe/actors/engine/kept_failures.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

namespace troupe {
namespace {

std::string kind_of(const EndedRun& e) {
  std::string kind = e.plan.owner + ": ";
  for (const char c : e.error)
    if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
    else if (kind.back() != '#') kind += '#';
  return kind;
}

// A cut within a character would make no text.
std::string shortened(std::string text) {
  if (text.size() <= KeptFailures::kLongest) return text;
  std::size_t end = KeptFailures::kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  text.resize(end);
  return text + " ...";
}

bool is_run(const EndedRun& e, const PlanName& plan, std::uint64_t run) {
  return e.run == run && e.plan.owner == plan.owner && e.plan.life == plan.life;
}

}  // namespace

void KeptFailures::add(EndedRun failed) {
  failed.error = shortened(std::move(failed.error));
  if (failed.first_ns == 0) failed.first_ns = failed.ended_ns;
  std::lock_guard lock(mutex_);
  if (std::any_of(all_.begin(), all_.end(),
                  [&](const EndedRun& e) { return is_run(e, failed.plan, failed.run); }))
    return;
  if (all_.size() == kMost) make_room(failed.ended_ns);
  all_.push_back(std::move(failed));
}

void KeptFailures::make_room(std::int64_t now_ns) {
  if (now_ns - all_.front().ended_ns > kKept) {
    all_.erase(all_.begin());
    return;
  }
  std::map<std::string, std::vector<std::size_t>> kinds;  // slots, the oldest first
  for (std::size_t i = 0; i < all_.size(); ++i) kinds[kind_of(all_[i])].push_back(i);
  const auto most = std::max_element(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  const std::vector<std::size_t>& places = most->second;
  std::size_t leaves = places[0];
  if (places.size() == 1) leaves = 0;  // as many kinds as there is room
  else {
    EndedRun& next = all_[places[1]];
    next.times += all_[leaves].times;
    next.first_ns = std::min(next.first_ns, all_[leaves].first_ns);
  }
  all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(leaves));
}

void KeptFailures::note_flight(const PlanName& plan, std::uint64_t run, const std::string& flight) {
  std::lock_guard lock(mutex_);
  for (EndedRun& e : all_)
    if (is_run(e, plan, run)) e.flight = shortened(flight);
}

std::vector<EndedRun> KeptFailures::latest_first() const {
  std::lock_guard lock(mutex_);
  return {all_.rbegin(), all_.rend()};
}

}  // namespace troupe
