#include <troupe/ops/mesh/automatic.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/mesh/cost.hpp>
#include <troupe/ops/mesh/join_all_reduces.hpp>
#include <troupe/ops/mesh/names.hpp>
#include <troupe/ops/mesh/spmd.hpp>

namespace troupe::mesh {
namespace {

Program program_of(const Graph& graph, const std::vector<Expr>& feeds,
                   const std::vector<Expr>& fetches) {
  Program program = prune(graph, graph.edges_to_feed(feeds), graph.edges_to_fetch(fetches));
  program.graph.reserve_origins(graph.origins());
  return program;
}

LayoutCost predicted(const Program& program, const Partitioning& p, const LayoutOptions& o) {
  return detail::cost_of(detail::join_all_reduces(detail::to_spmd(program, p)), p.mesh, o);
}

// Branch and bound over the dimensions, those of the longest kernels first.
class LayoutSearch {
 public:
  LayoutSearch(const Program& program, const Mesh& mesh, const LayoutOptions& options)
      : program_(program), mesh_(mesh), options_(options),
        names_(program.graph), choice_{mesh, Layout(), {}, {}, {}, 0, 0, true} {
    find_dimensions();
  }

  LayoutChoice run() {
    assigned_.assign(dims_.size(), kOpen);
    descend(0);
    if (!best_ && !choice_.is_exhaustive) {
      assigned_.assign(dims_.size(), kWhole);
      predict_in_full();
    }
    if (!best_ && choice_.is_exhaustive)
      throw Error(
          Code::resource_exhausted,
          fmt::format("no layout over mesh {} fits a device of {} bytes; the one that needs "
                      "least needs {}: give the devices more memory, or use more of them",
                      text_of(mesh_.axes()), options_.memory, least_));
    if (!best_)
      throw Error(
          Code::resource_exhausted,
          fmt::format("no layout of those that were tried over mesh {} fits a device of {} bytes, "
                      "and LayoutOptions::max_tried, {}, ended the search; the one that needs "
                      "least needs {}: raise max_tried, or give the devices more memory",
                      text_of(mesh_.axes()), options_.memory, options_.max_tried, least_));
    return std::move(choice_);
  }

 private:
  static constexpr int kOpen = -2, kWhole = -1;
  struct Kernel {
    double ns;
    std::set<std::size_t> dims;
    double falls = 1;  // its time falls at most with this power of the parts
  };

