// Waiting for other nodes: until they are there, or why they are not.
#include <troupe/cluster/node_core.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/cluster/tcp_socket.hpp>

namespace troupe {
namespace {

using Unresolved = std::map<std::string, std::string>;  // by address: why

bool is_ready(const std::future<Unresolved>& names, std::chrono::nanoseconds patience) {
  return names.valid() && names.wait_for(patience) == std::future_status::ready;
}

// Which names do not resolve: a dial to one comes to nothing, and the transport hears of no reason. On a thread that nobody waits
// for, since a resolver whose servers are silent takes a minute.
std::future<Unresolved> look_up(std::vector<std::string> addresses) {
  std::erase_if(addresses, [](const std::string& a) { return !a.starts_with("tcp://"); });
  if (addresses.empty()) return {};
  std::packaged_task<Unresolved()> task([all = std::move(addresses)] {
    Unresolved unresolved;
    for (const std::string& address : all)
      if (std::string why = why_unresolved(address); !why.empty()) unresolved.emplace(address, std::move(why));
    return unresolved;
  });
  std::future<Unresolved> names = task.get_future();
  try {
    std::thread(std::move(task)).detach();
  } catch (const std::system_error&) {  // no thread is left: nothing is known of the names
    return {};
  }
  return names;
}

std::string listed(const std::vector<std::string>& addresses, const std::map<std::string, std::string>& reasons) {
  std::vector<std::string> all;
  for (const std::string& address : addresses)
    if (const auto why = reasons.find(address); why != reasons.end()) all.push_back(fmt::format("{}: {}", address, why->second));
  return fmt::format("{}", fmt::join(all, "; "));
}

// For the last word, by which names may resolve that did not `before`. Empty: nothing is known against them.
std::string why_unreached(const std::vector<std::string>& addresses, const std::map<std::string, Status>& refusals,
                          const Unresolved& before = {}) {
  constexpr auto kLookUp = std::chrono::seconds(1);
  std::future<Unresolved> names = look_up(addresses);
  Unresolved reasons = is_ready(names, kLookUp) ? names.get() : before;
  for (const auto& [address, why] : refusals) reasons.emplace(address, why.message());
  std::string all = listed(addresses, reasons);
  if (names.valid()) all += fmt::format("{}the resolver of names does not answer", all.empty() ? "" : "; ");
  return all;
}

}  // namespace

void NodeCore::wait_for(const std::vector<std::string>& names, std::chrono::nanoseconds timeout) {
  // The first that is missing says it: of a thousand, each step of a simulation asks.
  const auto is_there = [&](const std::string& n) { return n == self_.name || roster_.find(n) != 0; };
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
  const std::map<std::string, Status> refusals = refusals_;
  std::vector<std::string> addresses;
  for (const auto& [address, why] : refusals) addresses.push_back(address);
  std::copy_if(join_.begin(), join_.end(), std::back_inserter(addresses), [&](const std::string& a) { return !refusals.contains(a); });
  lock.unlock();
  const std::string why = why_unreached(addresses, refusals);
  lock.lock();
  std::vector<std::string> missing;
  std::copy_if(names.begin(), names.end(), std::back_inserter(missing), [&](const std::string& n) { return !is_there(n); });
  if (missing.empty()) return;
  const std::string in_vain = fmt::format("node '{}' waited in vain for {}", self_.name, fmt::join(missing, ", "));
  throw Error(Code::deadline_exceeded, why.empty() ? in_vain : in_vain + "; " + why);
}

// Nodes are started in any order: who is not there yet is asked again. Nor need its name be there: that of a pod may come after the pod.
bool NodeCore::wait_joined(std::chrono::nanoseconds timeout, const std::function<bool()>& gives_up) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  constexpr auto kFirstAnswer = std::chrono::seconds(5);  // is waited for in any case
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  const std::vector<std::string> join = join_;
  std::future<Unresolved> names = roster_.is_alone() ? look_up(join) : std::future<Unresolved>();
  Unresolved unresolved;  // of the last look
  const auto resolves_none = [&] {
    return std::all_of(join.begin(), join.end(), [&](const std::string& a) { return unresolved.contains(a); });
  };
  while (roster_.is_alone() && !join.empty()) {
    const bool is_refused = std::any_of(join.begin(), join.end(), [&](const std::string& a) { return refusals_.contains(a); });
    const auto late = std::chrono::steady_clock::now() - deadline;
    if (late >= kFirstAnswer || (late.count() >= 0 && (is_refused || resolves_none()))) {
      const std::map<std::string, Status> refusals = refusals_;
      lock.unlock();
      const std::string why = why_unreached(join, refusals, unresolved);
      lock.lock();
      if (!roster_.is_alone()) break;
      if (why.empty() && late < kFirstAnswer) {  // names resolve that did not before
        unresolved.clear();
        continue;
      }
      throw Error(Code::unavailable, fmt::format("no node could be joined: {}", why.empty() ? "nobody has answered yet" : why));
    }
    changed_.wait_for(lock, kPause);
    if (!roster_.is_alone()) break;
    std::vector<std::string> again;
    if (is_refused) refusals_.clear(), again = join;
    lock.unlock();
    if (gives_up && gives_up()) return false;
    if (is_ready(names, {})) {
      const bool was_told = resolves_none();
      unresolved = names.get();
      if (resolves_none() && !was_told && std::chrono::steady_clock::now() < deadline)
        log({{LogRecord::Level::warning, time_ns(), self_.name, {}, {}, {}, "nobody could be joined yet: " + listed(join, unresolved)}});
    }
    for (const std::string& address : again) transport_->connect(address);
    if (!again.empty() && !names.valid()) names = look_up(again);
    lock.lock();
  }
  return true;
}

}  // namespace troupe
