#include <troupe/actors/events/partition_host.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <troupe/actors/events/language.hpp>
#include <troupe/actors/runtime/clock.hpp>

namespace troupe::events {
namespace {

/// Makes the caller's plan anew. Throws Error (failed_precondition) if this version makes another.
Query placed_plan(const PartitionCall& call) {
  Query whole = parse_query(call.text.text, call.text.types, call.text.second);
  whole.set_consistency(call.level);
  Query plan = placed(whole, call.nodes, call.partitions);
  if (plan.explain() != call.plan)
    throw Error(Code::failed_precondition,
                "this node makes another plan of the query than the caller; install one version of "
                "Troupe on all nodes");
  return plan;
}

}  // namespace

class PartitionHost::Partition {
 public:
  explicit Partition(const PartitionCall& call)
      : query_(placed_plan(call)), shape_(shape_of(query_, call.partition)),
        operators_(query_.steps().size()), consumers_(operators_.size()) {
    for (const std::size_t s : shape_.steps) {
      const Query::Step& step = query_.steps()[s];
      operators_[s].op = step.make(step.name);
      operators_[s].op->set_consistency(query_.consistency());
      operators_[s].report.taken.resize(step.inputs.size());
      for (std::size_t i = 0; i < step.inputs.size(); ++i)
        consumers_[step.inputs[i]].push_back({s, i});
    }
    for (std::size_t e = 0; e < shape_.exits.size(); ++e)
      operators_[shape_.exits[e]].exit = static_cast<int>(e);
  }

  void work(PartitionCall& call, PartitionAnswer& answer) {
    out_ = &answer.batches;
    for (StreamBatch& of : call.batches) enter(of);
    if (call.changes_level) change_level(call.level, answer);
    if (!call.wants_reports) return;
    for (const std::size_t s : shape_.steps) {
      OperatorReport& report = answer.reports.emplace_back(operators_[s].report);
      report.counters = operators_[s].op->counters();
      report.busy_ns = static_cast<std::uint64_t>(TickClock::now().nanoseconds(operators_[s].busy));
    }
  }

  PartitionAnswer failure;  // the first error

 private:
  struct Hosted {
    std::unique_ptr<Operator> op;
    OperatorReport report;   // without the counters of `op`
    std::uint64_t busy = 0;  // ticks
    int exit = -1;           // position in `exits`; -1: none
  };
  struct Consumer {
    std::size_t step, input;
  };

  void enter(StreamBatch& of) {
    if (of.stream >= shape_.entries.size())
      throw Error(
          Code::data_loss,
          fmt::format("a call has a batch of stream {} of {}; install one version of Troupe "
                      "on all nodes",
                      of.stream, shape_.entries.size()));
    const std::size_t from = shape_.entries[of.stream];
    const Schema& schema = query_.steps()[from].schema;
    check_schema(of.batch, schema, query_.steps()[consumers_[from].front().step].name);
    forward(from, std::move(of.batch));
  }

  /// Delivers to the consumers in the partition.
  void forward(std::size_t from, Batch batch) {
    const std::vector<Consumer>& all = consumers_[from];
    for (std::size_t c = 0; c < all.size(); ++c)
      deliver(all[c].step, all[c].input, c + 1 == all.size() ? std::move(batch) : batch);
  }

  void deliver(std::size_t step, std::size_t input, Batch batch) {
    Hosted& hosted = operators_[step];
    ++hosted.report.tokens, ++hosted.report.taken[input];
    const std::uint64_t began = ticks();
    std::vector<Batch> made;
    hosted.op->receive(input, std::move(batch), made);
    hosted.busy += ticks() - began;
    for (Batch& one : made) {
      if (hosted.exit >= 0) out_->push_back({static_cast<std::size_t>(hosted.exit), one});
      forward(step, std::move(one));
    }
  }

  void change_level(const Consistency& level, PartitionAnswer& answer) {
    check_consistency(level);
    for (const std::size_t s : shape_.steps) {
      answer.effective = std::max(answer.effective, operators_[s].op->set_consistency(level));
      answer.reach = later(answer.reach, operators_[s].op->reach());
    }
    // an empty batch sends what a smaller B holds no longer
    for (const std::size_t s : shape_.steps)
      for (std::size_t i = 0; i < query_.steps()[s].inputs.size(); ++i)
        deliver(s, i, Batch(operators_[s].op->schema()));
  }

  const Query query_;
  const PartitionShape shape_;
  std::vector<Hosted> operators_;                 // by step; empty: runs elsewhere
  std::vector<std::vector<Consumer>> consumers_;  // by step; those in the partition
  std::vector<StreamBatch>* out_ = nullptr;       // during `work`
};

PartitionHost::PartitionHost() = default;
PartitionHost::~PartitionHost() = default;

std::string PartitionHost::slot_name(std::size_t slot) {
  return fmt::format("stream_partition/{}", slot);
}

PartitionAnswer PartitionHost::call(PartitionCall call) {
  PartitionAnswer answer;
  const auto known = partitions_.find(call.run);
  try {
    if (call.kind == PartitionCall::Kind::close) {
      if (known != partitions_.end()) partitions_.erase(known);
    } else if (call.kind == PartitionCall::Kind::open) {
      partitions_.insert_or_assign(call.run, std::make_unique<Partition>(call));
    } else if (known == partitions_.end()) {
      throw Error(
          Code::unavailable,
          "the node has no such partition of the query: it was started again, or its states "
          "were cleared; start the query again");
    } else if (known->second->failure.code != Code::ok) {
      return known->second->failure;
    } else {
      known->second->work(call, answer);
    }
  } catch (...) {
    const Status status = Status::from_current_exception();
    answer = {.code = status.code(), .error = status.message()};
    if (known != partitions_.end() && call.kind == PartitionCall::Kind::work)
      known->second->failure = answer;
  }
  return answer;
}

void PartitionHost::receive(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  outputs[0] = tensor_of(call(read_call(inputs[0])));
}

namespace {

[[maybe_unused]] const bool kAreRegistered = [] {
  for (std::size_t slot = 0; slot < PartitionHost::kSlots; ++slot)
    register_actor(PartitionHost::slot_name(slot),
                   [] { return std::make_unique<PartitionHost>(); });
  return true;
}();

}  // namespace

}  // namespace troupe::events
