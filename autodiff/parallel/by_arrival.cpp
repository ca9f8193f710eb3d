// Steps whose gradients are applied as they arrive: asynchronous, and with backup workers.
#include <troupe/autodiff/parallel/data_parallel.hpp>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include <troupe/autodiff/parallel/replica_gradients.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::data_parallel {
namespace {

// A gradient in the queue: its ticket, the replica, its loss, and the parts of each variable's. The
// ticket (i64, [2]) is what was fed when the gradient was sent. The step that takes the gradient
// discards it if the first number is another; `with_backups` compares both.
struct Arrived {
  Expr ticket, replica, loss;
  Exprs slopes;  // dense: one a variable; rows: indices, values
};

// [replicas], i64: one for this replica.
Expr only(const Expr& replica, int replicas) {
  return cast(reshape(one_hot(replica, replicas), {replicas}), DType::i64);
}

class Queued {
 public:
  Queued(const Replicas& replicas, const collective::Group& group, const Exprs& losses,
         const std::vector<Variable>& variables, bool keeps_rows, At at)
      : replicas_(replicas), variables_(variables), home_(replicas.home_of(variables.at(0))) {
    Graph& graph = replicas.graph();
    const std::string name = group.name() + "/arrivals";
    arrivals_.ticket = graph.input(name + "/ticket", DType::i64, {2}, at);
    std::vector<std::vector<Cotangent>> all;
    for (int r = 0; r < replicas.size(); ++r) all.push_back(replicas.gradients_of(r, variables));
    for (std::size_t i = 0; i < variables.size(); ++i)
      are_rows_.push_back(keeps_rows && std::all_of(all.begin(), all.end(), [&](const auto& of) {
                            return of[i].is_sparse();
                          }));
    at_home([&] {
      queue_ = graph
                   .fifo_queue(name, components(all[0], losses[0]),
                               ArrivalStep::kRoom * replicas.size(), at)
                   .state();
      arrivals_.counts = graph.variable(name + "/counts", DType::i64, {replicas.size()},
                                        Initializer::constant(0), at);
    });
    arrivals_.queue = graph.state_spec(queue_).name;
    for (int r = 0; r < replicas.size(); ++r)
      parts_.push_back(parts_of(r, all[static_cast<std::size_t>(r)], losses, group));
  }

  /// Calls `f` with nodes where the queue is. An optimizer's nodes are where their variables are.
  template <class F>
  void at_home(F f) const {
    const auto there = replicas_.graph().on_device(home_);
    f();
  }
  const ArrivalStep& arrivals() const { return arrivals_; }
  /// Makes the nodes that send gradients, after those of the update. An update whose dequeue stood
  /// behind them would be warned of as a read without its effects, which other programs run.
  void send(ArrivalStep& a, At at) const {
    at_home([&] {
      for (const Exprs& parts : parts_)
        a.sent.push_back(
            replicas_.graph().bind(find_op("Enqueue"), parts, {}, Site(at), queue_)[0]);
    });
  }
  Arrived take(At at) const {
    Exprs parts = Queue(&replicas_.graph(), queue_).dequeue(at);
    return {
        parts[0], parts[1], parts[2],
        Exprs(std::make_move_iterator(parts.begin() + 3), std::make_move_iterator(parts.end()))};
  }
  /// Takes gradients until `a.needed` of the ticket's step are there: their number, the sum of
  /// their losses, the replicas that sent them ([replicas], i64), and the sum of each variable's.
  Exprs first(const ArrivalStep& a, At at) const {
    Graph& graph = replicas_.graph();
    const std::vector<ValueSpec>& parts = graph.state_spec(queue_).values;
    Exprs none{graph.constant(std::int64_t{0}), graph.zeros(parts[2].dtype, Shape()),
               graph.zeros(DType::i64, Shape{replicas_.size()})};
    for (auto spec = parts.begin() + 3; spec != parts.end(); ++spec)
      none.push_back(graph.zeros(spec->dtype, spec->shape));
    // One at a time: an iteration that began early would take a gradient of the next step.
    return while_loop(
        [&](const Exprs& v) { return v[0] < static_cast<std::int64_t>(a.needed); },
        [&](const Exprs& v) {
          const Arrived arrived = take(at);
          const Expr counts = all(arrived.ticket == a.ticket);
          Exprs next{v[0] + cast(counts, DType::i64), v[1] + where(counts, arrived.loss, 0.0),
                     v[2] + where(counts, only(arrived.replica, replicas_.size()), 0)};
          for (std::size_t i = 0; i < arrived.slopes.size(); ++i)
            next.push_back(v[3 + i] + where(counts, arrived.slopes[i], 0.0));
          return next;
        },
        none, {.name = "arrivals", .parallel_iterations = 1}, at);
  }
  /// The gradients of one arrival.
  std::vector<Cotangent> gradients(const Arrived& arrived) const {
    std::vector<Cotangent> out;
    std::size_t at = 0;
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      if (!are_rows_[i]) {
        out.emplace_back(arrived.slopes[at++]);
        continue;
      }
      out.push_back(
          Cotangent::sparse(arrived.slopes[at], arrived.slopes[at + 1], variables_[i].read()));
      at += 2;
    }
    return out;
  }

