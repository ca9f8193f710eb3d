#include <troupe/ops/eager/run_kernel.hpp>

#include <condition_variable>
#include <mutex>

#include <fmt/format.h>

#include <troupe/ops/graph/transfer.hpp>

namespace troupe::detail {
namespace {

// Waits for a deferred kernel; its Completion may be fulfilled by any thread.
class Waiter final : public CompletionSink {
 public:
  void complete(void*, Status status, std::span<Value> outputs) override {
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
    for (Value& v : outputs) outputs_.push_back(std::move(v));
    done_ = true;
    changed_.notify_all();
  }
  std::vector<Value> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    status_.throw_if_error();
    return std::move(outputs_);
  }

 private:
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  bool done_ = false;
  Status status_;
  std::vector<Value> outputs_;
};

// The error of a kernel that would wait at the queue for ever.
Status stuck(const StateSpec& spec, const QueueState& queue) {
  const std::int64_t size = queue.size();
  const auto say = [&](std::string_view what) {
    return Status(Code::failed_precondition, fmt::format("queue '{}' {}", spec.name, what));
  };
  if (size >= spec.capacity)
    return say(
        fmt::format("is full, its capacity is {}, and nothing else runs here that could empty it; "
                    "dequeue first",
                    spec.capacity));
  if (size == 0)
    return say("is empty and nothing else runs here that could fill it; enqueue first");
  return say(
      fmt::format("keeps back {} elements of the {} it has, and nothing else runs here that could "
                  "fill it; enqueue more, or close it",
                  spec.min_after_dequeue, size));
}

}  // namespace

void run_kernel_blocking(Kernel& kernel, std::span<Value> inputs, std::span<Value> outputs,
                         Device& device, Stream& stream, const RunInfo& run, const StateInUse& use,
                         std::uint64_t tag, bool is_alone) {
  for (Value& v : inputs)
    if (v.kind() == Value::Kind::tensor) copy_to_device(v.tensor(), device, stream);
  KernelContext context(inputs, outputs, device, stream, run);
  context.set_tag(tag);
  Waiter waiter;
  context.set_sink(&waiter, nullptr);
  try {
    kernel.run(context);
  } catch (const Error&) { throw; } catch (...) {
    // a user's kernel throws anything; callers add the op and its line to an Error
    Status::from_current_exception().throw_if_error();
  }
  if (!context.was_deferred()) return;
  // has no effect if the kernel has ended
  if (auto* queue = dynamic_cast<QueueState*>(use.state.get()); queue && is_alone)
    queue->cancel(run.id, stuck(*use.spec, *queue));
  std::vector<Value> results = waiter.wait();
  for (std::size_t i = 0; i < outputs.size() && i < results.size(); ++i)
    outputs[i] = std::move(results[i]);
}

}  // namespace troupe::detail
