#include <troupe/actors/events/operator_actor.hpp>

#include <exception>
#include <utility>

#include <troupe/actors/runtime/clock.hpp>

namespace troupe::events {

void OperatorActor::connect(Wiring wiring) {
  wiring_ = std::move(wiring);
  edges_.connect(std::move(wiring_.consumers), std::move(wiring_.split), wiring_.window);
  taken_.assign(wiring_.grants.size(), 0);
}

void OperatorActor::receive(OperatorMessage& message) {
  if (auto* token = std::get_if<Deliver>(&message)) {
    in_.push_back(std::move(*token));
  } else if (const auto* grant = std::get_if<Grant>(&message)) {
    edges_.grant(grant->consumer);
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

void OperatorActor::work() {
  while (!in_.empty() && edges_.has_room()) {
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
  edges_.report(r);
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
      edges_.forward(std::move(made));
    }
  } catch (...) {
    has_failed_ = true;
    wiring_.failed(std::current_exception());
  }
}

void OperatorActor::change_level(const Switch& to) {
  const Time effective = operator_->set_consistency(to.level);
  const Time reach = operator_->reach();
  Deliver nothing{0, Batch(operator_->schema())};  // sends what a smaller B holds no longer
  if (!has_failed_) run(nothing);
  to.answer(effective, reach);
}

}  // namespace troupe::events
