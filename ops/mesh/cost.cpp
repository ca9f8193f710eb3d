#include <troupe/ops/mesh/cost.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/base/text.hpp>

namespace troupe::mesh::detail {
namespace {

double elements_of(const ValueSpec& spec) {
  double n = 1;
  for (std::int64_t extent : spec.shape.dims())
    n *= static_cast<double>(std::max<std::int64_t>(1, extent));
  return n;
}
double bytes_of(const ValueSpec& spec) {
  return spec.dtype == DType::string ? 0
                                     : elements_of(spec) * static_cast<double>(size_of(spec.dtype));
}

bool is_free(const std::string& op) {
  for (const char* known : {"Input", "NameDims", "Constant", "Reshape", "ReshapeLike", "ReshapeTo",
                            "Identity", "Group", "ReadVariable", "MeshSlice", "MeshCoordinate"})
    if (op == known) return true;
  return false;
}

// How often a device waits for others, and what crosses its links.
double collective_ns(const Graph& g, const Node& n, const Mesh& mesh, const LayoutOptions& o) {
  const double sent = sent_bytes(g, n, mesh);
  return sent <= 0 ? 0 : o.link_latency_ns + sent / o.link_bytes_per_ns;
}
double node_ns(const Graph& g, const Node& n, const Mesh& mesh, const LayoutOptions& o) {
  return collective_name(n) ? collective_ns(g, n, mesh, o) : kernel_ns(g, n, o);
}

// For each node the bytes that live while it runs, on the device that has the whole values, too.
std::vector<double> live_bytes(const SpmdProgram& spmd) {
  const Graph& g = spmd.program.graph;
  std::map<Edge, std::int32_t> last;
  for (std::int32_t id = 0; id < g.size(); ++id)
    for (Edge e : g.node(id).inputs) last[e] = id;
  for (Edge e : spmd.program.fetches) last[e] = g.size();
  std::map<std::int32_t, double> freed;  // by node, after it
  std::vector<double> all;
  double live = 0;
  std::set<std::int32_t> variables;
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    // A variable's piece is there throughout, and a read of it takes no more.
    const bool is_read = n.op->name == "ReadVariable";
    if (is_read && variables.insert(n.state).second) live += bytes_of(n.outputs[0]);
    for (std::size_t o = 0; o < n.outputs.size(); ++o) {
      if (is_read || n.outputs[o].is_list()) continue;
      const double bytes = bytes_of(n.outputs[o]);
      live += bytes;
      const auto it = last.find(Edge{id, static_cast<std::int32_t>(o)});
      freed[it == last.end() ? id : it->second] += bytes;
    }
    all.push_back(live);
    if (const auto it = freed.find(id); it != freed.end()) live -= it->second;
  }
  return all;
}

std::string us(double ns) { return fmt::format("{:.1f} us", ns / 1000); }

class Report {
 public:
  Report(const Partitioning& p, const LayoutOptions& o) : mesh_(p.mesh), options_(o) {}

  void add(const SpmdProgram& spmd, const std::string& indent) {
    const Graph& g = spmd.program.graph;
    const std::vector<double> live = live_bytes(spmd);
    for (std::int32_t id = 0; id < g.size(); ++id) {
      const Node& n = g.node(id);
      const auto at = static_cast<std::size_t>(id);
      const std::string note = at < spmd.notes.size() ? spmd.notes[at] : std::string();
      if (const auto flow = spmd.flows.find(id); flow != spmd.flows.end()) {
        lines_.push_back(fmt::format("{}{}: {}", indent, g.describe(id), note));
        for (const auto& sub : flow->second.subs) add(*sub, indent + "  ");
        continue;
      }
      const double ns = node_ns(g, n, mesh_, options_);
      if (ns <= 0) continue;
      const std::string line =
          fmt::format("{}{:>10}, {:>10} live: ", indent, us(ns), readable_bytes(live[at]));
      if (const char* name = collective_name(n)) {
        const double sent = sent_bytes(g, n, mesh_);
        ++collectives_;
        sent_ += sent;
        lines_.push_back(fmt::format(
            "{}{} of {}{} at {} sends {}: {}", line, name, g.spec(n.inputs[0]).text(), along(n),
            n.site.text(), readable_bytes(sent), note.empty() ? n.outputs[0].text() : note));
      } else {
        lines_.push_back(fmt::format("{}{}: {}", line, g.describe(id),
                                     note.empty() ? n.outputs[0].text() : note));
      }
    }
  }
  std::vector<std::string> lines(const LayoutCost& cost, const Partitioning& p) && {
    lines_.insert(lines_.begin(),
                  fmt::format("mesh {}, layout '{}': {} a step on each device, {} of them for {} "
                              "collectives, which send {} from it; {} at most live at once",
                              text_of(p.mesh.axes()), p.layout.text(), us(cost.ns()),
                              us(cost.collectives_ns), collectives_, readable_bytes(sent_),
                              readable_bytes(static_cast<double>(cost.peak_bytes))));
    return std::move(lines_);
  }

