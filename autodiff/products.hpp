// Sums of matrix products over a loop's iterations, and how they become one product after the loop:
//
//   sum over t of transpose(a_t) b_t  =  transpose(a) b
//
// with the rows of all a_t in a and those of all b_t in b. The gradient of a matrix that every
// iteration multiplies with (the weights of a recurrent cell) is such a sum. Term by term it costs
// a product with a short inner extent and a pass over the whole sum an iteration; as one product it
// runs at the machine's speed. The price is memory: b_t, a cotangent with as many rows as the
// batch, is kept until the loop is done, as the saved value a_t is in any case. A product is set
// aside if both operands have at most kFewRows rows or an unknown number, and known columns. Others
// are long enough by themselves and are added up as they come. If a device's memory is limited, the
// products are computed a few hundred rows at a time (controlflow/library/list_product.cpp), so
// that lists that are swapped out never come back whole.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

/// transpose(a) times b, for matrices a and b.
struct Product {
  Edge a, b;
  std::string device;
};

/// A sum that starts with `argument`: products that may wait until after the loop, and other terms.
struct TermsOfSum {
  std::vector<Product> products;
  std::vector<Edge> others;
};

/// `changes(node)` returns false for a node that is the same in each iteration. A product with such
/// an operand is added as it comes. If the result has no products, the sum stays as it is.
TermsOfSum terms_of(const Graph& graph, Edge sum, Edge argument,
                    const std::function<bool(std::int32_t)>& changes);

/// The sum of the products of all elements of two lists, [rows, m] and [rows, n].
Expr sum_of_products(const Expr& as, const Expr& bs);

}  // namespace troupe
