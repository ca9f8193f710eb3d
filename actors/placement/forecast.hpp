// What a run of a placed program is predicted to do: a list schedule, made of costs alone. Nothing
// runs.
//
//   Forecaster forecaster(program, model, 0);
//   Forecast f = forecaster.run(device_of_each_node);
//   f.ns, f.path, f.devices[0].peak_bytes
//
// A device does one thing at a time, in order of the longest way that is left (the upward rank of
// Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling", 2002). A
// loop is one piece of work: `CostOptions::trips` times what one of its iterations takes by the
// same rule. Iterations that overlap are not counted on, so a loop over several devices is
// predicted too slow rather than too fast; links carry any number of values at a time, each at full
// speed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/actors/controlflow/frames.hpp>
#include <troupe/actors/placement/cost_model.hpp>

namespace troupe {

struct Forecast {
  struct OnDevice {
    int nodes = 0;     // that compute
    double flops = 0;  // a run
    double busy_ns = 0;
    double peak_bytes = 0;      // states, constants and values at once
    bool is_known = true;       // no size was guessed
    std::int32_t largest = -1;  // the node whose value takes the most
    double largest_bytes = 0;
  };
  struct Step {
    std::int32_t node = -1;   // of the program; of a loop: its first
    std::int32_t frame = -1;  // a loop, all of it
    std::int32_t device = -1;
    bool is_transfer = false;  // what `node` made, to `device`
    double start_ns = 0, end_ns = 0;
  };
  double ns = 0;
  std::vector<OnDevice> devices;
  std::vector<Step> path;    // what decides when the run ends, first to last
  double missing_bytes = 0;  // of memory, over all devices
};

class Forecaster {
 public:
  /// `home`: the device where feeds come from and fetches go. Refers to both. Throws what loops
  /// that cannot work throw.
  Forecaster(const Program& program, const CostModel& model, std::size_t home);

  /// `device`: of each node, as an index into the model's; negative for what goes with its first
  /// input.
  Forecast run(std::vector<std::int32_t> device);

  const Frames& frames() const { return frames_; }

  /// Something to schedule in a frame: a node, or a frame within.
  struct Item {
    std::int32_t node = -1, frame = -1;
    double rank = 0;
  };
  struct In {
    std::int32_t from = 0;  // item
    std::int32_t from_node = 0, to_node = 0;
    double bytes = 0;
  };
  /// What is outside of all loops, in the order in which it is scheduled: every item behind those
  /// that it needs.
  const std::vector<Item>& items(std::int32_t frame = 0) const {
    return scopes_[static_cast<std::size_t>(frame)].items;
  }
  const std::vector<In>& inputs_of(std::int32_t frame, std::size_t item) const {
    return scopes_[static_cast<std::size_t>(frame)].inputs[item];
  }
  /// Nodes of a frame and of those within.
  std::vector<std::int32_t> nodes_within(std::int32_t frame) const;
  /// Of one run, if all of it is on that device.
  double item_ns(const Item& item, std::size_t device) const;
  double held_bytes(const Item& item) const;

 private:
  struct Scope {
    std::vector<Item> items;
    std::vector<std::vector<In>> inputs;  // by item
  };
  struct Timed {
    double start = 0, end = 0;
    std::int32_t because = -1;  // item
    std::int32_t sent = -1;     // node whose value was awaited from another device
    double sent_at = 0;
  };
  struct Made {  // by a node
    double bytes = 0;
    bool is_known = true;
    bool is_alias = false;  // of what it gets
    Work work;
  };
  struct Iterated {  // one iteration of a frame
    double ns = 0;
    std::vector<double> busy, peak;
    std::vector<char> is_used;
  };

  void build();
  void order(Scope& scope);
  std::int32_t common(std::int32_t a, std::int32_t b) const;
  double trips(std::int32_t frame) const;
  double node_ns(std::int32_t node, std::size_t device) const;
  Iterated schedule(std::int32_t frame, std::vector<Timed>* timed, Forecast& out);
  void hold(std::int32_t frame, const std::vector<Timed>& timed,
            const std::vector<Iterated>& within, Iterated& out, Forecast& forecast) const;
  void trace(const std::vector<Timed>& timed, Forecast& out) const;
  void resolve_devices();

  const Program& program_;
  const CostModel& model_;
  const std::size_t home_;
  const std::map<std::int32_t, std::int32_t> fed_;
  const std::vector<std::int32_t> nowhere_;
  const Frames frames_;
  std::vector<Made> values_;
  std::vector<Scope> scopes_;
  std::vector<std::vector<double>> cost_;  // device, node: one firing
  std::vector<std::int32_t> device_;       // under way
  std::vector<Iterated> within_;
};

}  // namespace troupe