 private:
  std::string along(const Node& n) const {
    if (n.op->name == "MeshExport") return "";
    const auto axis = static_cast<std::size_t>(n.attrs.get<std::int64_t>("mesh_axis"));
    return fmt::format(" along '{}', {} devices,", mesh_.axes()[axis].name,
                       mesh_.axes()[axis].size);
  }

  const Mesh& mesh_;
  const LayoutOptions& options_;
  std::vector<std::string> lines_;
  int collectives_ = 0;
  double sent_ = 0;
};

}  // namespace

double kernel_ns(const Graph& g, const Node& n, const LayoutOptions& o) {
  const std::string& op = n.op->name;
  if (is_free(op)) return 0;
  if (op == "MatMul") {
    const Shape& a = g.spec(n.inputs[0]).shape;
    const int k = n.attrs.get<bool>("transpose_a") ? a.rank() - 2 : a.rank() - 1;
    return o.kernel_ns + 2 * elements_of(n.outputs[0]) * static_cast<double>(a[k]) / o.flops_per_ns;
  }
  if (op.starts_with("Conv") && n.inputs.size() >= 2) {
    double most = 0;  // the largest operand
    for (Edge e : n.inputs) most = std::max(most, elements_of(g.spec(e)));
    const double other = elements_of(g.spec(n.inputs[1]));
    return o.kernel_ns +
           2 * std::max(most, elements_of(n.outputs[0])) * std::sqrt(other) / o.flops_per_ns;
  }
  double bytes = 0;
  for (Edge e : n.inputs) bytes += bytes_of(g.spec(e));
  for (const ValueSpec& out : n.outputs) bytes += bytes_of(out);
  return o.kernel_ns + bytes / o.bytes_per_ns;
}

const char* collective_name(const Node& n) {
  const std::string& op = n.op->name;
  if (op == "MeshAllReduce") return "all-reduce";
  if (op == "MeshReduceScatter") return "reduce-scatter";
  if (op == "MeshAllGather") return "all-gather";
  if (op == "MeshAllToAll") return "all-to-all";
  if (op == "MeshShift") return "shift";
  return op == "MeshExport" ? "export" : nullptr;
}

double sent_bytes(const Graph& g, const Node& n, const Mesh& mesh) {
  const std::string& op = n.op->name;
  const double bytes = bytes_of(g.spec(n.inputs[0]));
  if (op == "MeshExport") return bytes_of(n.outputs[0]) - bytes;
  const auto axis = static_cast<std::size_t>(n.attrs.get<std::int64_t>("mesh_axis"));
  const auto k = static_cast<double>(mesh.axes()[axis].size);
  if (op == "MeshAllReduce") return 2 * bytes * (k - 1) / k;
  if (op == "MeshReduceScatter" || op == "MeshAllToAll") return bytes * (k - 1) / k;
  return op == "MeshAllGather" ? bytes * (k - 1) : bytes;
}

LayoutCost cost_of(const SpmdProgram& spmd, const Mesh& mesh, const LayoutOptions& options) {
  LayoutCost cost;
  const Graph& g = spmd.program.graph;
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (const auto flow = spmd.flows.find(id); flow != spmd.flows.end()) {
      for (const auto& sub : flow->second.subs) {
        const LayoutCost inside = cost_of(*sub, mesh, options);
        cost.kernels_ns += inside.kernels_ns;
        cost.collectives_ns += inside.collectives_ns;
      }
    } else if (collective_name(n)) cost.collectives_ns += collective_ns(g, n, mesh, options);
    else cost.kernels_ns += kernel_ns(g, n, options);
  }
  double peak = 0;
  for (double bytes : live_bytes(spmd)) peak = std::max(peak, bytes);
  cost.peak_bytes = static_cast<std::int64_t>(peak);
  return cost;
}

std::vector<std::string> explained(const SpmdProgram& spmd, const Partitioning& partitioning,
                                   const LayoutOptions& options) {
  Report report(partitioning, options);
  report.add(spmd, "");
  return std::move(report).lines(cost_of(spmd, partitioning.mesh, options), partitioning);
}

}  // namespace troupe::mesh::detail
