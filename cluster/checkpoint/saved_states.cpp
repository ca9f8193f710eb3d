#include <troupe/cluster/checkpoint/saved_states.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/engine/state_table.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/list/list.hpp>
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

// Keys of a queue beside those of its elements, which are numbers.
constexpr const char *kDraws = "draws", *kClosed = "closed";

// A list has its length, depth, dtype and element shape under `key/`, and its elements, but for
// those that were never written, under `key/0`, `key/1` and so on.
void save_value(const std::string& key, const Value& value, OpenVisits& visits) {
  if (!value.is_list()) return visits.add(key, value.tensor());
  const List& list = value.list();
  const Shape& shape = list.element_shape();
  std::vector<std::int64_t> head{list.length(), list.depth(),
                                 static_cast<std::int64_t>(list.dtype()),
                                 shape.has_rank() ? shape.rank() : -1};
  if (shape.has_rank()) head.insert(head.end(), shape.begin(), shape.end());
  visits.add(key + '/', Tensor::of(head, {static_cast<std::int64_t>(head.size())}));
  for (std::int64_t i = 0; i < list.length(); ++i)
    if (const Value element = list.read(i); element.has_value())
      save_value(fmt::format("{}/{}", key, i), element, visits);
}

void save_queue(const QueueState& queue, const std::string& name, OpenVisits& visits) {
  const QueueState::Contents contents = queue.contents();
  for (std::size_t i = 0; i < contents.elements.size(); ++i)
    for (std::size_t c = 0; c < contents.elements[i].size(); ++c)
      save_value(fmt::format("{}{}{}.{}", name, kOfState, i, c), contents.elements[i][c], visits);
  if (contents.draws > 0)
    visits.add(fmt::format("{}{}{}", name, kOfState, kDraws),
               Tensor::scalar(static_cast<std::int64_t>(contents.draws)));
  if (contents.is_closed)
    visits.add(fmt::format("{}{}{}", name, kOfState, kClosed), Tensor::scalar<std::uint8_t>(1));
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
    save_queue(*queue, name, *visits);
  } else {
    return visits->add(name, variable_value(*states, name));
  }
  visits->add(fmt::format("{}{}", name, kOfState), Tensor::scalar<std::uint8_t>(1));
}

[[noreturn]] void refuse_list(const std::string& key) {
  throw Error(Code::data_loss, fmt::format("'{}' describes no list", key));
}

// An empty list, grown to its length, of what was saved under `key/`.
List list_of_head(const std::string& key, const Tensor& head) {
  constexpr std::size_t kFixed = 4;
  if (head.dtype() != DType::i64 || head.shape().rank() != 1) refuse_list(key);
  const std::vector<std::int64_t> n = head.to_vector<std::int64_t>();
  const auto within = [](std::int64_t x, std::int64_t low, std::int64_t high) {
    return x >= low && x <= high;
  };
  if (n.size() < kFixed || !within(n[0], 0, List::kMost) || !within(n[1], 1, List::kAnyDepth) ||
      !within(n[2], 0, kAllDTypes - 1) || !within(n[3], -1, Shape::kMaxRank) ||
      n.size() != kFixed + static_cast<std::size_t>(std::max<std::int64_t>(0, n[3])) ||
      std::any_of(n.begin() + kFixed, n.end(), [](std::int64_t dim) { return dim < kAny; }))
    refuse_list(key);
  const std::vector<std::int64_t> dims(n.begin() + kFixed, n.end());
  List list(static_cast<DType>(n[2]), n[3] < 0 ? Shape::unknown() : Shape(dims),
            static_cast<std::uint8_t>(n[1]));
  list.grow(n[0]);
  return list;
}

// Takes the value of a key, and all that belongs to it, out of `left`; nothing if there is none.
std::optional<Value> take_value(const std::string& key, SavedValues& left) {
  if (auto tensor = left.extract(key)) return Value(std::move(tensor.mapped()));
  const auto head = left.extract(key + '/');
  if (!head) return std::nullopt;
  List list = list_of_head(key, head.mapped());
  for (std::int64_t i = 0; i < list.length(); ++i)
    if (std::optional<Value> element = take_value(fmt::format("{}/{}", key, i), left))
      list.write(i, std::move(*element));
  return Value(std::move(list));
}

void load_queue(QueueState& queue, const std::string& name, const SavedValues& values) {
  QueueState::Contents contents;
  SavedValues left = values;
  if (const auto draws = left.extract(kDraws)) {
    if (draws.mapped().dtype() != DType::i64 || draws.mapped().elements() != 1)
      throw Error(Code::data_loss,
                  fmt::format("queue '{}': '{}' is no number of draws", name, kDraws));
    contents.draws = static_cast<std::uint64_t>(draws.mapped().to_vector<std::int64_t>()[0]);
  }
  contents.is_closed = bool(left.extract(kClosed));
  for (std::vector<Value> element;; contents.elements.push_back(std::exchange(element, {}))) {
    while (auto value =
               take_value(fmt::format("{}.{}", contents.elements.size(), element.size()), left))
      element.push_back(std::move(*value));
    if (element.empty()) break;
  }
  if (!left.empty())
    throw Error(Code::data_loss,
                fmt::format("queue '{}' has no place for '{}', or lacks elements before it", name,
                            left.begin()->first));
  queue.replace(std::move(contents));
}

void load_state(const std::shared_ptr<StateStore>& states, const std::string& name,
                const SavedValues& values, const std::shared_ptr<OpenVisits>& visits) {
  const Ref<State> state = states->find(name);
  if (auto* const actor = dynamic_cast<VisitedActor*>(state.get())) {
    visits->begin();
    actor->visit([name, values](NodeActor& visited) { saved_actor(visited, name).load(values); },
                 [visits, state, states](const Status& status) { visits->end(status); });
  } else if (auto* const queue = dynamic_cast<QueueState*>(state.get())) {
    load_queue(*queue, name, values);
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