  void find_dimensions() {
    const Graph& g = program_.graph;
    std::map<std::string, std::size_t> number;
    std::vector<double> weight;
    for (std::int32_t id = 0; id < g.size(); ++id) {
      Kernel kernel{detail::kernel_ns(g, g.node(id), options_), {}};
      const auto add = [&](const detail::Axes& axes) {
        for (detail::DimId d : detail::flat(axes)) {
          if (!names_.dims().is_named(d)) continue;
          const Dim dim{name_of_rule(d), names_.dims()[d].size};
          const auto [it, is_new] = number.try_emplace(dim.name, dims_.size());
          if (is_new) {
            dims_.push_back(dim);
            weight.push_back(0);
          }
          dims_[it->second].size = std::min(dims_[it->second].size, dim.size);
          kernel.dims.insert(it->second);
        }
      };
      // A convolution's time has the square root of its filter as a factor.
      if (g.node(id).op->name.starts_with("Conv")) kernel.falls = 1.5;
      for (Edge e : g.node(id).inputs) add(names_.of(e));
      for (std::size_t o = 0; o < g.node(id).outputs.size(); ++o)
        add(names_.of(Edge{id, static_cast<std::int32_t>(o)}));
      for (std::size_t d : kernel.dims) weight[d] += kernel.ns;
      if (is_split_by_rules(g.node(id))) {
        std::set<std::size_t> together;
        for (detail::DimId d : detail::flat(names_.of(Edge{id, 0})))
          if (names_.dims().is_named(d)) together.insert(number.at(name_of_rule(d)));
        if (together.size() > 1) together_.insert(std::move(together));
      }
      if (kernel.ns > 0) kernels_.push_back(std::move(kernel));
    }
    for (std::size_t d = 0; d < dims_.size(); ++d) order_.push_back(d);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });
    for (const Dim& dim : dims_)
      for (int axis = 0; axis < mesh_.rank(); ++axis) choice_.variables += may_split(dim, axis);
  }
  // The dimension whose rule a dimension follows: parts of a batch are split as the batch is.
  std::string name_of_rule(detail::DimId d) const {
    std::string_view name = names_.dims()[d].name;
    while (detail::whole_of(name) != name) name = detail::whole_of(name);
    return std::string(name);
  }
  // Lowering refuses two dimensions of the result on one axis.
  static bool is_split_by_rules(const Node& n) {
    return (n.op->name == "NameDims" || n.op->name == "MatMul") && n.device.empty() &&
           n.controls.empty() && n.outputs[0].shape.is_known();
  }
  // True if an axis splits another dimension of a value that has this one.
  bool is_taken(std::size_t dim, int axis) const {
    return std::any_of(together_.begin(), together_.end(), [&](const auto& dims) {
      return dims.contains(dim) && std::any_of(dims.begin(), dims.end(),
                                               [&](std::size_t d) { return assigned_[d] == axis; });
    });
  }
  bool may_split(const Dim& dim, int axis) const {
    const std::int64_t parts = mesh_.axes()[static_cast<std::size_t>(axis)].size;
    return parts > 1 && dim.size % parts == 0;
  }

  // Returns what the kernels take at least: open dimensions are split along all axes that are left.
  double bound() const {
    double ns = 0;
    for (const Kernel& kernel : kernels_) {
      double parts = 1;
      for (int axis = 0; axis < mesh_.rank(); ++axis) {
        const auto size = static_cast<double>(mesh_.axes()[static_cast<std::size_t>(axis)].size);
        const bool may = std::any_of(kernel.dims.begin(), kernel.dims.end(), [&](std::size_t d) {
          return assigned_[d] == axis || (assigned_[d] == kOpen && may_split(dims_[d], axis));
        });
        if (may) parts *= size;
      }
      ns += std::max(0.0, kernel.ns - options_.kernel_ns) / std::pow(parts, kernel.falls);
    }
    return ns;
  }

  void descend(std::size_t depth) {
    if (choice_.tried + refused_ >= options_.max_tried) {
      choice_.is_exhaustive = false;
      return;
    }
    // A layout that is left out is no runner-up either.
    if (has_runner_up_ && bound() > choice_.runner_up_cost.ns()) return;
    if (depth == order_.size()) return predict_in_full();
    const std::size_t d = order_[depth];
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      if (!may_split(dims_[d], axis) || is_taken(d, axis)) continue;
      assigned_[d] = axis;
      descend(depth + 1);
      assigned_[d] = kOpen;
    }
    assigned_[d] = kWhole;
    descend(depth + 1);
    assigned_[d] = kOpen;
  }

  void predict_in_full() {
    std::vector<Layout::Rule> rules;
    for (std::size_t d = 0; d < dims_.size(); ++d)
      if (assigned_[d] >= 0)
        rules.emplace_back(dims_[d].name,
                           mesh_.axes()[static_cast<std::size_t>(assigned_[d])].name);
    const Layout layout(rules);
    LayoutCost cost;
    try {
      cost = predicted(program_, {mesh_, layout}, options_);
    } catch (const Error& e) {
      if (e.code() != Code::invalid_argument) throw;
      ++refused_;  // two dimensions of a tensor are on one axis
      return;
    }
    ++choice_.tried;
    least_ = std::min(least_, cost.peak_bytes);
    if (options_.memory > 0 && cost.peak_bytes > options_.memory) return;
    const auto is_better = [](const LayoutCost& a, const LayoutCost& b) {
      return std::pair(a.ns(), a.peak_bytes) < std::pair(b.ns(), b.peak_bytes);
    };
    if (!best_ || is_better(cost, choice_.cost)) {
      if (best_) keep_as_runner_up(choice_.layout.text(), choice_.cost);
      choice_.layout = layout;
      choice_.cost = cost;
      best_ = true;
    } else if (!has_runner_up_ || is_better(cost, choice_.runner_up_cost)) {
      keep_as_runner_up(layout.text(), cost);
    }
  }
  void keep_as_runner_up(std::string layout, const LayoutCost& cost) {
    choice_.runner_up = std::move(layout);
    choice_.runner_up_cost = cost;
    has_runner_up_ = true;
  }

  const Program& program_;
  const Mesh& mesh_;
  const LayoutOptions& options_;
  const detail::Names names_;
  Dims dims_;
  std::vector<std::size_t> order_;
  std::vector<Kernel> kernels_;
  std::set<std::set<std::size_t>> together_;  // dimensions of one value: no two are on one axis
  std::vector<int> assigned_;
  LayoutChoice choice_;
  std::int64_t refused_ = 0;  // layouts that were lowered in vain
  bool best_ = false, has_runner_up_ = false;
  std::int64_t least_ = std::numeric_limits<std::int64_t>::max();
};

