// Kernels that end outside their partition's turn: those that another worker runs, and those that
// took their Completion.
#include <troupe/actors/executor/partition.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace troupe {
namespace {

// The kernel under way on this thread. One that throws drops the Completion that it had taken while
// the exception is on its way, before anybody can know what was thrown: then the firing ends when
// the kernel has, with that.
class Under {
 public:
  explicit Under(void* ticket)
      : ticket_(ticket), exceptions_(std::uncaught_exceptions()),
        outer_(std::exchange(innermost_, this)) {}
  ~Under() { innermost_ = outer_; }
  Under(const Under&) = delete;
  Under& operator=(const Under&) = delete;

  /// Is this the Completion of the kernel under way, dropped by an exception? Keeps what it says of
  /// itself, in case the kernel goes on.
  static bool drops(void* ticket, Status& status) {
    Under* const u = innermost_;
    if (!u || u->ticket_ != ticket || std::uncaught_exceptions() <= u->exceptions_) return false;
    u->is_dropped = true;
    u->status = std::move(status);
    return true;
  }

  bool is_dropped = false;
  Status status;

 private:
  static inline thread_local Under* innermost_ = nullptr;
  void* const ticket_;
  const int exceptions_;
  Under* const outer_;
};

}  // namespace

Firing& Partition::spare_firing() {
  if (spare_.empty()) spare_.push_back(firings_.emplace_back(std::make_unique<Firing>()).get());
  Firing& f = *spare_.back();
  spare_.pop_back();
  f.partition = this;
  return f;
}

Firing& Partition::take_firing(Iteration& iteration, const PlanNode& node) {
  Firing& f = spare_firing();
  f.iteration = &iteration;
  f.node = &node;
  f.nanoseconds = 0;
  f.outputs.resize(static_cast<std::size_t>(node.outputs));
  return f;
}

// Before it is posted: the record is this run's until the end is taken.
void Partition::count_end(const Firing& firing) {
  firing.iteration->instance->record->posted.fetch_add(1, std::memory_order_relaxed);
}

void Partition::run_elsewhere(Firing& firing) {
  Ref<Run> run = firing.run;  // stays until the kernel has returned
  firing.waits_for_worker.store(false, std::memory_order_relaxed);
  KernelContext c = context(*firing.iteration, *firing.node, firing.outputs.data());
  c.set_sink(this, &firing);
  firing.put = firing.node->makes_list ? put_into_lists(*firing.iteration, *firing.node) : 0;
  const std::int64_t start = steady_ns();
  Under under(&firing);
  try {
    firing.node->kernel->run(c);
  } catch (...) {
    if (c.was_deferred() && !under.is_dropped) return;  // its Completion ends it, or has
    firing.status = Status::from_current_exception();
  }
  if (c.was_deferred() && !under.is_dropped) return;
  if (under.is_dropped && firing.status.ok()) firing.status = std::move(under.status);
  firing.ran = start;
  firing.nanoseconds = std::max<std::int64_t>(1, steady_ns() - start);
  count_end(firing);
  driver_.post_self(Ended{&firing});
}

void Partition::complete(void* ticket, Status status, std::span<Value> outputs) {
  if (Under::drops(ticket, status)) return;
  auto& firing = *static_cast<Firing*>(ticket);
  firing.status = std::move(status);
  firing.nanoseconds = 0;
  firing.outputs.clear();
  for (Value& v : outputs) firing.outputs.push_back(std::move(v));
  count_end(firing);
  driver_.post_self(Ended{&firing});
}

}  // namespace troupe
