#include <troupe/actors/placement/cost_model.hpp>

#include <algorithm>
#include <string_view>

#include <troupe/actors/placement/constraint.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {
namespace {

// Elements that an op works on: all that it reads or all that it makes, whichever are more.
double elements(const CostModel& model, const Graph& g, const Node& n) {
  double in = 0, out = 0;
  for (Edge e : n.inputs)
    in = std::max(in,
                  model.size_of(g.spec(e)).bytes / static_cast<double>(size_of(g.spec(e).dtype)));
  for (const ValueSpec& s : n.outputs)
    out = std::max(out, model.size_of(s).bytes / static_cast<double>(size_of(s.dtype)));
  return std::max(in, out);
}

}  // namespace

bool only_moves_tokens(const Node& n) {
  static const char* const names[] = {"Switch",        "Merge",    "Enter",          "Exit",
                                      "NextIteration", "LoopCond", "ControlTrigger", "Identity"};
  return std::any_of(std::begin(names), std::end(names),
                     [&](const char* name) { return n.op->name == name; }) ||
         (n.op->name == "Constant" && !n.controls.empty());
}

CostModel::CostModel(CostOptions options, std::vector<std::string> devices,
                     const Measured& measured)
    : options_(std::move(options)), devices_(std::move(devices)) {
  std::unordered_map<std::string_view, std::size_t> index;
  for (std::size_t d = 0; d < devices_.size(); ++d) index.emplace(devices_[d], d);
  for (const auto& [what, ns] : measured)
    if (const auto device = index.find(what.second); device != index.end())
      measured_[what.first].emplace_back(device->second, ns);
  for (auto& [origin, all] : measured_) std::sort(all.begin(), all.end());
  for (const std::string& name : devices_) {
    of_device_.push_back(options_.device);
    for (const auto& [named, cost] : options_.devices)
      if (named == name || named == short_name(name)) of_device_.back() = cost;
  }
  std::unordered_map<std::string_view, std::size_t> nodes;
  for (const std::string& name : devices_)
    node_of_.push_back(nodes.emplace(node_of(name), nodes.size()).first->second);
  const std::size_t count = nodes.size();
  links_.assign(count * count, options_.between_nodes);
  // reversed, so that the first of several entries for a link wins
  for (auto l = options_.links.rbegin(); l != options_.links.rend(); ++l) {
    const auto a = nodes.find(l->a), b = nodes.find(l->b);
    if (a == nodes.end() || b == nodes.end()) continue;
    links_[a->second * count + b->second] = links_[b->second * count + a->second] = l->cost;
  }
  for (std::size_t n = 0; n < count; ++n) links_[n * count + n] = options_.between_devices;
  nodes_ = count;
}

Size CostModel::size_of(const ValueSpec& spec) const {
  Size size{static_cast<double>(troupe::size_of(spec.dtype)), !spec.is_list()};
  if (spec.depth == ValueSpec::kAnyDepth || !spec.shape.has_rank())
    return {size.bytes * static_cast<double>(options_.extent), false};
  for (int i = 0; i < spec.shape.rank(); ++i) {
    const std::int64_t extent = spec.shape[i];
    size.is_known = size.is_known && extent != kAny;
    size.bytes *= static_cast<double>(extent == kAny ? options_.extent : extent);
  }
  return size;
}

Work CostModel::work_of(const Graph& g, std::int32_t id) const {
  const Node& n = g.node(id);
  Work work;
  if (only_moves_tokens(n) || n.op->name == "Constant" || n.op->name == "Input") return work;
  for (const ValueSpec& s : n.outputs) work.bytes += size_of(s).bytes;
  for (std::size_t i = 0; i < n.inputs.size(); ++i)
    if (!n.op->takes_only_shape(i) && !g.spec(n.inputs[i]).is_list())
      work.bytes += size_of(g.spec(n.inputs[i])).bytes;
  if (n.op->name == "MatMul") {
    const ValueSpec& a = g.spec(n.inputs[0]);
    const bool is_transposed = n.attrs.find("transpose_a") && n.attrs.get<bool>("transpose_a");
    const bool is_shaped = a.shape.has_rank() && a.shape.rank() >= 2;
    const std::int64_t inner = is_shaped ? a.shape[a.shape.rank() - (is_transposed ? 2 : 1)] : kAny;
    work.flops = 2 * static_cast<double>(inner == kAny ? options_.extent : inner) *
                 size_of(n.outputs[0]).bytes /
                 static_cast<double>(troupe::size_of(n.outputs[0].dtype));
  } else if (const auto* value = n.attrs.find("program")) {
    const auto* object = std::get_if<std::shared_ptr<const AttrObject>>(value);
    const auto* program = object ? dynamic_cast<const ProgramAttr*>(object->get()) : nullptr;
    work.flops =
        elements(*this, g, n) * (program ? static_cast<double>(program->program->code.size()) : 1);
  } else {
    work.flops = elements(*this, g, n);
  }
  return work;
}

// A node that is no matrix product runs at the memory's speed.
double CostModel::predicted_ns(const Work& work, const DeviceCost& device) const {
  if (work.flops == 0 && work.bytes == 0) return 0;
  return device.op_ns +
         std::max(work.flops / device.flops_per_ns, work.bytes / device.bytes_per_ns);
}

double CostModel::ns(const Graph& g, std::int32_t id, std::size_t device) const {
  const double predicted = predicted_ns(work_of(g, id), of_device_[device]);
  if (predicted == 0) return predicted;
  const auto found = measured_.find(g.node(id).origin);
  if (found == measured_.end()) return predicted;
  if (const double* here = measured_ns(found->first, device)) return *here;
  const auto& [there, ns] = found->second.front();
  return ns * predicted / predicted_ns(work_of(g, id), of_device_[there]);
}

const double* CostModel::measured_ns(std::uint64_t origin, std::size_t device) const {
  const auto found = measured_.find(origin);
  if (found == measured_.end()) return nullptr;
  for (const auto& [d, ns] : found->second)
    if (d == device) return &ns;
  return nullptr;
}

double CostModel::transfer_ns(double bytes, std::size_t from, std::size_t to) const {
  if (from == to) return 0;
  const LinkCost& way = links_[node_of_[from] * nodes_ + node_of_[to]];
  return way.latency_ns + bytes / way.bytes_per_ns;
}

}  // namespace troupe