// Sizes that multiply to n, falling, each above 1.
void factors_of(std::int64_t n, std::int64_t most, int count, std::vector<std::int64_t>& begun,
                std::vector<std::vector<std::int64_t>>& all) {
  if (n == 1) {
    if (!begun.empty()) all.push_back(begun);
    return;
  }
  if (count == 0) return;
  for (std::int64_t f = std::min(n, most); f > 1; --f) {
    if (n % f != 0) continue;
    begun.push_back(f);
    factors_of(n / f, f, count - 1, begun, all);
    begun.pop_back();
  }
}

std::string text_of_cost(const std::string& layout, const LayoutCost& c) {
  return fmt::format("'{}': {:.1f} us a step, {:.1f} of them for collectives, at most {} bytes",
                     layout, c.ns() / 1000, c.collectives_ns / 1000, c.peak_bytes);
}

}  // namespace

std::string LayoutChoice::text() const {
  std::string all =
      fmt::format("mesh {}, layout {}\n", text_of(mesh.axes()), text_of_cost(layout.text(), cost));
  if (runner_up_cost.ns() > 0)
    all += fmt::format("next {}: kernels {:+.1f} us, collectives {:+.1f} us\n",
                       text_of_cost(runner_up, runner_up_cost),
                       (runner_up_cost.kernels_ns - cost.kernels_ns) / 1000,
                       (runner_up_cost.collectives_ns - cost.collectives_ns) / 1000);
  return all +
         fmt::format("{} layouts were predicted{}\n", tried,
                     is_exhaustive ? "" : ", and others were not: max_tried ended the search");
}

LayoutCost predict(const Graph& graph, const std::vector<Expr>& feeds,
                   const std::vector<Expr>& fetches, const Partitioning& partitioning,
                   const LayoutOptions& options) {
  return predicted(program_of(graph, feeds, fetches), partitioning, options);
}

LayoutChoice automatic_layout(const Graph& graph, const std::vector<Expr>& feeds,
                              const std::vector<Expr>& fetches, const Mesh& mesh,
                              const LayoutOptions& options) {
  const Program program = program_of(graph, feeds, fetches);
  return LayoutSearch(program, mesh, options).run();
}

