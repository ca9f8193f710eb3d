#include <troupe/cluster/transport/dial_table.hpp>

#include <algorithm>
#include <utility>

namespace troupe::detail {

bool DialTable::has(const std::string& address) const {
  const auto is_it = [&](const Dial& dial) { return dial.address == address; };
  return std::any_of(dials_.begin(), dials_.end(),
                     [&](const auto& dial) { return is_it(dial.second); }) ||
         std::any_of(retries_.begin(), retries_.end(), is_it);
}

void DialTable::add(Connection connection, Dial dial) {
  due_ = std::min(due_, dial.began + answer_);
  dials_.emplace(connection, std::move(dial));
}

std::optional<std::uint64_t> DialTable::session(Connection connection) const {
  const auto found = dials_.find(connection);
  return found == dials_.end() ? std::nullopt : std::optional(found->second.session);
}

std::optional<Dial> DialTable::take(Connection connection) {
  const auto found = dials_.find(connection);
  if (found == dials_.end()) return std::nullopt;
  Dial dial = std::move(found->second);
  dials_.erase(found);
  return dial;
}

void DialTable::retry(Dial dial, Time again) {
  dial.again = again;
  retries_.push_back(std::move(dial));
}

std::vector<Connection> DialTable::clear() {
  std::vector<Connection> all;
  for (const auto& [connection, dial] : dials_) all.push_back(connection);
  dials_.clear();
  retries_.clear();
  return all;
}

std::vector<Connection> DialTable::unanswered(Time now) {
  std::vector<Connection> all;
  if (now < due_) return all;
  due_ = Time::max();
  for (const auto& [connection, dial] : dials_) {
    if (is_over(dial, now)) all.push_back(connection);
    else due_ = std::min(due_, dial.began + answer_);
  }
  return all;
}

std::vector<Dial> DialTable::take_retries(Time now) {
  std::vector<Dial> taken;
  std::vector<Dial> all = std::exchange(retries_, {});
  for (Dial& dial : all)
    (now >= dial.again || is_over(dial, now) ? taken : retries_).push_back(std::move(dial));
  return taken;
}

Time DialTable::due() const {
  Time first = dials_.empty() ? Time::max() : due_;
  for (const Dial& dial : retries_) first = std::min(first, dial.again);
  return first;
}

}  // namespace troupe::detail
