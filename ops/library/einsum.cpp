#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>

#include <fmt/format.h>

namespace troupe {

/// Einstein's sums: `einsum("bij,bjk->bik", {a, b})`. Each letter names an axis; those that are not on the right are summed over. Operands are contracted from
/// the left, two at a time, as matrix products. Where several axes are made one, their extents but one must be known.
TROUPE_DSL(Expr einsum(const std::string& equation, const std::vector<Expr>& operands, std::source_location at = std::source_location::current()))

namespace {

struct Term {
  Expr value;
  std::string axes;
};

bool holds(const std::string& axes, char c) { return axes.find(c) != std::string::npos; }
std::string those_of(const std::string& axes, auto f) {
  std::string out;
  std::copy_if(axes.begin(), axes.end(), std::back_inserter(out), f);
  return out;
}

Expr ordered(const Term& t, const std::string& axes) {
  if (t.axes == axes) return t.value;
  std::vector<std::int64_t> order;
  for (char c : axes) order.push_back(static_cast<std::int64_t>(t.axes.find(c)));
  return transpose(t.value, order);
}
Term summed(const Term& t, const std::string& kept) {
  std::vector<std::int64_t> gone;
  for (std::size_t i = 0; i < t.axes.size(); ++i)
    if (!holds(kept, t.axes[i])) gone.push_back(static_cast<std::int64_t>(i));
  if (gone.empty()) return t;
  return {sum(t.value, gone), those_of(t.axes, [&](char c) { return holds(kept, c); })};
}

Shape extents_of(const Term& t, const std::string& axes) {
  Shape s;
  for (char c : axes) s.push_back(t.value.shape()[static_cast<int>(t.axes.find(c))]);
  return s;
}

class Contraction {
 public:
  explicit Contraction(const Composite& c) : c_(c) {}

  // Axes of both are batches if they live on, else summed over; each is made one axis.
  Term operator()(Term a, Term b, const std::string& needed) const {
    a = summed(a, b.axes + needed);
    b = summed(b, a.axes + needed);
    const std::string batch = those_of(a.axes, [&](char c) { return holds(b.axes, c) && holds(needed, c); });
    const std::string inner = those_of(a.axes, [&](char c) { return holds(b.axes, c) && !holds(needed, c); });
    const std::string left = those_of(a.axes, [&](char c) { return !holds(b.axes, c); }), right = those_of(b.axes, [&](char c) { return !holds(a.axes, c); });
    if (inner.empty() && (left.empty() || right.empty())) return product(a, b);
    Expr y = matmul(grouped(a, batch, left, inner), grouped(b, batch, inner, right));
    Shape out = extents_of(a, batch);
    for (std::int64_t e : extents_of(a, left)) out.push_back(e);
    for (std::int64_t e : extents_of(b, right)) out.push_back(e);
    return {left.size() == 1 && right.size() == 1 ? y : shaped(y, out), batch + left + right};
  }

 private:
  // One has all axes of the other.
  static Term product(const Term& a, const Term& b) {
    const Term &more = a.axes.size() >= b.axes.size() ? a : b, &fewer = &more == &a ? b : a;
    Expr aligned = ordered(fewer, those_of(more.axes, [&](char c) { return holds(fewer.axes, c); }));
    for (std::size_t i = 0; i < more.axes.size(); ++i)
      if (!holds(fewer.axes, more.axes[i])) aligned = expand_dims(aligned, static_cast<std::int64_t>(i));
    return {more.value * aligned, more.axes};
  }
  Expr grouped(const Term& t, const std::string& batch, const std::string& rows, const std::string& columns) const {
    Expr value = ordered(t, batch + rows + columns);
    if (rows.size() == 1 && columns.size() == 1) return value;
    Shape s = extents_of(t, batch);
    for (const std::string& group : {rows, columns}) {
      const std::int64_t n = extents_of(t, group).elements();
      s.push_back(n);
    }
    return shaped(value, s);
  }
  Expr shaped(const Expr& value, const Shape& s) const {
    c_.require(std::count(s.begin(), s.end(), kAny) <= 1, "needs more extents while the graph is built: axes that become one are " + value.shape().text());
    return reshape(value, s);
  }
  const Composite& c_;
};

std::vector<std::string> split_terms(const std::string& left) {
  std::vector<std::string> terms{""};
  for (char c : left)
    if (c == ',') terms.emplace_back();
    else terms.back() += c;
  return terms;
}

}  // namespace

Expr einsum(const std::string& equation, const std::vector<Expr>& operands, std::source_location at) {
  if (operands.empty()) throw Error(Code::invalid_argument, fmt::format("einsum at {}: there are no operands", Site(at).text()));
  Composite c("einsum", {Operand(operands[0], at)});
  const std::string text = those_of(equation, [](char e) { return e != ' '; });
  const std::size_t arrow = text.find("->");
  c.require(arrow != std::string::npos, fmt::format("'{}' has no '->'", equation));
  const std::vector<std::string> terms = split_terms(text.substr(0, arrow));
  const std::string out = text.substr(arrow + 2);
  c.require(terms.size() == operands.size(), fmt::format("'{}' names {} operands, but there are {}", equation, terms.size(), operands.size()));
  std::vector<std::pair<char, std::int64_t>> known;
  std::vector<Term> all;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const Shape s = operands[i].shape();
    c.require(s.has_rank(), fmt::format("needs the rank of operand {}", i));
    c.require(static_cast<int>(terms[i].size()) == s.rank(), fmt::format("'{}' names {} axes, but operand {} is {}", terms[i], terms[i].size(), i, s.text()));
    for (std::size_t k = 0; k < terms[i].size(); ++k) {
      const char axis = terms[i][k];
      c.require(std::isalpha(static_cast<unsigned char>(axis)), fmt::format("'{}' is no letter: axes are named by one letter each", axis));
      c.require(terms[i].find(axis) == k, fmt::format("'{}' names axis {} twice; take the diagonal first", terms[i], axis));
      const std::int64_t extent = s[static_cast<int>(k)];
      for (const auto& [name, other] : known)
        c.require(name != axis || extent < 0 || other < 0 || other == extent, fmt::format("axis {} is {} in one operand and {} in another", axis, other, extent));
      known.emplace_back(axis, extent);
    }
    all.push_back({operands[i], terms[i]});
  }
  for (std::size_t k = 0; k < out.size(); ++k) {
    c.require(std::any_of(known.begin(), known.end(), [&](const auto& e) { return e.first == out[k]; }), fmt::format("'{}' on the right is no operand's axis", out[k]));
    c.require(out.find(out[k]) == k, fmt::format("'{}' stands twice on the right", out[k]));
  }
  Term so_far = all[0];
  for (std::size_t i = 1; i < all.size(); ++i) {
    std::string needed = out;
    for (std::size_t k = i + 1; k < all.size(); ++k) needed += all[k].axes;
    so_far = Contraction(c)(so_far, all[i], needed);
  }
  return ordered(summed(so_far, out), out);
}

}  // namespace troupe