LayoutChoice automatic_layout(const Graph& graph, const std::vector<Expr>& feeds,
                              const std::vector<Expr>& fetches,
                              const std::vector<std::string>& devices,
                              const LayoutOptions& options) {
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<std::int64_t> begun;
  const auto n = static_cast<std::int64_t>(devices.size());
  factors_of(n, n, options.max_axes, begun, shapes);
  if (shapes.empty()) shapes.push_back({n});
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const Program program = program_of(graph, feeds, fetches);
  std::optional<LayoutChoice> best;
  std::optional<Error> none;
  for (const std::vector<std::int64_t>& shape : shapes) {
    Dims axes;
    for (std::size_t i = 0; i < shape.size(); ++i)
      axes.push_back({fmt::format("axis{}", i), shape[i]});
    const Mesh mesh(axes, devices);
    try {
      LayoutChoice choice = LayoutSearch(program, mesh, options).run();
      if (!best || choice.cost.ns() < best->cost.ns()) best = std::move(choice);
    } catch (const Error& e) {
      if (e.code() != Code::resource_exhausted) throw;
      none = e;
    }
  }
  if (!best) throw *none;
  return *best;
}

std::vector<Layout::Rule> possible_rules(const Graph& graph, const Mesh& mesh) {
  const detail::Names names(graph);
  std::vector<Layout::Rule> rules;
  std::set<std::string> known;
  for (std::int32_t id = 0; id < graph.size(); ++id)
    for (std::size_t o = 0; o < graph.node(id).outputs.size(); ++o)
      for (detail::DimId d : detail::flat(names.of(Edge{id, static_cast<std::int32_t>(o)}))) {
        const Dim& dim = names.dims()[d];
        if (dim.name.empty() || !known.insert(dim.name).second) continue;
        for (const Dim& axis : mesh.axes())
          if (axis.size > 1 && dim.size % axis.size == 0) rules.emplace_back(dim.name, axis.name);
      }
  return rules;
}

std::vector<Layout> layouts_of(const std::vector<std::string>& dims, const Mesh& mesh) {
  std::vector<std::vector<Layout::Rule>> all{{}};
  for (const std::string& dim : dims)
    for (std::size_t i = 0, n = all.size(); i < n; ++i)
      for (const Dim& axis : mesh.axes()) {
        const bool is_taken = std::any_of(all[i].begin(), all[i].end(),
                                          [&](const auto& r) { return r.second == axis.name; });
        if (is_taken) continue;
        std::vector<Layout::Rule> rules = all[i];
        rules.emplace_back(dim, axis.name);
        all.push_back(std::move(rules));
      }
  std::vector<Layout> layouts;
  for (auto& rules : all) layouts.emplace_back(std::move(rules));
  return layouts;
}

namespace detail {

std::vector<std::size_t> schedule(const std::vector<ScheduledOp>& ops) {
  std::vector<std::size_t> order, uses(ops.size(), 0);
  for (const ScheduledOp& op : ops)
    for (std::size_t i : std::set<std::size_t>(op.inputs.begin(), op.inputs.end())) ++uses[i];
  const std::vector<std::size_t> users = uses;
  std::vector<char> is_done(ops.size(), 0);
  while (order.size() < ops.size()) {
    std::size_t best = ops.size();
    std::int64_t least = 0;
    for (std::size_t k = 0; k < ops.size(); ++k) {
      const std::set<std::size_t> inputs(ops[k].inputs.begin(), ops[k].inputs.end());
      if (is_done[k] ||
          std::any_of(inputs.begin(), inputs.end(), [&](std::size_t i) { return !is_done[i]; }))
        continue;
      // A value that nothing reads goes at once; one that this operation reads last goes with it.
      std::int64_t grows = users[k] > 0 || ops[k].is_final ? ops[k].bytes : 0;
      for (std::size_t i : inputs)
        if (uses[i] == 1 && !ops[i].is_final) grows -= ops[i].bytes;
      if (best == ops.size() || grows < least) best = k, least = grows;
    }
    if (best == ops.size())
      throw Error(Code::invalid_argument, "a schedule's operations depend on each other in a ring");
    is_done[best] = 1;
    for (std::size_t i : std::set<std::size_t>(ops[best].inputs.begin(), ops[best].inputs.end()))
      --uses[i];
    order.push_back(best);
  }
  return order;
}

}  // namespace detail

}  // namespace troupe::mesh
