#include <troupe/actors/plan/explain.hpp>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include <troupe/actors/placement/forecast.hpp>
#include <troupe/actors/plan/loop_overlap.hpp>
#include <troupe/devices/base/text.hpp>
#include <troupe/devices/device/choices.hpp>
#include <troupe/ops/graph/host_kernel.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

std::string readable_ns(double ns) {
  if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e6) return fmt::format("{:.1f} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.1f} ms", ns / 1e6);
  return fmt::format("{:.1f} s", ns / 1e9);
}

std::string readable_flops(double flops) {
  if (flops < 1e6) return fmt::format("{:.1f} k", flops / 1e3);
  if (flops < 1e9) return fmt::format("{:.1f} M", flops / 1e6);
  return fmt::format("{:.1f} G", flops / 1e9);
}

class Explanation {
 public:
  Explanation(const Plan& plan, const CostOptions& costs, const Measured& measured,
              const std::string& home)
      : plan_(plan), g_(plan.program.graph), model_(costs, names(plan, home), measured),
        home_(index(home)), forecaster_(plan.program, model_, home_) {
    for (std::int32_t p : plan.partition_of)
      device_.push_back(static_cast<std::int32_t>(index(plan.partitions[at(p)].name)));
    forecast_ = forecaster_.run(device_);
    const Forecast alone = forecaster_.run(
        std::vector<std::int32_t>(plan.partition_of.size(), static_cast<std::int32_t>(home_)));
    all_at_home_ = alone.ns;
  }

  std::string text() {
    std::string out = fmt::format("predicted: {} a run", readable_ns(forecast_.ns));
    if (model_.devices().size() > 1)
      out += fmt::format("; {} with all of it on {}", readable_ns(all_at_home_),
                         model_.devices()[home_]);
    return out + "\n" + devices() + on_host() + choices() + replays() + sources() + edges() +
           overlaps() + path();
  }

 private:
  static std::vector<std::string> names(const Plan& plan, const std::string& home) {
    std::vector<std::string> names;
    for (const PartitionPlan& p : plan.partitions) names.push_back(p.name);
    if (std::find(names.begin(), names.end(), home) == names.end()) names.push_back(home);
    return names;
  }
  std::size_t index(const std::string& name) const {
    return static_cast<std::size_t>(
        std::find(model_.devices().begin(), model_.devices().end(), name) -
        model_.devices().begin());
  }

  std::string devices() const {
    std::size_t width = 6;
    for (const std::string& d : model_.devices()) width = std::max(width, d.size());
    std::string out = fmt::format("\n{:<{}} {:>7} {:>12} {:>10} {:>12}\n", "device", width, "nodes",
                                  "flops a run", "busy", "peak memory");
    for (std::size_t d = 0; d < model_.devices().size(); ++d) {
      const Forecast::OnDevice& f = forecast_.devices[d];
      out += fmt::format("{:<{}} {:>7} {:>12} {:>10} {:>12}", model_.devices()[d], width, f.nodes,
                         readable_flops(f.flops), readable_ns(f.busy_ns),
                         (f.is_known ? "" : "~") + readable_bytes(f.peak_bytes));
      if (model_.memory_of(d) > 0)
        out += fmt::format(" of {}", readable_bytes(static_cast<double>(model_.memory_of(d))));
      out += "\n";
    }
    return out;
  }

  // Operations that compute on the host because their device lacks a primitive.
  std::string on_host() const {
    std::string out;
    for (std::size_t p = 0; p < plan_.partitions.size(); ++p) {
      const PartitionPlan& partition = plan_.partitions[p];
      std::map<std::string, int> ops;
      for (std::int32_t id = 0; partition.device && id < g_.size(); ++id) {
        if (plan_.partition_of[at(id)] != static_cast<std::int32_t>(p)) continue;
        const Node& n = g_.node(id);
        if (!n.outputs.empty() && runs_on_host(*n.op, *partition.device, n.outputs[0].dtype))
          ++ops[n.op->name];
      }
      std::string names;
      for (const auto& [name, count] : ops)
        names += fmt::format("{}{}{}", names.empty() ? "" : ", ", name,
                             count > 1 ? fmt::format(" ({})", count) : "");
      if (!names.empty())
        out += fmt::format("\non the host, for {} lacks their primitives: {}\n", partition.name,
                           names);
    }
    return out;
  }

