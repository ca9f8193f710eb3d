// The checkpoints of a training: in one folder, or on the disks of the cluster's nodes.
//
//   FolderCheckpoints one("checkpoints", node);
//   NodeCheckpoints many(node, driver, 1, log);
//   auto write = many.take(40, {}, values);     // training stands still for this alone
//   write();                                    // on any thread
//   for (const CheckpointId& id : many.all()) NamedTensors t = many.read(id);
//
// Threads: one at a time, but for the function that `take` returns, which one other thread may run
// meanwhile. Ownership: the node and the driver outlive them, and they such a function.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <troupe/cluster/checkpoint/manifest.hpp>
#include <troupe/cluster/checkpoint/shard_file.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/training/checkpoint_folder.hpp>
#include <troupe/cluster/training/training_driver.hpp>

namespace troupe::detail {

class TrainingCheckpoints {
 public:
  /// A state of the program and the node where it lives; empty, for a variable: not known.
  struct Value {
    std::string name;
    std::string node;
    std::optional<Variable> variable = {};  // none: a queue or an actor, or `given`
    std::optional<Tensor> given = {};       // the driver's value, for a state beside `node`
  };
  using Values = std::vector<Value>;
  using Log = std::function<void(const std::string& line)>;

  virtual ~TrainingCheckpoints() = default;
  /// Returns the checkpoints that there are, in order.
  virtual std::vector<CheckpointId> all() = 0;
  /// If `all` returned none: why there has to be one that is out of reach; empty: nothing is known
  /// of any.
  virtual std::string missing() const { return {}; }
  /// Returns its name for error texts and the log.
  virtual std::string text(const CheckpointId& id) const = 0;
  /// Throws data_loss if it is damaged, and unavailable if a node that has it is not there.
  virtual NamedTensors read(const CheckpointId& id) = 0;
  /// Sets variables of the program where they live, as far as these nodes have their values, and
  /// puts their names into `set`. Returns the values that the caller is to set. Throws as `read`.
  virtual NamedTensors restore(const CheckpointId& id, const Values& program,
                               std::set<std::string>& set) {
    (void)program, (void)set;
    return read(id);
  }
  /// Takes the values between two steps; they are those of the step, whatever later ones do.
  /// Returns a function that writes them, which throws unavailable if a node was lost meanwhile,
  /// and the error of a disk.
  virtual std::function<void()> take(std::int64_t step, std::optional<double> metric,
                                     const Values& values) = 0;
  /// Removes what no rule keeps. `written`: the step of the last checkpoint.
  virtual void prune(const CheckpointPolicy& policy, std::int64_t written) = 0;
};

class FolderCheckpoints final : public TrainingCheckpoints {
 public:
  FolderCheckpoints(const std::string& folder, ClusterNode& node, const TrainingDriver& driver)
      : node_(node), driver_(driver), folder_(folder) {}
  std::vector<CheckpointId> all() override;
  std::string text(const CheckpointId& id) const override { return folder_.path(id.step); }
  NamedTensors read(const CheckpointId& id) override { return folder_.read(id.step).tensors; }
  std::function<void()> take(std::int64_t step, std::optional<double> metric,
                             const Values& values) override;
  void prune(const CheckpointPolicy& policy, std::int64_t written) override {
    folder_.prune(policy, written);
  }

 private:
  static std::uint64_t next_place();

  ClusterNode& node_;
  const TrainingDriver& driver_;
  const CheckpointFolder folder_;
  const std::uint64_t place_ =
      next_place();  // number of its values at a node, from `take` to `fetch`
};

class NodeCheckpoints final : public TrainingCheckpoints {
 public:
  /// `copies`: so many nodes have a shard besides the one that writes it.
  NodeCheckpoints(ClusterNode& node, TrainingDriver& driver, int copies, Log log)
      : node_(node), driver_(driver), copies_(copies), log_(std::move(log)) {}
  std::vector<CheckpointId> all() override;
  std::string missing() const override { return missing_; }
  std::string text(const CheckpointId& id) const override;
  NamedTensors read(const CheckpointId& id) override;
  /// Each node reads its own disk, all at a time. If the checkpoint's variables are not exactly the
  /// program's, or one of the nodes fails, the driver reads all.
  NamedTensors restore(const CheckpointId& id, const Values& program,
                       std::set<std::string>& set) override;
  std::function<void()> take(std::int64_t step, std::optional<double> metric,
                             const Values& values) override;
  void prune(const CheckpointPolicy& policy, std::int64_t written) override;

 private:
  CheckpointRequest request(CheckpointRequest::Kind kind) const;
  std::vector<std::string> keepers() const;
  std::vector<std::string> holders(const std::string& node, const std::vector<std::string>& among,
                                   std::size_t shard) const;
  Manifest manifest(const CheckpointId& id);
  OpenShard opener(const Manifest& manifest);
  void write(Manifest manifest, const std::vector<std::string>& nodes);

  ClusterNode& node_;
  TrainingDriver& driver_;
  const int copies_;
  const Log log_;
  std::map<CheckpointId, std::vector<std::string>> found_;  // nodes with a manifest
  std::string missing_;                                     // if there are none
};

}  // namespace troupe::detail