 private:
  std::vector<ValueSpec> components(const std::vector<Cotangent>& slopes, const Expr& loss) const {
    std::vector<ValueSpec> all{
        {DType::i64, Shape{2}}, {DType::i64, Shape()}, {loss.dtype(), Shape()}};
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      const Cotangent& c = slopes[i];
      if (!are_rows_[i]) {
        all.push_back({(c.is_sparse() ? c.values : c.dense).dtype(), variables_[i].shape()});
        continue;
      }
      Shape rows = variables_[i].shape();
      rows.set(0, kAny);
      all.push_back({c.indices.dtype(), Shape{kAny}});
      all.push_back({c.values.dtype(), rows});
    }
    return all;
  }
  // An element of the queue, made on the replica's device.
  Exprs parts_of(int r, const std::vector<Cotangent>& slopes, const Exprs& losses,
                 const collective::Group& group) const {
    const auto there = replicas_.graph().on_device(group.device(r));
    Exprs parts{arrivals_.ticket, replicas_.graph().constant(static_cast<std::int64_t>(r)),
                reshape(losses[static_cast<std::size_t>(r)], Shape())};
    for (std::size_t i = 0; i < slopes.size(); ++i) {
      if (!are_rows_[i]) {
        parts.push_back(slopes[i].to_dense());
        continue;
      }
      parts.push_back(slopes[i].indices);
      parts.push_back(slopes[i].values);
    }
    return parts;
  }

  const Replicas& replicas_;
  const std::vector<Variable>& variables_;
  const std::string home_;
  std::vector<bool> are_rows_;  // by variable: its gradient is sparse, and stays so
  std::vector<Exprs> parts_;    // by replica: an element of the queue
  int queue_ = -1;
  ArrivalStep arrivals_;
};

// Changes the variables, and counts the replicas whose gradients they were.
Exprs apply(const Queued& queued, const Replicas& replicas, const ArrivalStep& arrivals,
            const std::vector<Cotangent>& slopes, const Expr& counts,
            const std::vector<Variable>& variables, const Optimizer& optimizer, At at) {
  Exprs done{optimizer.apply(replicas.clipped(slopes), variables, at)};
  queued.at_home([&] { done.push_back(arrivals.counts.assign_add(counts)); });
  return done;
}

}  // namespace

ArrivalStep asynchronous(const collective::Group& group, const Exprs& losses,
                         const std::vector<Variable>& variables, const Optimizer& optimizer,
                         const Options& options, At at) {
  const Replicas replicas("asynchronous", group, losses, options, at);
  const Queued queued(replicas, group, losses, variables, true, at);
  ArrivalStep a = queued.arrivals();
  Arrived arrived;
  Expr counts;
  queued.at_home([&] {
    arrived = queued.take(at);
    a.applied = arrived.ticket[0] == a.ticket[0];
    counts = only(arrived.replica, replicas.size());
  });
  a.loss = arrived.loss;
  a.train = when(
      a.applied,
      [&] {
        apply(queued, replicas, a, queued.gradients(arrived), counts, variables, optimizer, at);
      },
      {.name = "apply"}, at);
  queued.send(a, at);
  return a;
}

ArrivalStep with_backups(const collective::Group& group, const Exprs& losses,
                         const std::vector<Variable>& variables, const Optimizer& optimizer,
                         int backups, const Options& options, At at) {
  const Replicas replicas("with_backups", group, losses, options, at);
  if (backups < 0 || backups >= group.size())
    replicas.refuse(
        fmt::format("{} of {} replicas are backups, so that an update awaits {} "
                    "gradients; give 0 to {} backups",
                    backups, group.size(), group.size() - backups, group.size() - 1));
  const Queued queued(replicas, group, losses, variables, false, at);
  ArrivalStep a = queued.arrivals();
  a.needed = group.size() - backups;
  a.drops_late = true;
  Exprs last;
  std::vector<Cotangent> means;
  queued.at_home([&] {
    last = queued.first(a, at);
    const double share = 1.0 / a.needed;
    for (std::size_t i = 3; i < last.size(); ++i) means.emplace_back(last[i] * share);
    a.loss = last[1] * share;
    a.applied = last[0] == static_cast<std::int64_t>(a.needed);
  });
  a.train = troupe::group(apply(queued, replicas, a, means, last[2], variables, optimizer, at), at);
  queued.send(a, at);
  return a;
}

}  // namespace troupe::data_parallel
