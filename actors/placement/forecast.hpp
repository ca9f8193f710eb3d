// Forecaster: predicts a run of a placed program by a list schedule of costs. It runs no kernel.
//
//   Forecaster forecaster(program, model, 0);
//   Forecast f = forecaster.run(device_of_each_node);
//   f.ns, f.path, f.devices[0].peak_bytes
//
// A device runs one item at a time, in order of the longest path to the end (the upward rank of
// Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling", 2002). A
// loop is one item: it takes `CostOptions::trips` times the predicted time of one iteration.
// Overlapping iterations are ignored, so the prediction for a loop over several devices is too slow
// rather than too fast. Links carry any number of values at a time, each at full speed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/actors/frames/frames.hpp>
#include <troupe/actors/placement/cost_model.hpp>

namespace troupe {

struct Forecast {
  struct OnDevice {
    int nodes = 0;     // nodes that compute
    double flops = 0;  // in one run
    double busy_ns = 0;
    double peak_bytes = 0;      // states, constants and values at once
    bool is_known = true;       // no size was guessed
    std::int32_t largest = -1;  // the node whose value takes the most
    double largest_bytes = 0;
  };
  struct Step {
    std::int32_t node = -1;   // node of the program; if the step is a loop, the loop's first node
    std::int32_t frame = -1;  // the loop; -1: the step is no loop
    std::int32_t device = -1;
    bool is_transfer = false;  // a transfer of the value of `node` to `device`
    double start_ns = 0, end_ns = 0;
  };
  double ns = 0;
  std::vector<OnDevice> devices;
  std::vector<Step> path;    // the critical path, first to last
  double missing_bytes = 0;  // missing memory, summed over devices
};

class Forecaster {
 public:
  /// `home`: the device where feeds come from and fetches go. Refers to program and model. Throws
  /// the errors of invalid loops (`Frames`).
  Forecaster(const Program& program, const CostModel& model, std::size_t home);

  /// `device`: by node, an index into the model's devices; negative: the device of its first input.
  Forecast run(std::vector<std::int32_t> device);

  const Frames& frames() const { return frames_; }

  /// A unit of scheduling in a frame: a node, or a frame within.
  struct Item {
    std::int32_t node = -1, frame = -1;
    double rank = 0;
  };
  struct In {
    std::int32_t from = 0;  // item
    std::int32_t from_node = 0, to_node = 0;
    double bytes = 0;
  };
  /// Returns the items of a frame in scheduling order: every item is behind those that it needs.
  /// Frame 0 is outside of all loops.
  const std::vector<Item>& items(std::int32_t frame = 0) const {
    return scopes_[static_cast<std::size_t>(frame)].items;
  }
  const std::vector<In>& inputs_of(std::int32_t frame, std::size_t item) const {
    return scopes_[static_cast<std::size_t>(frame)].inputs[item];
  }
  /// Returns the nodes of a frame and of the frames within.
  std::vector<std::int32_t> nodes_within(std::int32_t frame) const;
  /// Returns the item's time in one run if all of it is on that device.
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
    bool is_alias = false;  // the value shares its input's memory
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
  std::vector<std::vector<double>> cost_;  // by device and node: ns of one firing
  std::vector<std::int32_t> device_;       // by node, in the current `run`
  std::vector<Iterated> within_;
};

}  // namespace troupe
