#include <troupe/cluster/checkpoint/saved_states.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/engine/state_table.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/saved_actor.hpp>

namespace troupe {
namespace {

// Visits that are under way; the last one to end calls `done`.
class OpenVisits {
 public:
  explicit OpenVisits(std::function<void(Status, NamedTensors)> done) : done_(std::move(done)) {}
  void begin() {
    std::lock_guard lock(mutex_);
    ++open_;
  }
  void add(std::string name, Tensor value) {
    std::lock_guard lock(mutex_);
    values_.emplace_back(std::move(name), std::move(value));
  }
  void end(const Status& status) {
    {
      std::lock_guard lock(mutex_);
      if (first_.ok()) first_ = status;
      if (--open_ > 0) return;
    }
    done_(first_, std::move(values_));
  }

 private:
  const std::function<void(Status, NamedTensors)> done_;
  std::mutex mutex_;  // guards all below
  int open_ = 1;      // the caller's own
  Status first_;      // the first error
  NamedTensors values_;
};

[[noreturn]] void refuse_state(const std::string& name, const std::string& why) {
  throw Error(Code::failed_precondition, fmt::format("'{}' {}", name, why));
}

SavedActor& saved_actor(NodeActor& actor, const std::string& name) {
  auto* const saved = dynamic_cast<SavedActor*>(&actor);
  if (!saved)
    throw Error(
        Code::failed_precondition,
        fmt::format("actor '{}' cannot be in a checkpoint, so that a training with it could "
                    "not go on after a loss; derive it from SavedActor, with `save` and "
                    "`load` (ops/graph/saved_actor.hpp)",
                    name));
  return *saved;
}

bool is_shuffling(const StateStore& states, const std::string& name) {
  for (const StateSpec& spec : states.specs())
    if (spec.name == name) return spec.kind == StateSpec::Kind::shuffling_queue;
  return false;
}

// Results of requests to a queue. The requests share them, because one may wait in the queue.
struct Outcomes {
  std::mutex mutex;  // guards all below
  std::vector<std::vector<Value>> elements;
  Status first;  // the first error
};

// The elements, which are taken out, and behind them those that waited for room.
std::vector<std::vector<Value>> taken_out(QueueState& queue) {
  const RunInfo run;
  const auto taken = std::make_shared<Outcomes>();
  for (std::int64_t left = queue.size(); left > 0; left = queue.size())
    for (; left > 0; --left)
      queue.dequeue(run, [taken](const Status& status, std::vector<Value> element) {
        std::lock_guard lock(taken->mutex);
        if (status.ok()) taken->elements.push_back(std::move(element));
      });
  queue.cancel(run.id, Status(Code::aborted, "the queue is empty"));
  std::lock_guard lock(taken->mutex);
  return std::move(taken->elements);
}

// Elements for which there is no room wait in the queue.
Status put_in(QueueState& queue, const std::vector<std::vector<Value>>& elements) {
  const RunInfo run;
  const auto put = std::make_shared<Outcomes>();
  for (const std::vector<Value>& element : elements)
    queue.enqueue(run, element, [put](const Status& status, const std::vector<Value>&) {
      std::lock_guard lock(put->mutex);
      if (put->first.ok()) put->first = status;
    });
  std::lock_guard lock(put->mutex);
  return put->first;
}

void save_queue(QueueState& queue, const StateStore& states, const std::string& name,
                OpenVisits& visits) {
  if (queue.size() > 0 && is_shuffling(states, name))
    refuse_state(name, fmt::format("is a shuffling queue with {} elements between two steps, which "
                                   "checkpoints do not have; empty it within the step",
                                   queue.size()));
  const std::vector<std::vector<Value>> elements = taken_out(queue);
  put_in(queue, elements).throw_if_error();
  for (std::size_t i = 0; i < elements.size(); ++i)
    for (std::size_t c = 0; c < elements[i].size(); ++c) {
      if (elements[i][c].is_list())
        refuse_state(name, "is a queue with lists, which checkpoints do not have; enqueue tensors");
      visits.add(fmt::format("{}{}{}.{}", name, kOfState, i, c), elements[i][c].tensor());
    }
}

void save_state(const std::shared_ptr<StateStore>& states, const std::string& name,
                const std::shared_ptr<OpenVisits>& visits) {
  const Ref<State> state = states->find(name);
  if (auto* const actor = dynamic_cast<VisitedActor*>(state.get())) {
    visits->begin();
    actor->visit(
        [name, visits](NodeActor& visited) {
          for (auto& [key, value] : saved_actor(visited, name).save()) {
            if (key.empty() || key.find(kOfState) != std::string::npos)
              throw Error(Code::invalid_argument,
                          fmt::format("actor '{}' saves a value under the name '{}'; use a name "
                                      "without '{}'",
                                      name, key, kOfState));
            visits->add(fmt::format("{}{}{}", name, kOfState, key), value);
          }
        },
        [visits, state, states](const Status& status) { visits->end(status); });
  } else if (auto* const queue = dynamic_cast<QueueState*>(state.get())) {
    save_queue(*queue, *states, name, *visits);
  } else {
    return visits->add(name, variable_value(*states, name));
  }
  visits->add(fmt::format("{}{}", name, kOfState), Tensor::scalar<std::uint8_t>(1));
}

// `0.1`, an element and its component; false if it is none.
bool read_place(const std::string& key, std::size_t& element, std::size_t& component) {
  const char* const end = key.data() + key.size();
  const auto [dot, first] = std::from_chars(key.data(), end, element);
  if (first != std::errc() || dot == end || *dot != '.') return false;
  const auto [last, second] = std::from_chars(dot + 1, end, component);
  return second == std::errc() && last == end;
}

void load_queue(QueueState& queue, const StateStore& states, const std::string& name,
                const SavedValues& values) {
  if (queue.size() > 0 && is_shuffling(states, name))
    refuse_state(name, fmt::format("is a shuffling queue with {} elements, which cannot be taken "
                                   "out for those of a checkpoint",
                                   queue.size()));
  std::map<std::pair<std::size_t, std::size_t>, Tensor> places;
  for (const auto& [key, value] : values) {
    std::pair<std::size_t, std::size_t> place;
    if (!read_place(key, place.first, place.second))
      throw Error(Code::data_loss, fmt::format("queue '{}' has no element '{}'", name, key));
    places[place] = value;
  }
  std::vector<std::vector<Value>> elements;
  for (auto& [place, value] : places) {
    if (place.first == elements.size()) elements.emplace_back();
    if (place.first + 1 != elements.size() || place.second != elements.back().size())
      throw Error(Code::data_loss, fmt::format("queue '{}' lacks elements", name));
    elements.back().push_back(std::move(value));
  }
  taken_out(queue);
  put_in(queue, elements).throw_if_error();
}

void load_state(const std::shared_ptr<StateStore>& states, const std::string& name,
                const SavedValues& values, const std::shared_ptr<OpenVisits>& visits) {
  const Ref<State> state = states->find(name);
  if (auto* const actor = dynamic_cast<VisitedActor*>(state.get())) {
    visits->begin();
    actor->visit([name, values](NodeActor& visited) { saved_actor(visited, name).load(values); },
                 [visits, state, states](const Status& status) { visits->end(status); });
  } else if (auto* const queue = dynamic_cast<QueueState*>(state.get())) {
    load_queue(*queue, *states, name, values);
  } else {
    throw Error(Code::not_found, fmt::format("there is no queue or actor '{}'", name));
  }
}

}  // namespace

void save_states(const std::shared_ptr<StateStore>& states, const std::vector<std::string>& names,
                 std::function<void(Status status, NamedTensors values)> done) {
  const auto visits = std::make_shared<OpenVisits>(std::move(done));
  Status status;
  try {
    for (const std::string& name : names) save_state(states, name, visits);
  } catch (...) { status = Status::from_current_exception(); }
  visits->end(status);
}

void load_states(const std::shared_ptr<StateStore>& states, const NamedTensors& values,
                 std::function<void(Status status)> done) {
  const auto visits = std::make_shared<OpenVisits>(
      [done = std::move(done)](const Status& status, const NamedTensors&) { done(status); });
  Status status;
  try {
    // Names of queues and actors end where their `#` value's does.
    std::map<std::string, SavedValues> others;
    for (const auto& [name, value] : values)
      if (name.ends_with(kOfState)) others[name.substr(0, name.size() - 1)];
    for (const auto& [name, value] : values) {
      const auto of = std::find_if(others.begin(), others.end(), [&n = name](const auto& other) {
        return n.size() > other.first.size() && n.starts_with(other.first) &&
               n[other.first.size()] == kOfState;
      });
      if (of == others.end()) replace_variable(*states, name, value);
      else if (name.size() > of->first.size() + 1)
        of->second.emplace(name.substr(of->first.size() + 1), value);
    }
    for (const auto& [name, saved] : others) load_state(states, name, saved, visits);
  } catch (...) { status = Status::from_current_exception(); }
  visits->end(status);
}

}  // namespace troupe
