// Host callbacks: C++ code that gets the values of a graph when it runs, as a node.
//
//   Expr y = host_callback("simulate", {x}, {DType::f32, Shape{}},
//                          [&](std::span<const Tensor> in) { return simulator.step(in[0]); },
//                          {.gradient = [](Expr dy, const auto& xs, Expr) { return ...; }});
//
// In a traced function or a graph it is a user's actor (actor_node.hpp), which fires in program
// order, in each run. On an eager scope the code runs at once. The code sees tensors on the host.
// Its exceptions, and results of another dtype or shape than declared, fail the run with an error
// that names the callback and the user's line. It may block if `blocks` is set; else it holds up a
// worker. A program with a callback runs in this process only: it cannot be saved or sent.
// **Threads**: one call at a time. **Ownership**: the graph, and the engine that runs it, keep the
// code and what it has captured.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <troupe/ops/graph/custom_gradient.hpp>

namespace troupe {

/// Gets the values of the inputs and returns the result.
using HostFunction = std::function<Tensor(std::span<const Tensor> inputs)>;

struct HostCallbackOptions {
  /// The gradients of the inputs, as expressions; it may call other callbacks. Empty: a path that
  /// goes through the callback is refused when its gradient is taken.
  GradientFunction gradient = {};
  /// The code waits for the outside world and gets its own thread.
  bool blocks = false;
};

/// `xs`: at least one expression. `result`: its extents may be unknown. Throws invalid_argument for
/// an empty name or function.
Expr host_callback(const std::string& name, const std::vector<Expr>& xs, const ValueSpec& result,
                   HostFunction function, HostCallbackOptions options = {},
                   std::source_location at = std::source_location::current());

}  // namespace troupe
