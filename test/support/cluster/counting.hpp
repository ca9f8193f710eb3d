// A run that gets on for as long as a test needs it.
#pragma once

#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

/// A loop of one node's that counts to a number it comes nearer to.
struct Counting {
  Graph g;
  Expr last;
  Counting() {
    auto here = g.on_device("/node:a/cpu:0");
    last = while_loop([](Expr i) { return i < 1'000'000'000; }, [](Expr i) { return i + 1; },
                      g.constant(0), {.name = "counting"});
  }
};

inline void end(Nodes& nodes, RunHandle& run) {
  run.cancel();
  while (!run.is_done()) nodes.step();
}

}  // namespace troupe::test
