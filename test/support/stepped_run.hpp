// A run of an engine whose steps a test takes, which is given up with the test.
#pragma once

#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::test {

struct SteppedRun {
  Engine engine;
  RunHandle run;
  /// `options`: deterministic.
  SteppedRun(Graph& g, const std::vector<Expr>& fetches, const RunOptions& of_run = {},
             const EngineOptions& options = {.deterministic = true})
      : engine(options), run(engine.compile(g, {}, fetches).start({}, of_run)) {}
  SteppedRun(SteppedRun&&) = delete;
  ~SteppedRun() {
    run.cancel();
    while (engine.take_step()) {}
  }
};

}  // namespace troupe::test
