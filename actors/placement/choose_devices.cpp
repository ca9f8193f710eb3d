#include <troupe/actors/placement/choose_devices.hpp>

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include <troupe/devices/base/text.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

class Chooser {
 public:
  Chooser(const Program& program, const CostModel& model, std::size_t home,
          const std::vector<Choice>& choices)
      : g_(program.graph), model_(model), choices_(choices), forecaster_(program, model, home),
        unit_(choices.size(), -1) {
    make_units();
  }

  std::vector<std::int32_t> choose() {
    Tried best = tried(preferred());
    take_better(best, tried(earliest_finish()));
    improve(best);
    if (best.forecast.missing_bytes > 0) refuse(best.forecast);
    return std::move(best.device);
  }

 private:
  static constexpr double kWork = 3e6;  // items that `improve` may look at: half a second or so

  struct Unit {
    std::vector<std::int32_t> nodes;
    std::vector<std::int32_t> allowed;
  };
  struct Tried {
    std::vector<std::int32_t> device;
    Forecast forecast;
  };

  // Makes the units: the nodes without a decided device that must stay together, or one node.
  void make_units() {
    std::map<std::pair<int, std::int32_t>, std::int32_t> known;  // group or loop: its unit
    const auto put = [&](std::int32_t id, std::pair<int, std::int32_t> key) {
      auto [it, is_new] = known.emplace(key, static_cast<std::int32_t>(units_.size()));
      if (is_new) units_.push_back({{}, choices_[at(id)].allowed});
      units_[at(it->second)].nodes.push_back(id);
      unit_[at(id)] = it->second;
    };
    const Frames& frames = forecaster_.frames();
    std::size_t widest = 0;
    for (const Choice& c : choices_) widest = std::max(widest, c.allowed.size());
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const Choice& c = choices_[at(id)];
      if (c.device >= 0 || c.allowed.empty()) continue;
      std::int32_t loop = frames.frame(id);
      while (loop > 0 && frames.all()[at(loop)].parent > 0) loop = frames.all()[at(loop)].parent;
      if (c.group >= 0) put(id, {0, c.group});
      else if (loop > 0 && c.allowed.size() == widest &&
               (!known.contains({1, loop}) || units_[at(known[{1, loop}])].allowed == c.allowed))
        put(id, {1, loop});
      else put(id, {2, id});
    }
  }

  void assign(std::vector<std::int32_t>& device, const Unit& unit, std::int32_t to) const {
    for (std::int32_t id : unit.nodes) device[at(id)] = to;
  }

  std::vector<std::int32_t> decided() const {
    std::vector<std::int32_t> device;
    for (const Choice& c : choices_) device.push_back(c.device);
    return device;
  }
  std::vector<std::int32_t> preferred() const {
    std::vector<std::int32_t> device = decided();
    for (const Unit& u : units_) assign(device, u, u.allowed[0]);
    return device;
  }

  Tried tried(std::vector<std::int32_t> device) {
    Forecast forecast = forecaster_.run(device);
    return {std::move(device), std::move(forecast)};
  }
  // Less missing memory is better, then less time. If forecasts are equal, the first stays.
  static bool is_better(const Forecast& a, const Forecast& b) {
    if (a.missing_bytes != b.missing_bytes) return a.missing_bytes < b.missing_bytes;
    return a.ns < b.ns * (1 - 1e-9);
  }
  static void take_better(Tried& best, Tried other) {
    if (is_better(other.forecast, best.forecast)) best = std::move(other);
  }

  // HEFT. It assumes that no value is freed, because only a whole schedule shows which are.
  std::vector<std::int32_t> earliest_finish() {
    std::vector<std::int32_t> device = decided();
    const auto& items = forecaster_.items();
    std::vector<double> end(items.size(), 0), free_at(model_.devices().size(), 0),
        held(model_.devices().size(), 0);
    std::vector<std::int32_t> at_item(items.size(), -1);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Forecaster::Item& item = items[i];
      std::vector<std::int32_t> nodes =
          item.node >= 0 ? std::vector{item.node} : forecaster_.nodes_within(item.frame);
      std::int32_t unit = -1;
      bool is_open = false;
      for (std::int32_t id : nodes)
        if (unit < 0 && unit_[at(id)] >= 0) unit = unit_[at(id)], is_open = device[at(id)] < 0;
      std::vector<std::int32_t> candidates;
      if (unit >= 0 && is_open) candidates = units_[at(unit)].allowed;
      else if (unit >= 0) candidates = {device[at(units_[at(unit)].nodes[0])]};
      for (std::int32_t id : nodes)
        if (candidates.empty() && device[at(id)] >= 0) candidates = {device[at(id)]};
      for (const Forecaster::In& in : forecaster_.inputs_of(0, i))
        if (candidates.empty()) candidates = {at_item[at(in.from)]};
      if (candidates.empty()) candidates = {0};
      const double bytes = unit >= 0 && is_open ? unit_bytes(units_[at(unit)]) : 0;
      double best_end = 0, best_over = 0;
      for (std::size_t c = 0; c < candidates.size(); ++c) {
        const std::size_t d = at(candidates[c]);
        const double took = forecaster_.item_ns(item, d);
        double start = took > 0 ? free_at[d] : 0;
        for (const Forecaster::In& in : forecaster_.inputs_of(0, i))
          start = std::max(
              start, end[at(in.from)] + model_.transfer_ns(in.bytes, at(at_item[at(in.from)]), d));
        const auto limit = static_cast<double>(model_.memory_of(d));
        const double over = limit > 0 ? std::max(0.0, held[d] + bytes - limit) : 0;
        if (c > 0 && (over != best_over ? over > best_over : start + took >= best_end)) continue;
        best_end = start + took, best_over = over, at_item[i] = candidates[c];
      }
      const std::size_t d = at(at_item[i]);
      end[i] = best_end;
      if (forecaster_.item_ns(item, d) > 0) free_at[d] = best_end;
      held[d] += bytes;
      for (std::int32_t id : nodes)
        if (unit_[at(id)] >= 0 && device[at(id)] < 0) {
          const std::vector<std::int32_t>& allowed = units_[at(unit_[at(id)])].allowed;
          const bool fits = std::find(allowed.begin(), allowed.end(), at_item[i]) != allowed.end();
          assign(device, units_[at(unit_[at(id)])], fits ? at_item[i] : allowed[0]);
        }
    }
    return device;
  }

  double unit_bytes(const Unit& unit) const {
    double bytes = 0;
    for (std::int32_t id : unit.nodes) bytes += forecaster_.held_bytes({id, -1});
    return bytes;
  }

  void improve(Tried& best) {
    double left = kWork;
    for (bool changed = true; changed;) {
      changed = false;
      for (const Unit& unit : units_)
        for (std::int32_t to : unit.allowed) {
          if (best.device[at(unit.nodes[0])] == to) continue;
          left -=
              static_cast<double>(static_cast<std::size_t>(g_.size()) + model_.devices().size());
          if (left < 0) return;
          std::vector<std::int32_t> other = best.device;
          assign(other, unit, to);
          Tried moved = tried(std::move(other));
          if (!is_better(moved.forecast, best.forecast)) continue;
          best = std::move(moved);
          changed = true;
        }
    }
  }

  [[noreturn]] void refuse(const Forecast& f) const {
    std::string text;
    for (std::size_t d = 0; d < f.devices.size(); ++d) {
      const auto limit = static_cast<double>(model_.memory_of(d));
      if (limit == 0 || f.devices[d].peak_bytes <= limit) continue;
      text +=
          fmt::format("{}{} would hold {} of {}", text.empty() ? "" : ", and ", model_.devices()[d],
                      readable_bytes(f.devices[d].peak_bytes), readable_bytes(limit));
      if (f.devices[d].largest >= 0)
        text += fmt::format(", {} of it by {}", readable_bytes(f.devices[d].largest_bytes),
                            g_.describe(f.devices[d].largest));
    }
    throw Error(Code::resource_exhausted,
                fmt::format("the program does not fit into the memory of its devices: {}; the best "
                            "placement found was this one",
                            text));
  }

  const Graph& g_;
  const CostModel& model_;
  const std::vector<Choice>& choices_;
  Forecaster forecaster_;
  std::vector<std::int32_t> unit_;  // by node; -1: it has no choice
  std::vector<Unit> units_;
};

}  // namespace

std::vector<std::int32_t> choose_devices(const Program& program, const CostModel& model,
                                         std::size_t home, const std::vector<Choice>& choices) {
  return Chooser(program, model, home, choices).choose();
}

}  // namespace troupe
