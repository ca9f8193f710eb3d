#include <troupe/actors/events/operator_actor.hpp>

#include <exception>
#include <utility>

#include <troupe/actors/runtime/clock.hpp>

namespace troupe::events {

void TokenQueue::add(Batch batch) {
  if (waiting_.empty() || waiting_.back().size() + batch.size() > Batch::kMost)
    waiting_.push_back(std::move(batch));
  else waiting_.back().append(std::move(batch));
}

bool TokenQueue::take(Batch& token) {
  if (waiting_.empty() || credit_ == 0) return false;
  --credit_;
  ++sent_;
  token = std::move(waiting_.front());
  waiting_.pop_front();
  return true;
}

bool TokenQueue::has_room() const {
  return waiting_.empty() || (waiting_.size() == 1 && waiting_.front().size() < Batch::kMost);
}

void OperatorActor::connect(Wiring wiring) {
  wiring_ = std::move(wiring);
  edges_.assign(wiring_.consumers.size(), TokenQueue(wiring_.window));
  taken_.assign(wiring_.grants.size(), 0);
}

void OperatorActor::receive(OperatorMessage& message) {
  if (auto* token = std::get_if<Deliver>(&message)) {
    in_.push_back(std::move(*token));
  } else if (const auto* grant = std::get_if<Grant>(&message)) {
    edges_[grant->consumer].grant();
    send_waiting(grant->consumer);
  } else if (const auto* ask = std::get_if<Ask>(&message)) {
    ask->answers->add(ask->place, report());
    return;
  } else if (const auto* to = std::get_if<Switch>(&message)) {
    change_level(*to);
  } else {
    return quit();
  }
  work();
}

void OperatorActor::ended(const caf::error&) { wiring_.gone(); }

bool OperatorActor::has_room() const {
  for (const TokenQueue& edge : edges_)
    if (!edge.has_room()) return false;
  return true;
}

void OperatorActor::work() {
  while (!in_.empty() && has_room()) {
    Deliver token = std::move(in_.front());
    in_.pop_front();
    wiring_.grants[token.input]();
    ++taken_[token.input];
    if (has_failed_) continue;
    const std::uint64_t began = is_watched_ ? ticks() : 0;
    run(token);
    if (is_watched_) busy_ += ticks() - began;
  }
}

OperatorReport OperatorActor::report() {
  OperatorReport r;
  r.counters = operator_->counters();
  for (const std::uint64_t tokens : taken_) r.tokens += tokens;
  r.busy_ns = static_cast<std::uint64_t>(TickClock::now().nanoseconds(busy_));
  r.waiting = in_.size();
  r.has_failed = has_failed_;
  for (std::size_t c = 0; c < edges_.size(); ++c) {
    r.sent.push_back(edges_[c].sent());
    if (!edges_[c].has_room()) r.full = static_cast<std::ptrdiff_t>(c);
  }
  r.taken = taken_;
  is_watched_ = true;
  return r;
}

/// An error ends the query, not the actor, which goes on to give credit back.
void OperatorActor::run(Deliver& token) {
  try {
    out_.clear();
    operator_->receive(token.input, std::move(token.batch), out_);
    for (Batch& made : out_) {
      if (wiring_.receive) {
        wiring_.receive(made);
        if (made.guarantee == kForever) wiring_.ended();
      }
      forward(std::move(made));
    }
  } catch (...) {
    has_failed_ = true;
    wiring_.failed(std::current_exception());
  }
}

void OperatorActor::change_level(const Switch& to) {
  *to.effective = operator_->set_consistency(to.level);
  *to.reach = operator_->reach();
  Deliver nothing{0, Batch(operator_->schema())};  // sends what a smaller B holds no longer
  if (!has_failed_) run(nothing);
  to.answered->count_down();
}

void OperatorActor::forward(Batch batch) {
  std::vector<Batch> shares;
  if (wiring_.split) shares = wiring_.split->divide(batch);
  for (std::size_t c = 0; c < edges_.size(); ++c) {
    const Wiring::Consumer& to = wiring_.consumers[c];
    Batch& share = to.partition < 0 ? batch : shares[static_cast<std::size_t>(to.partition)];
    if (share.empty() && share.guarantee == kNever) continue;
    edges_[c].add(to.is_last ? std::move(share) : share);
    send_waiting(c);
  }
}

void OperatorActor::send_waiting(std::size_t consumer) {
  const Wiring::Consumer& to = wiring_.consumers[consumer];
  for (Batch token; edges_[consumer].take(token);)
    to.actor->send(Deliver{to.input, std::move(token)});
}

}  // namespace troupe::events
