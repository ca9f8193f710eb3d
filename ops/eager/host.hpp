// Hosts of eager scopes: an engine, whose states, device and workers a scope uses.
//
//   Engine engine;
//   Eager e(engine);                     // its variables are the engine's
//
// Threads: a host may be used from any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <troupe/ops/graph/program.hpp>

namespace troupe::detail {

/// A program that a host has prepared to run any number of times.
class StagedProgram {
 public:
  virtual ~StagedProgram() = default;
  /// One value a feed in, one a fetch out. Throws the run's error.
  virtual std::vector<Value> run(std::vector<Value> feeds) = 0;
  /// Describes for people what the program does and where.
  virtual std::string explain() const = 0;
};

class EagerHost {
 public:
  /// The states that programs and eager scopes share.
  virtual StateStore& eager_states() = 0;
  /// The device of nodes that name no other.
  virtual Device& eager_device() = 0;
  /// A device by name, made on first use. Throws not_found, or unimplemented for one that eager
  /// scopes cannot compute on.
  virtual Device& eager_device(const std::string& name) = 0;
  virtual std::uint64_t eager_seed() const = 0;
  /// Feeds and fetches may be lists. `keep`: all effects of the graph happen, or only those that
  /// the fetches need. The graph is not used after the call.
  virtual std::unique_ptr<StagedProgram> stage(const Graph& graph, const std::vector<Edge>& feeds,
                                               const std::vector<Edge>& fetches, Keep keep) = 0;

 protected:
  ~EagerHost() = default;
};

}  // namespace troupe::detail
