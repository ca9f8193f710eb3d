// A user's actor whose state is in the checkpoints of a training (cluster/training).
//
//   struct Lines : SavedActor {
//     std::int64_t next = 0;
//     void receive(std::span<const Tensor>, std::span<Tensor> out) override { ... ++next; }
//     SavedValues save() const override { return {{"next", Tensor::scalar(next)}}; }
//     void load(const SavedValues& values) override {
//       next = values.at("next").item<std::int64_t>();
//     }
//   };
//
// A training with an actor that is no SavedActor is refused: after a loss it could not go on with
// the same bits. An actor without state returns nothing from `save`.
//
// Threads: `save` and `load` are called between firings, where the actor runs.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <troupe/ops/graph/actor_node.hpp>

namespace troupe {

using SavedValues = std::map<std::string, Tensor>;

class SavedActor : public NodeActor {
 public:
  /// Returns the state. Values are on the host, and have dtypes of safetensors.
  virtual SavedValues save() const = 0;
  /// Sets the state to a saved one. May throw.
  virtual void load(const SavedValues& values) = 0;
};

namespace detail {

/// The state behind an actor node, whose actor can be used between two firings.
class VisitedActor {
 public:
  using Use = std::function<void(NodeActor& actor)>;
  using Done = std::function<void(const Status& status)>;

  /// Calls `use` when the firings before have ended, then `done`, with the error of `use` or of the
  /// factory if there is one. The actor is made if it is not there. Both are called once, on any
  /// thread. An error of `use` is no failure of the actor.
  virtual void visit(Use use, Done done) = 0;

 protected:
  ~VisitedActor() = default;
};

}  // namespace detail

}  // namespace troupe
