#include <troupe/actors/events/operator.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe::events {

void Operator::receive(std::size_t input, Batch batch, std::vector<Batch>& out) {
  out_ = &out;
  const Time g = batch.guarantee;
  if (!batch.empty()) {
    std::uint64_t inserts = 0;
    for (const Time old : batch.old_end) inserts += old == Batch::kInsert;
    counters_.events_in += inserts;
    counters_.retractions_in += batch.size() - inserts;
    process(input, std::move(batch));
  }
  if (g != kNever && g < guarantees_[input]) {
    ++counters_.refused;
    complain(fmt::format("the guarantee {} comes after {}; give guarantees that rise", g,
                         guarantees_[input]));
  }
  guarantees_[input] = std::max(guarantees_[input], g);
  const Time least = *std::min_element(guarantees_.begin(), guarantees_.end());
  guarantee_ = std::max(guarantee_, least);
  const Time promised = advance(guarantee_);
  flush();
  if (promised > sent_) {
    if (out.empty()) out.emplace_back(schema_);
    out.back().guarantee = sent_ = promised;
  }
  out_ = nullptr;
}

void Operator::pass(Batch batch) {
  flush();
  batch.guarantee = kNever;
  if (batch.empty()) return;
  for (std::size_t i = 0; i < batch.size(); ++i)
    ++(batch.is_insert(i) ? counters_.events_out : counters_.retractions_out);
  out_->push_back(std::move(batch));
}

void Operator::flush() {
  if (pending_.empty()) return;
  for (std::size_t i = 0; i < pending_.size(); ++i)
    ++(pending_.is_insert(i) ? counters_.events_out : counters_.retractions_out);
  out_->push_back(std::move(pending_));
  pending_ = Batch(schema_);
}

void Operator::count_state(std::uint64_t state) {
  counters_.state = state;
  counters_.peak_state = std::max(counters_.peak_state, state);
  counters_.state_bytes = state * event_bytes();
  counters_.peak_bytes = std::max(counters_.peak_bytes, counters_.state_bytes);
}

void Operator::complain(std::string sentence) {
  constexpr std::size_t kMostComplaints = 16;
  if (counters_.complaints.size() < kMostComplaints)
    counters_.complaints.push_back(counters_.name + ": " + std::move(sentence));
}

}  // namespace troupe::events
