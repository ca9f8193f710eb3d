// Places where a graph can be run: one test runs on each.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/autodiff/check.hpp>
#include <troupe/test/support/gpu.hpp>

namespace troupe::test {

struct Place {
  std::string name;
  Evaluator evaluate;
};

/// The interpreter and the engine, on the host and on the simulated stream device; the engine also
/// without its passes, and on the GPU of the tests.
inline std::vector<Place> places() {
  std::vector<Place> out{{"interpreter", evaluate_eagerly}};
  out.push_back({"interpreter on sim",
                 [sim = std::shared_ptr<Device>(make_sim_device({.max_delay_us = 1}))](
                     const Graph& g, const Feeds& feeds, const std::vector<Expr>& fetches) {
                   Eager interpreter(*sim);
                   return interpreter.run(g, feeds, fetches);
                 }});
  for (auto [name, optimize, device] : {std::tuple{"engine without passes", false, ""},
                                        {"engine", true, ""},
                                        {"engine on sim", true, "sim:0"},
                                        {"engine on a GPU", true, "gpu:0"}}) {
    if (std::string(device) == "gpu:0" && !has_gpu()) continue;
    EngineOptions options;
    options.workers = 1;
    options.optimize = optimize;
    options.default_device = device;
    auto engine = std::make_shared<Engine>(options);
    out.push_back(
        {name, [engine](const Graph& g, const Feeds& feeds, const std::vector<Expr>& fetches) {
           return engine->run(g, feeds, fetches);
         }});
  }
  return out;
}

}  // namespace troupe::test
