#include <troupe/ops/graph/program.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

namespace troupe::detail {
namespace {

// Products take most of the time and memory. Their kernels sum in f32 or wider.
const std::set<std::string_view> kProducts{
    "MatMul",        "Conv",      "ConvInputGradient", "ConvFilterGradient",
    "ConvTranspose", "Attention", "AttentionGradient"};

// Ops that lose nothing when computed on stored products, or no more than storing does.
const std::set<std::string_view> kFollowers{
    "Add",           "Sub",       "Neg",           "Abs",        "Relu",
    "Relu6",         "LeakyRelu", "HardTanh",      "Maximum",    "Minimum",
    "Where",         "Reshape",   "Transpose",     "ExpandDims", "Squeeze",
    "ReshapeLike",   "Concat",    "Split",         "SplitLike",  "Slice",
    "Pad",           "SliceLike", "SliceGradient", "MaxPool",    "MaxPoolGradient",
    "BroadcastLike", "Identity",  "StopGradient",  "EdgeAsBf16", "ReshapeTo"};

class Lowering {
 public:
  Lowering(const Program& program, DType low) : rewriter_(program), low_(low) {}

  Program run() {
    const std::vector<char> wide = into_states();
    for (std::int32_t id = 0; id < from().size(); ++id) {
      const Node& node = from().node(id);
      const bool is_product = kProducts.contains(node.op->name) && has_full(node);
      if (is_product || (kFollowers.contains(node.op->name) &&
                         !wide[static_cast<std::size_t>(id)] && follows(node)))
        make_low(id);
      else rewriter_.keep(id);
    }
    return rewriter_.finish();
  }

 private:
  const Graph& from() const { return rewriter_.from().graph; }
  bool is_full(Edge e) const {
    return !from().spec(e).is_list() && from().spec(e).dtype == DType::f32;
  }
  bool has_full(const Node& n) const {
    return std::any_of(n.inputs.begin(), n.inputs.end(), [&](Edge e) { return is_full(e); });
  }

  // Marks values that go into a state, directly or through followers: accumulators and master
  // weights stay wide.
  std::vector<char> into_states() const {
    std::vector<char> all(static_cast<std::size_t>(from().size()));
    for (std::int32_t id = from().size() - 1; id >= 0; --id) {
      const Node& n = from().node(id);
      if (n.op->effect == Effect::write ||
          (all[static_cast<std::size_t>(id)] && kFollowers.contains(n.op->name)))
        for (Edge e : n.inputs) all[static_cast<std::size_t>(e.node)] = 1;
    }
    return all;
  }

  // True if f16 would make a number of the node infinite.
  bool overflows(const Node& n) const {
    if (low_ != DType::f16) return false;
    constexpr double kMost = 65504;
    const auto is_above = [](double x) { return std::isfinite(x) && std::abs(x) > kMost; };
    if (n.op->name == "FillLike") return is_above(n.attrs.get<double>("value"));
    if (n.op->name != "Fill" && n.op->name != "Constant") return false;
    const Tensor& value = n.attrs.get<Tensor>("value");
    const auto* p = value.data<float>();
    return std::any_of(p, p + value.elements(), is_above);
  }

  // All of it comes from products, but for parameters and constants beside them.
  bool follows(const Node& n) const {
    bool any = false;
    for (Edge e : n.inputs) {
      if (!is_full(e)) {
        if (is_floating(from().spec(e).dtype)) return false;
        continue;
      }
      const std::string& op = from().node(e.node).op->name;
      if (overflows(from().node(e.node))) return false;
      if (made_low_.contains(e)) any = true;
      else if (op != "ReadVariable" && op != "Constant" && op != "Fill" && op != "FillLike")
        return false;
    }
    return any;
  }

  // The sums of softmax that Attention's gradient is given stay wide.
  static bool stays_wide(const Node& n, std::size_t i) {
    return n.op->name == "AttentionGradient" && i + 2 == n.inputs.size();
  }

  void make_low(std::int32_t id) {
    const Node& old = from().node(id);
    Node node = rewriter_.translated(id);
    std::vector<ValueSpec> specs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (is_full(old.inputs[i]) && !stays_wide(old, i))
        node.inputs[i] = lowered(old.inputs[i], old);
      specs.push_back(rewriter_.graph().spec(node.inputs[i]));
    }
    node.outputs = infer_outputs(*node.op, specs, node.attrs);
    const std::vector<ValueSpec> outputs = node.outputs;
    const std::int32_t made = rewriter_.graph().append(std::move(node));
    std::vector<Edge> edges;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const Edge now{made, static_cast<std::int32_t>(k)}, before{id, now.output};
      const bool was_lowered = from().spec(before).dtype != outputs[k].dtype;
      if (was_lowered) made_low_[before] = now;
      edges.push_back(was_lowered ? cast_of(now, from().spec(before).dtype, old) : now);
    }
    rewriter_.alias(id, edges, made);
  }

  // An old edge in few bits: as it was made, or cast, once.
  Edge lowered(Edge old, const Node& user) {
    if (auto it = made_low_.find(old); it != made_low_.end()) return it->second;
    const auto key = std::pair{old, user.device};
    auto it = cast_low_.find(key);
    if (it == cast_low_.end())
      it = cast_low_.emplace(key, cast_of(rewriter_.at(old), low_, user)).first;
    return it->second;
  }

  Edge cast_of(Edge e, DType to, const Node& user) {
    Node n;
    n.op = &find_op("Cast");
    n.attrs = Attrs{{"dtype", to}};
    n.inputs = {e};
    n.outputs = {ValueSpec{to, rewriter_.graph().spec(e).shape}};
    n.scope = user.scope;
    n.device = user.device;
    n.site = user.site;
    n.origin = user.origin;
    return {rewriter_.graph().append(std::move(n)), 0};
  }

  Rewriter rewriter_;
  const DType low_;
  std::map<Edge, Edge> made_low_;  // old edges that are made in few bits
  std::map<std::pair<Edge, std::string>, Edge> cast_low_;
};

}  // namespace

Program mixed_precision(const Program& program, DType low) {
  if (low != DType::f16 && low != DType::bf16)
    throw Error(Code::invalid_argument,
                "mixed precision stores products in f16 or bf16, not " + std::string(name_of(low)));
  // Unused casts back are removed before fusion makes them results.
  Program lowered = Lowering(program, low).run();
  return prune(lowered.graph, lowered.feeds, lowered.fetches, Keep::effects);
}

}  // namespace troupe::detail
