// Partitions: the firing rule. A partition owns the records of its runs, matches tokens by index,
// fires what is ready and delivers the results; its actor drives it.
//
//   deliver ─► last awaited token ─► ready ─► fire ─► kernel returns ─► deliver to successors …
//                                              │
//                                              ├─► heavy, and others too: handed to a worker ─┐
//                                              └─► kernel took a Completion ──────────────────┤
//                                                       Ended message to the actor ◄──────────┘
//
// Threads: everything here runs in the actor's turn, but for `complete` and `Firing::run`, which
// touch only their firing and then post it.
// Invariants: 1. a node fires once per run: when its last awaited token arrives; 2. a slot is written
// by one token and emptied by its node's firing; 3. a run leaves the partition when every node has
// fired, kernel or none: an error skips kernels, not firings, so draining is counted, never guessed;
// 4. `ready` and `heavy` hold each node at most once, so their capacity is fixed; 5. after the first
// run nothing is allocated: records and firings are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include <troupe/actors/run.hpp>
#include <troupe/devices/worker_pool.hpp>
#include <troupe/actors/engine.hpp>

namespace troupe {

class Partition;
struct Record;

/// A kernel that ends outside its partition's turn.
struct Firing {
  Partition* partition = nullptr;
  Record* record = nullptr;
  std::int32_t node = 0;
  std::vector<Value> outputs;
  Status status;
  std::int64_t nanoseconds = 0;  // of a handed-over kernel
  Ref<Run> run;                  // a handed-over kernel keeps its run
};

// ---- what a partition's actor receives

struct StartRun {
  Ref<Run> run;
};
/// A firing has ended; its outputs are in it.
struct Ended {
  Firing* firing;
};
/// A token over a cut edge. An empty value: the firing that made it was skipped.
struct Token {
  Ref<Run> run;
  Target target;
  Value value;
};
using PartitionMessage = std::variant<StartRun, Ended, Token>;

/// What a partition needs of whoever drives it.
class PartitionDriver {
 public:
  /// From any thread.
  virtual void post_self(PartitionMessage message) = 0;
  virtual void post(std::int32_t partition, PartitionMessage message) = 0;
  /// Runs a kernel elsewhere; ends with `Firing::partition->run_elsewhere(firing)`.
  virtual void hand_over(Firing& firing) = 0;
  /// The run failed here: other partitions and waiters on state must hear of it.
  virtual void run_failed(Run& run) = 0;

 protected:
  ~PartitionDriver() = default;
};

/// A fetched tensor on its way from a device.
struct Landing {
  std::int32_t index;
  Tensor host;
  Shape shape;
};

/// One run's values and counts in one partition.
struct Record {
  Ref<Run> run;
  std::vector<Value> values;          // by slot
  std::vector<std::int32_t> awaited;  // by node
  std::vector<std::int32_t> ready;    // a stack: what was just enabled is warm
  std::vector<std::int32_t> heavy;    // ready nodes whose kernels are worth another worker
  std::int32_t unfired = 0;
  std::int32_t outside = 0;  // firings that have not ended yet
  std::vector<Landing> landings;
  std::shared_ptr<Fault> fault;  // of a stream device: what its work reports later
};

class Partition final : public CompletionSink {
 public:
  Partition(std::shared_ptr<const Plan> plan, std::int32_t index, Granularity granularity, int workers, PartitionDriver& driver);
  ~Partition();

  void receive(PartitionMessage& message);
  /// Fires up to `budget` nodes; true if more are ready.
  bool turn(int budget);
  bool is_idle() const { return active_.empty(); }

  /// Runs a handed-over firing's kernel, on any thread, and posts its end.
  void run_elsewhere(Firing& firing);
  void complete(void* ticket, Status status, std::span<Value> outputs) override;

 private:
  static constexpr std::int64_t kHeavy = 20'000;  // ns; waking a parked worker costs 7, its arrival 22 µs
  static constexpr std::uint32_t kSampled = 1024; // one firing in so many is timed

  void start(Ref<Run> run);
  void accept(Token& token);
  void fire(Record& record, std::int32_t node);
  void skip(Record& record, std::int32_t node);
  bool run_kernel(Record& record, std::int32_t node);
  void finish(Record& record, std::int32_t node, Value* outputs);
  void end(Record& record);
  void deliver(Record& record, const Target& target, Value&& value);
  void fetch(Record& record, std::int32_t index, Value&& value);
  Tensor land(const Tensor& on_device);
  void send(Record& record, const RemoteTarget& remote, Value&& value);
  void count_down(Record& record, std::int32_t node);
  void fail(Run& run, std::int32_t node, const Status& status);
  void measure(std::int32_t node, std::int64_t nanoseconds);
  Firing& take_firing(Record& record, std::int32_t node);
  void dispatch_heavy(Record& record);
  KernelContext context(Record& record, std::int32_t node, Value* outputs);

  struct Cost {
    std::int64_t nanoseconds = 0;
    std::int32_t samples = 0;
  };

  const std::shared_ptr<const Plan> plan_;
  const PartitionPlan& mine_;
  const std::int32_t index_;
  const Granularity granularity_;
  const int workers_;
  PartitionDriver& driver_;
  std::unique_ptr<Stream> stream_;
  std::vector<Value> scratch_;  // outputs of the firing under way
  std::vector<std::unique_ptr<Record>> records_;
  std::vector<Record*> idle_;
  std::vector<Record*> active_;
  std::size_t next_active_ = 0;  // whose turn it is among the runs in flight
  std::vector<std::unique_ptr<Firing>> firings_;
  std::vector<Firing*> spare_;
  std::vector<Cost> costs_;
  std::uint32_t tick_ = 0;
};

}  // namespace troupe
