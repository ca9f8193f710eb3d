#include <troupe/cluster/node/request_table.hpp>

#include <algorithm>
#include <utility>

#include <troupe/cluster/node/request_use.hpp>

namespace troupe {

std::uint64_t RequestTable::add(Peer to, Time began) { return add(to, began, {}); }

std::uint64_t RequestTable::add(Peer to, Time began, Continuation then) {
  std::unique_lock lock(mutex_);
  const std::uint64_t id = ++last_;
  Request made;
  made.to = to;
  made.began = began;
  made.is_done = !has_session_(to);
  if (made.is_done) made.reply.status = Status(Code::unavailable, "it was lost");
  made.then = std::move(then);
  if (made.is_done && made.then) {
    lock.unlock();
    made.then(std::move(made.reply));
  } else {
    requests_.emplace(id, std::move(made));
  }
  return id;
}

std::uint64_t RequestTable::add_here() {
  std::lock_guard lock(mutex_);
  requests_.emplace(++last_, Request());
  return last_;
}

bool RequestTable::has_room(const Request& mine) const {
  RequestUse before;
  for (const auto& [id, other] : requests_)
    if (other.to == mine.to && !other.is_done && other.turn != 0 && other.turn < mine.turn)
      before.add(other.bytes);
  return before.has_room(mine.bytes, limits_);
}

void RequestTable::ask(std::uint64_t id, std::uint64_t bytes, const std::function<void()>& send) {
  {
    std::lock_guard lock(mutex_);
    const auto mine = requests_.find(id);
    if (mine == requests_.end()) return;
    mine->second.bytes = bytes, mine->second.turn = ++last_turn_;
  }
  try {
    waiter_.until(mutex_, changed_, [&] {
      const auto mine = requests_.find(id);
      return mine == requests_.end() || mine->second.is_done || has_room(mine->second);
    });
    send();
  } catch (...) {  // requests behind it do not wait for one that was not sent
    std::lock_guard lock(mutex_);
    requests_.erase(id);
    changed_.notify_all();
    throw;
  }
}

RequestTable::Reply RequestTable::await(std::uint64_t id) {
  waiter_.until(mutex_, changed_, [&] { return requests_.at(id).is_done; });
  std::lock_guard lock(mutex_);
  return std::move(requests_.extract(id).mapped().reply);
}

void RequestTable::wait(const std::vector<std::uint64_t>& ids, Time patience) {
  waiter_.until(
      mutex_, changed_,
      [&] {
        return std::all_of(ids.begin(), ids.end(),
                           [&](std::uint64_t id) { return requests_.at(id).is_done; });
      },
      patience);
}

std::optional<RequestTable::Reply> RequestTable::take(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  Request taken = std::move(requests_.extract(id).mapped());
  return taken.is_done ? std::optional(std::move(taken.reply)) : std::nullopt;
}

template <class Fill>
void RequestTable::finish(Peer from, std::uint64_t id, Fill fill) {
  std::unique_lock lock(mutex_);
  const auto it = requests_.find(id);
  // no call waits for it any more, or not for this peer
  if (it == requests_.end() || it->second.is_done || it->second.to != from) return;
  Request& request = it->second;
  fill(request);
  request.is_done = true;
  Continuation then = std::move(request.then);
  Reply reply;
  if (then) reply = std::move(request.reply), requests_.erase(it);
  changed_.notify_all();
  lock.unlock();
  if (then) then(std::move(reply));
}

void RequestTable::answered(Peer from, Answer&& answer, Time now) {
  finish(from, answer.request, [&](Request& request) {
    static_cast<Answer&>(request.reply) = std::move(answer);
    if (request.began.count() > 0)
      request.reply.ns = static_cast<std::uint64_t>((now - request.began).count());
  });
}

void RequestTable::inspected(Peer from, Inspected&& answer, std::int64_t now_ns) {
  finish(from, answer.request, [&](Request& request) {
    request.reply.status = std::move(answer.status);
    request.reply.report = std::make_shared<NodeReport>(std::move(answer.report));
    request.reply.ended_ns = now_ns;
  });
}

void RequestTable::lost(Peer peer, const Status& why) {
  std::vector<Continuation> then;
  const Status status(Code::unavailable, "it was lost: " + why.message());
  {
    std::lock_guard lock(mutex_);
    for (auto it = requests_.begin(); it != requests_.end();) {
      Request& request = it->second;
      if (request.to != peer || request.is_done) {
        ++it;
        continue;
      }
      request.is_done = true;
      request.reply.status = status;
      if (request.then) then.push_back(std::move(request.then)), it = requests_.erase(it);
      else ++it;
    }
    changed_.notify_all();
  }
  for (const Continuation& next : then) {
    Reply reply;
    reply.status = status;
    next(std::move(reply));
  }
}

}  // namespace troupe
