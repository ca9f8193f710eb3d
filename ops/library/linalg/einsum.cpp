#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace troupe {

/// Einstein's sums: `einsum("bij,bjk->bik", {a, b})`. Each letter names an axis; those that are not
/// on the right are summed over. Without "->" the right side is the letters that occur once, in the
/// alphabet's order. A letter twice in one operand takes its diagonal; `...` stands for axes that
/// are broadcast, as are those known to be 1. Operands are contracted from the left, two at a time,
/// as matrix products.
TROUPE_DSL(Expr einsum(const std::string& equation, const std::vector<Expr>& operands,
                       std::source_location at = std::source_location::current()))

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

// How many elements `axes` have together, which may be unknown until it runs: an i64 vector of one.
Expr extent_of(const Term& t, const std::string& axes) {
  std::int64_t known = 1;
  Expr n;
  for (char axis : axes) {
    const auto at = static_cast<std::int64_t>(t.axes.find(axis));
    const std::int64_t extent = t.value.shape()[static_cast<int>(at)];
    if (extent >= 0) known *= extent;
    else
      n = n.is_empty() ? slice(shape_of(t.value), {at}, {1})
                       : n * slice(shape_of(t.value), {at}, {1});
  }
  const Expr rest = t.value.reader().constant(Tensor::of<std::int64_t>({known}, {1}));
  return n.is_empty() ? rest : n * rest;
}

// The extents of a shape that is put together: each that of one axis, or of several made one.
class Extents {
 public:
  void add(const Term& t, const std::string& axes) {
    Shape of;
    for (char axis : axes) of.push_back(t.value.shape()[static_cast<int>(t.axes.find(axis))]);
    known_.push_back(of.elements());
    of_.emplace_back(&t, axes);
  }
  void add_each(const Term& t, const std::string& axes) {
    for (char axis : axes) add(t, std::string(1, axis));
  }
  Expr shaped(const Expr& value) const {
    // One unknown extent follows from the others, unless there are no elements.
    const auto open = std::count(known_.begin(), known_.end(), kAny);
    if (open == 0 || (open == 1 && std::count(known_.begin(), known_.end(), 0) == 0))
      return reshape(value, known_);
    Exprs all;
    for (const auto& [term, axes] : of_) all.push_back(extent_of(*term, axes));
    return reshape_to(value, concat(all, 0), known_);
  }

 private:
  Shape known_;
  std::vector<std::pair<const Term*, std::string>> of_;
};

// Multiplies two terms of which one has all axes of the other.
Term multiplied(const Term& a, const Term& b) {
  const Term &more = a.axes.size() >= b.axes.size() ? a : b, &fewer = &more == &a ? b : a;
  Expr aligned = ordered(fewer, those_of(more.axes, [&](char c) { return holds(fewer.axes, c); }));
  for (std::size_t i = 0; i < more.axes.size(); ++i)
    if (!holds(fewer.axes, more.axes[i]))
      aligned = expand_dims(aligned, static_cast<std::int64_t>(i));
  // A value that is summed later is not rounded first.
  return {widened_half(more.value) * widened_half(aligned), more.axes};
}

Expr grouped(const Term& t, const std::string& batch, const std::string& rows,
             const std::string& columns) {
  Expr value = ordered(t, batch + rows + columns);
  if (rows.size() == 1 && columns.size() == 1) return value;
  Extents s;
  s.add_each(t, batch);
  s.add(t, rows);
  s.add(t, columns);
  return s.shaped(value);
}

// Axes of both are batches if they live on, else summed over; each is made one axis.
Term contracted(Term a, Term b, const std::string& needed) {
  a = summed(a, b.axes + needed);
  b = summed(b, a.axes + needed);
  const std::string batch =
      those_of(a.axes, [&](char c) { return holds(b.axes, c) && holds(needed, c); });
  const std::string inner =
      those_of(a.axes, [&](char c) { return holds(b.axes, c) && !holds(needed, c); });
  const std::string left = those_of(a.axes, [&](char c) { return !holds(b.axes, c); }),
                    right = those_of(b.axes, [&](char c) { return !holds(a.axes, c); });
  if (inner.empty() && (left.empty() || right.empty())) return multiplied(a, b);
  if (a.value.dtype() != b.value.dtype())
    a.value = widened_half(a.value), b.value = widened_half(b.value);
  Expr y = matmul(grouped(a, batch, left, inner), grouped(b, batch, inner, right));
  Extents out;
  out.add_each(a, batch + left);
  out.add_each(b, right);
  return {left.size() == 1 && right.size() == 1 ? y : out.shaped(y), batch + left + right};
}

std::vector<std::string> split_terms(const std::string& left) {
  std::vector<std::string> terms{""};
  for (char c : left)
    if (c == ',') terms.emplace_back();
    else terms.back() += c;
  return terms;
}

// The axes of `...` are named by characters that no equation contains, counted from the last.
char hidden(std::int64_t from_last) { return static_cast<char>(1 + from_last); }
std::string hidden_names(std::int64_t n) {
  std::string names;
  for (std::int64_t i = n; i-- > 0;) names += hidden(i);
  return names;
}

