#include <troupe/autodiff/products.hpp>

#include <algorithm>

#include <troupe/controlflow/list.hpp>
#include <troupe/functions.hpp>

namespace troupe {
namespace {

// At 256 rows the pass over the sum costs a fifth of the product.
constexpr std::int64_t kFewRows = 256;

Edge without_refinement(const Graph& g, Edge e) {
  while (g.node(e.node).op->name == "EnsureShape") e = g.node(e.node).inputs[0];
  return e;
}

// The extents of columns must be known: without iterations there is no other source of them.
bool has_few_rows(const ValueSpec& s) {
  return !s.is_list() && s.shape.has_rank() && s.shape.rank() == 2 && s.shape[1] >= 0 &&
         s.shape[0] <= kFewRows;
}

}  // namespace

TermsOfSum terms_of(const Graph& g, Edge sum, Edge argument,
                    const std::function<bool(std::int32_t)>& changes) {
  TermsOfSum terms;
  for (sum = without_refinement(g, sum); sum != argument;
       sum = without_refinement(g, g.node(sum.node).inputs[0])) {
    const Node& add = g.node(sum.node);
    if (add.op->name != "Add") return {};
    const Edge term = without_refinement(g, add.inputs[1]);
    const Node& node = g.node(term.node);
    const bool is_product = node.op->name == "MatMul" && node.attrs.get<bool>("transpose_a") &&
                            !node.attrs.get<bool>("transpose_b") &&
                            has_few_rows(g.spec(node.inputs[0])) &&
                            has_few_rows(g.spec(node.inputs[1])) && changes(node.inputs[0].node) &&
                            changes(node.inputs[1].node);
    if (is_product) terms.products.push_back({node.inputs[0], node.inputs[1], node.device});
    else terms.others.push_back(add.inputs[1]);
  }
  std::reverse(terms.products.begin(), terms.products.end());
  std::reverse(terms.others.begin(), terms.others.end());
  return terms;
}

Expr sum_of_products(const Expr& as, const Expr& bs) { return bind1("ListProduct", {as, bs}); }

}  // namespace troupe
