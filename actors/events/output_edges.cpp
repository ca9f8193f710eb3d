#include <troupe/actors/events/output_edges.hpp>

#include <utility>

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

void OutputEdges::connect(std::vector<Consumer> consumers, std::shared_ptr<const Split> split,
                          int window) {
  consumers_ = std::move(consumers);
  split_ = std::move(split);
  queues_.assign(consumers_.size(), TokenQueue(window));
}

void OutputEdges::forward(Batch batch, std::size_t stream) {
  std::vector<Batch> shares;
  if (split_) shares = split_->divide(batch);
  for (std::size_t c = 0; c < consumers_.size(); ++c) {
    const Consumer& to = consumers_[c];
    if (to.stream != stream) continue;
    Batch& share = to.partition < 0 ? batch : shares[static_cast<std::size_t>(to.partition)];
    if (share.empty() && share.guarantee == kNever) continue;
    queues_[c].add(to.is_last ? std::move(share) : share);
    send_waiting(c);
  }
}

void OutputEdges::grant(std::size_t consumer) {
  queues_[consumer].grant();
  send_waiting(consumer);
}

bool OutputEdges::has_room() const {
  for (const TokenQueue& queue : queues_)
    if (!queue.has_room()) return false;
  return true;
}

void OutputEdges::report(OperatorReport& report, std::size_t stream) const {
  for (std::size_t c = 0; c < consumers_.size(); ++c) {
    if (consumers_[c].stream != stream) continue;
    if (!queues_[c].has_room()) report.full = static_cast<std::ptrdiff_t>(report.sent.size());
    report.sent.push_back(queues_[c].sent());
  }
}

void OutputEdges::send_waiting(std::size_t consumer) {
  const Consumer& to = consumers_[consumer];
  for (Batch token; queues_[consumer].take(token);)
    to.actor->send(Deliver{to.input, std::move(token)});
}

}  // namespace troupe::events
