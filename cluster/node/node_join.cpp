// Waiting for other nodes: until they are there, or why they are not.
#include <troupe/cluster/node/node_core.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace troupe {
namespace {

constexpr auto kLastWord = std::chrono::seconds(1);  // at most, for why nobody is there

using Refusals = std::map<std::string, Status>;  // by address

/// Of those addresses.
std::string listed(const std::vector<std::string>& addresses, const Refusals& refusals) {
  std::vector<std::string> all;
  for (const std::string& address : addresses)
    if (const auto why = refusals.find(address); why != refusals.end())
      all.push_back(fmt::format("{}: {}", address, why->second.message()));
  return fmt::format("{}", fmt::join(all, "; "));
}

}  // namespace

void NodeCore::wait_for(const std::vector<std::string>& names, std::chrono::nanoseconds timeout) {
  // The first that is missing says it: of a thousand, each step of a simulation asks.
  const auto is_there = [&](const std::string& n) {
    return n == self_.name || roster_.find(n) != 0;
  };
  const auto are_there = [&] { return std::all_of(names.begin(), names.end(), is_there); };
  if (deterministic_) {
    engine_->step_until([&] {
      std::lock_guard lock(mutex_);
      return are_there();
    });
    return;
  }
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, timeout, are_there)) return;
  // Why nobody is there, which who was dialled just now, or the resolver of names, may be about to
  // say.
  changed_.wait_for(lock, kLastWord, [&] {
    return are_there() || !roster_.is_alone() || join_.empty() || !refusals_.empty();
  });
  std::vector<std::string> addresses;
  for (const auto& [address, why] : refusals_) addresses.push_back(address);
  const std::string why = refusals_.empty() && roster_.is_alone() && !join_.empty()
                              ? "nobody has answered yet"
                              : listed(addresses, refusals_);
  std::vector<std::string> missing;
  std::copy_if(names.begin(), names.end(), std::back_inserter(missing),
               [&](const std::string& n) { return !is_there(n); });
  if (missing.empty()) return;
  const std::string in_vain =
      fmt::format("node '{}' waited in vain for {}", self_.name, fmt::join(missing, ", "));
  throw Error(Code::deadline_exceeded, why.empty() ? in_vain : in_vain + "; " + why);
}

// Nodes are started in any order: who is not there yet is asked again. Nor need its name be there:
// that of a pod may come after the pod.
bool NodeCore::wait_joined(std::chrono::nanoseconds timeout,
                           const std::function<bool()>& gives_up) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::milliseconds(100);
  // not to ask a resolver ten times a second
  constexpr auto kNamePause = std::chrono::seconds(1);
  // of each is waited for in any case: the transport has one within 5 s
  constexpr auto kFirstAnswer = std::chrono::seconds(6);
  const auto deadline = Clock::now() + timeout;
  std::map<std::string, Clock::time_point> again_at;  // of those who are to be asked again
  Refusals last;                                      // of each, also while it is asked again
  bool was_told = false;
  std::unique_lock lock(mutex_);
  const std::vector<std::string> join = join_;
  const auto is_name = [&](const std::string& a) {
    return last.contains(a) && last.at(a).code() == Code::not_found;
  };
  while (roster_.is_alone() && !join.empty()) {
    const auto now = Clock::now();
    std::vector<std::string> again;
    for (const std::string& address : join) {
      const auto refusal = refusals_.find(address);
      if (refusal == refusals_.end()) continue;
      last.insert_or_assign(address, refusal->second);
      const auto at =
          again_at
              .try_emplace(address, now + (is_name(address) ? std::chrono::milliseconds(kNamePause)
                                                            : kPause))
              .first;
      if (now < at->second || now >= deadline) continue;
      again_at.erase(at);
      refusals_.erase(refusal);
      again.push_back(address);
    }
    const bool has_each = std::all_of(join.begin(), join.end(),
                                      [&](const std::string& a) { return refusals_.contains(a); });
    if (now >= deadline + kFirstAnswer || (now >= deadline && has_each))
      throw Error(Code::unavailable,
                  fmt::format("no node could be joined: {}",
                              last.empty() ? "nobody has answered yet" : listed(join, last)));
    std::string names;  // in vain
    if (!was_told && std::all_of(join.begin(), join.end(), is_name))
      names = listed(join, last), was_told = true;
    lock.unlock();
    if (gives_up && gives_up()) return false;
    if (!names.empty() && now < deadline)
      log({{LogRecord::Level::warning,
            time_ns(),
            self_.name,
            {},
            {},
            {},
            "nobody could be joined yet: " + names}});
    for (const std::string& address : again) transport_->connect(address);
    lock.lock();
    if (roster_.is_alone()) changed_.wait_for(lock, kPause);
  }
  return true;
}

}  // namespace troupe
