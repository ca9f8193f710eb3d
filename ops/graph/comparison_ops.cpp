#include <troupe/ops/graph/comparison_ops.hpp>

#include <array>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOpposites{
    {{"Less", "GreaterEqual"},
     {"LessEqual", "Greater"},
     {"Greater", "LessEqual"},
     {"GreaterEqual", "Less"}}};

}  // namespace

bool is_ordering(const OpDef& op) {
  for (const auto& [name, opposite] : kOpposites)
    if (op.name == name) return true;
  return false;
}

const OpDef& negated_comparison(const OpDef& op) {
  for (const auto& [name, opposite] : kOpposites)
    if (op.name == name) return find_op(opposite);
  throw Error(Code::internal, op.name + " is no ordering");
}

bool has_nan(const Tensor& t) {
  if (!is_floating(t.dtype())) return false;
  for (std::int64_t i = 0; i < t.elements(); ++i)
    if (std::isnan(t.at(i))) return true;
  return false;
}

}  // namespace troupe
