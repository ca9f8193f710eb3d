#include <troupe/ops/graph/program.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>

#include <troupe/ops/passes/same_nodes.hpp>

namespace troupe::detail {
namespace {

std::size_t combine(std::size_t h, std::size_t v) {
  return (h ^ v) * 0x9E3779B97F4A7C15ull + (h >> 29);
}

// By bits, as tensors are compared; the rest of a large one may differ.
std::size_t hash_of(const AttrValue& value) {
  constexpr std::size_t kMost = 64;  // bytes
  const auto* t = std::get_if<Tensor>(&value);
  if (!t || !t->has_value()) return std::hash<std::string>()(text_of(value));
  return std::hash<std::string_view>()(
      {static_cast<const char*>(t->raw()), std::min(t->bytes(), kMost)});
}

}  // namespace

std::size_t key_of(const Node& n) {
  std::size_t h = std::hash<const void*>()(n.op);
  // equal constants on many devices have different keys
  h = combine(h, std::hash<std::string>()(n.device));
  for (Edge e : n.inputs) h = combine(h, std::size_t(e.node) * 31 + std::size_t(e.output));
  for (const auto& [name, value] : n.attrs.entries())
    h = combine(h, n.inputs.empty() ? hash_of(value) : value.index());
  return h;
}

namespace {

// Zeros of either sign are equal, and not the same.
bool are_same(const Attrs& a, const Attrs& b) {
  const auto is_of_one_sign = [](const auto& x, const auto& y) {
    const auto *p = std::get_if<double>(&x.second), *q = std::get_if<double>(&y.second);
    return !p || !q || std::signbit(*p) == std::signbit(*q);
  };
  return a == b &&
         std::equal(a.entries().begin(), a.entries().end(), b.entries().begin(), is_of_one_sign);
}

}  // namespace

bool is_same(const Node& a, const Node& b) {
  return a.op == b.op && a.inputs == b.inputs && a.controls == b.controls && a.device == b.device &&
         are_same(a.attrs, b.attrs);
}

Program merge_common(Program program) {
  Rewriter rewriter(program);
  std::unordered_multimap<std::size_t, std::int32_t> seen;
  seen.reserve(program.graph.size());
  for (std::int32_t id = 0; id < program.graph.size(); ++id) {
    Node node = rewriter.translated(id);
    if (!node.op->is_pure()) {
      rewriter.replace(id, std::move(node));
      continue;
    }
    if (node.op->commutative) std::sort(node.inputs.begin(), node.inputs.end());
    std::size_t key = key_of(node);
    auto [first, last] = seen.equal_range(key);
    auto twin = std::find_if(first, last, [&](const auto& entry) {
      return is_same(rewriter.graph().node(entry.second), node);
    });
    if (twin == last) {
      seen.emplace(key, rewriter.replace(id, std::move(node)));
      continue;
    }
    std::vector<Edge> edges;
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      edges.push_back({twin->second, static_cast<std::int32_t>(i)});
    rewriter.alias(id, edges, twin->second);
  }
  return rewriter.finish();
}

}  // namespace troupe::detail