// The names of an operand's axes.
std::string names_of(const Composite& c, const std::string& term, std::size_t i, const Shape& s) {
  c.require(s.has_rank(), fmt::format("needs the rank of operand {}", i));
  const std::size_t dots = term.find("...");
  std::string axes = term;
  std::int64_t rest = 0;
  if (dots != std::string::npos) {
    rest = s.rank() - static_cast<std::int64_t>(term.size() - 3);
    c.require(rest >= 0, fmt::format("'{}' names {} axes, but operand {} is {}", term,
                                     term.size() - 3, i, s.text()));
    axes = term.substr(0, dots) + hidden_names(rest) + term.substr(dots + 3);
  }
  c.require(
      static_cast<int>(axes.size()) == s.rank(),
      fmt::format("'{}' names {} axes, but operand {} is {}", term, axes.size(), i, s.text()));
  for (char axis : axes)
    c.require(axis <= hidden(Shape::kMaxRank) || std::isalpha(static_cast<unsigned char>(axis)),
              fmt::format("'{}' is no letter: axes are named by one letter each", axis));
  return axes;
}

// Replaces the two axes of a letter that occurs twice by one axis: their diagonal.
Term without_repeats(const Composite& c, Term t) {
  for (std::size_t k = 0; k < t.axes.size(); ++k) {
    const std::size_t again = t.axes.find(t.axes[k], k + 1);
    if (again == std::string::npos) continue;
    const int first = static_cast<int>(k), second = static_cast<int>(again);
    Expr x = c.with_extent(t.value, second, t.value, first, fmt::format("axis {}", t.axes[k]));
    Expr is_on = positions_along(x, first) == positions_along(x, second);
    t.value = sum(where(is_on, x, zeros_like(x)), {second});
    t.axes.erase(again, 1);
    --k;
  }
  return t;
}

struct Extent {
  char axis;
  std::size_t operand;
  std::int64_t n;
};

}  // namespace

Expr einsum(const std::string& equation, const std::vector<Expr>& operands,
            std::source_location at) {
  if (operands.empty())
    throw Error(Code::invalid_argument,
                fmt::format("einsum at {}: there are no operands", Site(at).text()));
  Composite c("einsum", {Operand(operands[0], at)});
  const std::string text = those_of(equation, [](char e) { return e != ' '; });
  const std::size_t arrow = text.find("->");
  const std::vector<std::string> terms = split_terms(text.substr(0, arrow));
  c.require(terms.size() == operands.size(), fmt::format("'{}' names {} operands, but there are {}",
                                                         equation, terms.size(), operands.size()));
  std::vector<Term> all;
  std::string letters;
  std::int64_t most_hidden = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    c.require(operands[i].dtype() == operands[0].dtype(),
              fmt::format("works on one dtype, not {} and {}; cast one of them",
                          name_of(operands[0].dtype()), name_of(operands[i].dtype())));
    const std::string axes = names_of(c, terms[i], i, operands[i].shape());
    letters += axes;
    most_hidden = std::max<std::int64_t>(
        most_hidden, std::count_if(axes.begin(), axes.end(),
                                   [](char axis) { return axis <= hidden(Shape::kMaxRank); }));
    all.push_back(without_repeats(c, {operands[i], axes}));
  }
  std::string out = arrow == std::string::npos ? "..." : text.substr(arrow + 2);
  if (arrow == std::string::npos) {
    std::sort(letters.begin(), letters.end());
    for (char letter : letters)
      if (letter > hidden(Shape::kMaxRank) &&
          std::count(letters.begin(), letters.end(), letter) == 1)
        out += letter;
  }
  if (const std::size_t dots = out.find("..."); dots != std::string::npos)
    out = out.substr(0, dots) + hidden_names(most_hidden) + out.substr(dots + 3);
  for (std::size_t k = 0; k < out.size(); ++k) {
    c.require(holds(letters, out[k]),
              fmt::format("'{}' on the right is no operand's axis", out[k]));
    c.require(out.find(out[k]) == k, fmt::format("'{}' stands twice on the right", out[k]));
  }
  // An axis of one element is broadcast where the others of its name are more; all others have one
  // extent.
  std::vector<Extent> known;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t k = 0; k < all[i].axes.size(); ++k)
      known.push_back({all[i].axes[k], i, all[i].value.shape()[static_cast<int>(k)]});
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t k = all[i].axes.size(); k-- > 0;) {
      const char axis = all[i].axes[k];
      const auto wider = [&](const Extent& e) {
        return e.axis == axis && e.operand != i && (e.n != 1 || e.operand < i) &&
               holds(all[e.operand].axes, axis);
      };
      const auto by = std::find_if(known.begin(), known.end(), wider);
      if (by == known.end()) continue;
      if (all[i].value.shape()[static_cast<int>(k)] == 1) {
        all[i].value = squeeze(all[i].value, static_cast<std::int64_t>(k));
        all[i].axes.erase(k, 1);
      } else if (by->operand < i) {
        const Term& other = all[by->operand];
        all[i].value = c.with_extent(
            all[i].value, static_cast<int>(k), other.value, static_cast<int>(other.axes.find(axis)),
            axis <= hidden(Shape::kMaxRank) ? "an axis of '...'" : fmt::format("axis {}", axis));
      }
    }
  Term so_far = all[0];
  for (std::size_t i = 1; i < all.size(); ++i) {
    std::string needed = out;
    for (std::size_t k = i + 1; k < all.size(); ++k) needed += all[k].axes;
    so_far = contracted(so_far, all[i], needed);
  }
  return cast(ordered(summed(so_far, out), out), operands[0].dtype());
}

}  // namespace troupe