  // How devices compute primitives for which they have several ways.
  std::string choices() const {
    std::string out;
    for (std::size_t p = 0; p < plan_.partitions.size(); ++p) {
      const PartitionPlan& partition = plan_.partitions[p];
      const auto* const device = dynamic_cast<const ChoosingDevice*>(partition.device);
      std::set<Primitive> called;
      for (std::int32_t id = 0; device && id < g_.size(); ++id)
        if (plan_.partition_of[at(id)] == static_cast<std::int32_t>(p))
          called.insert(g_.node(id).op->primitives.begin(), g_.node(id).op->primitives.end());
      for (const Primitive primitive : called)
        if (const std::string choice = device->choice(primitive); !choice.empty())
          out += fmt::format("\non {}, {}: {}\n", partition.name, name_of(primitive), choice);
    }
    return out;
  }

  // How many launches of its devices were replayed so far, by all plans.
  std::string replays() const {
    std::string out;
    for (const PartitionPlan& partition : plan_.partitions) {
      if (!partition.device) continue;
      for (const QueueActivity& q : partition.device->counters().queues)
        if (q.graphs > 0)
          out += fmt::format("\non {}, of {} launches {} were replayed, by {} of graphs\n",
                             partition.name, q.launches, q.replayed, q.graphs);
    }
    return out;
  }

