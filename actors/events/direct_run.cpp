#include <troupe/actors/events/direct_run.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {

void check_query(const Query& query) {
  if (query.sources().empty() || query.outputs().empty())
    throw Error(Code::failed_precondition,
                fmt::format("a query has {} sources and {} outputs; give it one of each at least",
                            query.sources().size(), query.outputs().size()));
}

std::vector<int> outputs_by_step(const Query& query) {
  std::vector<int> all(query.steps().size(), -1);
  for (std::size_t o = 0; o < query.outputs().size(); ++o)
    all[query.outputs()[o].step] = static_cast<int>(o);
  return all;
}

std::vector<std::unique_ptr<Operator>> make_operators(const Query& query) {
  std::vector<std::unique_ptr<Operator>> all;
  for (const Query::Step& step : query.steps()) {
    all.push_back(step.make(step.name));
    all.back()->set_consistency(query.consistency());
  }
  return all;
}

DirectRun::DirectRun(const Query& query, Receive receive)
    : query_((check_query(query), query)), consumers_(query.consumers()),
      receive_(std::move(receive)), output_of_(outputs_by_step(query)),
      operators_(make_operators(query)), progress_(query_) {}

void DirectRun::feed(std::size_t source, Batch batch) {
  const Time g = batch.guarantee;
  const std::size_t step = query_.sources().at(source).step;
  batch.guarantee = progress_.carried(source, g);
  deliver(step, 0, std::move(batch));
  progress_.note(source, g, [this](std::size_t idle, Time follows) {
    Batch none(query_.steps()[query_.sources()[idle].step].schema);
    none.guarantee = follows;
    deliver(query_.sources()[idle].step, 0, std::move(none));
    return true;
  });
}

void DirectRun::deliver(std::size_t step, std::size_t input, Batch batch) {
  std::vector<Batch> out;
  operators_[step]->receive(input, std::move(batch), out);
  const Split* split = query_.steps()[step].split.get();
  for (Batch& made : out) {
    if (output_of_[step] >= 0) receive_(static_cast<std::size_t>(output_of_[step]), made);
    std::vector<Batch> shares;
    if (split) shares = split->divide(made);
    for (const Query::Consumer& to : consumers_[step]) {
      Batch& share = to.partition < 0 ? made : shares[static_cast<std::size_t>(to.partition)];
      if (share.empty() && share.guarantee == kNever) continue;
      deliver(to.step, to.input, to.is_last ? std::move(share) : share);
    }
  }
}

void DirectRun::finish() {
  for (const Query::Port& source : query_.sources()) {
    Batch last(query_.steps()[source.step].schema);
    last.guarantee = kForever;
    deliver(source.step, 0, std::move(last));
  }
}

Time effective_from(const std::vector<Time>& answers, const std::vector<Time>& reaches) {
  const Time latest = *std::max_element(answers.begin(), answers.end());
  if (latest == kNever) return kNever;
  Time sum = 0;  // windows behind each other, at most
  for (const Time reach : reaches) sum = later(sum, reach);
  return later(latest, sum);
}

Time DirectRun::set_consistency(const Consistency& level) {
  check_consistency(level);
  std::vector<Time> answers, reaches;
  for (std::size_t s = 0; s < operators_.size(); ++s) {
    answers.push_back(operators_[s]->set_consistency(level));
    if (query_.steps()[s].partition <= 0) reaches.push_back(operators_[s]->reach());
  }
  // an empty batch sends what a smaller B holds no longer
  for (std::size_t s = 0; s < operators_.size(); ++s)
    for (std::size_t i = 0; i < std::max<std::size_t>(1, query_.steps()[s].inputs.size()); ++i)
      deliver(s, i, Batch(operators_[s]->schema()));
  return effective_from(answers, reaches);
}

std::vector<Counters> DirectRun::counters() const {
  std::vector<Counters> all;
  for (const auto& op : operators_) all.push_back(op->counters());
  return all;
}

std::string text_of(const std::vector<Counters>& counters) {
  std::string out =
      fmt::format("{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}{:>9}{:>11}\n", "operator", "in",
                  "retracted", "out", "retracted", "blocked", "state", "peak", "peak bytes");
  for (const Counters& c : counters)
    out += fmt::format("{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}{:>9}{:>11}\n", c.name,
                       c.events_in, c.retractions_in, c.events_out, c.retractions_out, c.blocked,
                       c.state, c.peak_state, c.peak_bytes);
  for (const Counters& c : counters) {
    if (c.clipped + c.dropped + c.refused > 0)
      out += fmt::format("{}: {} clipped, {} dropped, {} refused\n", c.name, c.clipped, c.dropped,
                         c.refused);
    for (const std::string& complaint : c.complaints) out += complaint + "\n";
  }
  return out;
}

}  // namespace troupe::events