  // Names the sources of the prediction, if there are others than shapes.
  std::string sources() const {
    std::size_t measured = 0, all = 0;
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      if (plan_.partition_of[at(id)] < 0 || model_.work_of(g_, id).bytes == 0) continue;
      ++all;
      measured +=
          model_.is_measured(g_, id, index(plan_.partitions[at(plan_.partition_of[at(id)])].name));
    }
    std::string out;
    if (measured > 0)
      out += fmt::format("measured: {} of {} nodes where they are; the others by their shapes\n",
                         measured, all);
    for (const LinkBetween& l : model_.options().links)
      out += fmt::format("link {} - {}: {}, {}/s (measured)\n", l.a, l.b,
                         readable_ns(l.cost.latency_ns), readable_bytes(l.cost.bytes_per_ns * 1e9));
    return out.empty() ? out : "\n" + out;
  }

  // ---- cut edges

  struct Cut {
    double bytes = 0;  // a run
    bool is_known = true;
    std::string line;
  };

  std::string edges() const {
    std::vector<Cut> cuts = feeds();
    for (const PartitionPlan& from : plan_.partitions)
      for (const PartitionPlan::Send& s : from.sends) cuts.push_back(cut(from, s));
    for (Cut& c : fetches()) cuts.push_back(std::move(c));
    double bytes = 0;
    bool is_known = true;
    std::string lines;
    for (const Cut& c : cuts) bytes += c.bytes, is_known = is_known && c.is_known, lines += c.line;
    return fmt::format("\n{} cut edge{}, {}{} a run\n{}", cuts.size(), cuts.size() == 1 ? "" : "s",
                       is_known ? "" : "~", readable_bytes(bytes), lines);
  }

  // Feeds go to every other node that takes them, once a run.
  std::vector<Cut> feeds() const {
    std::vector<Cut> cuts;
    for (std::size_t f = 0; f < plan_.feeds.size(); ++f) {
      std::vector<std::int32_t> to;
      for (const PartitionPlan& p : plan_.partitions)
        for (const PartitionPlan::Feed& taken : p.feeds)
          if (taken.index == static_cast<std::int32_t>(f) && p.node != plan_.here &&
              std::find(to.begin(), to.end(), p.node) == to.end())
            to.push_back(p.node);
      const Size size = model_.size_of(plan_.feeds[f]);
      for (std::int32_t node : to)
        cuts.push_back(
            {size.bytes, size.is_known,
             fmt::format("  the caller -> node {}: feed '{}' {}, {}\n", plan_.nodes[at(node)],
                         plan_.feed_names[f], plan_.feeds[f].text(), sized(size))});
    }
    return cuts;
  }

  // Returns the cuts of fetches: each comes once a run from the node that has it. A feed that is
  // fetched unchanged stays with the caller.
  std::vector<Cut> fetches() const {
    std::vector<Cut> cuts;
    for (const Edge& e : plan_.program.fetches) {
      const std::int32_t where = plan_.partition_of[at(e.node)];
      if (where < 0 || plan_.partitions[at(where)].node == plan_.here ||
          g_.node(e.node).op->name == "Input")
        continue;
      const ValueSpec& spec = g_.spec(e);
      const Size size = model_.size_of(spec);
      cuts.push_back({size.bytes, size.is_known,
                      fmt::format("  node {} -> the caller: fetch {} {}, {}\n",
                                  plan_.nodes[at(plan_.partitions[at(where)].node)],
                                  g_.describe(e.node), spec.text(), sized(size))});
    }
    return cuts;
  }

  Cut cut(const PartitionPlan& from, const PartitionPlan::Send& s) const {
    const PartitionPlan& to = plan_.partitions[at(s.partition)];
    const PartitionPlan::Receive& r = to.receives[at(s.receive)];
    Cut made;
    const char* const kSays[] = {"a control edge", "that it is called",
                                 "that its part of a call has ended",
                                 "that nothing more is called"};
    std::string what = kSays[static_cast<std::size_t>(r.says)];
    if (r.output >= 0) {
      const ValueSpec& spec = g_.spec({r.source, r.output});
      const Size size = model_.size_of(spec);
      made.bytes = size.bytes, made.is_known = size.is_known;
      what = fmt::format("{}, {}", spec.text(), sized(size));
      if (g_.node(r.source).op->name == "Cast" && spec.dtype == DType::bf16) what += " (rounded)";
    }
    std::string loops;
    for (std::int32_t f = to.frames[at(r.frame)].parent < 0 ? 0 : r.frame; f > 0;
         f = to.frames[at(f)].parent) {
      made.bytes *= model_.options().trips;
      loops += fmt::format("{} '{}'", loops.empty() ? ", each iteration of" : " in",
                           to.frames[at(f)].name);
    }
    made.line = fmt::format("  {} -> {}: {} {}{}\n", from.name, to.name, g_.describe(r.source),
                            what, loops);
    return made;
  }

  static std::string sized(const Size& size) {
    return (size.is_known ? "" : "~") + readable_bytes(size.bytes);
  }

  // ---- loops over several devices

  std::string overlaps() const {
    std::string out;
    for (const LoopOverlap& l : loop_overlaps(forecaster_, g_, model_, device_)) {
      out += fmt::format("  loop '{}', {} an iteration, then one each {}, limited by {}\n   ",
                         forecaster_.frames().all()[at(l.frame)].name, readable_ns(l.length_ns),
                         readable_ns(l.period_ns), l.limit);
      for (const auto& [device, ns] : l.busy_ns)
        out += fmt::format(" {} {}{}", model_.devices()[device], readable_ns(ns),
                           device == l.busy_ns.back().first ? "" : ",");
      out += fmt::format(" busy; bubble {:.0f}% of {} iterations\n",
                         100 * l.bubble(model_.options().trips), model_.options().trips);
    }
    return out.empty() ? out : "\nloops over devices\n" + out;
  }

  // ---- the critical path

  std::string path() const {
    std::string out = fmt::format("\ncritical path, {}\n", readable_ns(forecast_.ns));
    for (const Forecast::Step& s : forecast_.path) {
      std::string what = s.node >= 0 ? g_.describe(s.node) : std::string("nothing");
      if (s.frame >= 0) {
        const Frame& f = forecaster_.frames().all()[at(s.frame)];
        what = fmt::format("loop '{}', {} iterations", f.name, model_.options().trips);
      }
      const std::string where = s.device >= 0 ? model_.devices()[at(s.device)] : std::string();
      out += fmt::format("  {:>9} +{:<9} {}{}\n", readable_ns(s.start_ns),
                         readable_ns(s.end_ns - s.start_ns), what,
                         where.empty() ? ""
                                       : (s.is_transfer ? " goes to " : " on ") + where +
                                             (is_measured(s) ? " (measured)" : ""));
    }
    return out;
  }

  bool is_measured(const Forecast::Step& s) const {
    return !s.is_transfer && s.frame < 0 && s.node >= 0 && s.device >= 0 &&
           model_.is_measured(g_, s.node, at(s.device));
  }

  const Plan& plan_;
  const Graph& g_;
  const CostModel model_;
  const std::size_t home_;
  Forecaster forecaster_;
  std::vector<std::int32_t> device_;  // by node, an index into the model's devices
  Forecast forecast_;
  double all_at_home_ = 0;
};

}  // namespace

std::string explain(const Plan& plan, std::span<const PassReport> passes, const CostOptions& costs,
                    const Measured& measured, const std::string& home) {
  // Instances are alike: the one partition that they are made of stands for all.
  const Plan& shown = plan.compiled ? *plan.compiled : plan;
  std::string out = Explanation(shown, costs, measured, home).text();
  if (!passes.empty()) out += "\nnodes after each pass\n";
  for (const PassReport& r : passes) {
    out += fmt::format("  {:<16} {:>7} -> {:>7}\n", r.name, r.nodes_before, r.nodes_after);
    for (const std::string& change : r.changes) out += "    " + change + "\n";
  }
  const auto is_resident = [](const Node& n) { return n.op->name == "ResidentLoop"; };
  const std::vector<Node>& nodes = shown.program.graph.nodes();
  if (std::any_of(nodes.begin(), nodes.end(), is_resident))
    out +=
        "\na ResidentLoop is one actor, whose iterations are counted; compile with "
        "CompileOptions::resident_loops = false to see the nodes of its body\n";
  return out + "\nthe program\n" + plan.program.graph.text();
}

}  // namespace troupe
