#include <troupe/ops/mesh/functions.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/mesh/names.hpp>

namespace troupe::mesh {
namespace {

using Arguments = std::vector<std::pair<Edge, std::string>>;

detail::Names& names_of(const Graph& graph);

// The names of outer values that a sub-graph uses, of those from node `from` on, as text.
Arguments named_captures(const Graph& graph, std::int32_t from) {
  Arguments taken;
  for (const Graph::Capture& c : graph.captures()) {
    const auto* outer = dynamic_cast<const Graph*>(&c.outer.reader());
    if (c.inner.node < from || !outer || !c.outer.shape().is_known()) continue;
    const detail::Names& names = names_of(*outer);
    const detail::Axes& axes = names.of(c.outer.edge());
    if (names.has_name(axes)) taken.emplace_back(c.inner, axes_text(names.dims(), axes));
  }
  return taken;
}

// The names of a graph that this thread builds. A graph only grows, so that each node is analysed
// once, unless a gradient extends a loop. Some graphs are kept, because the building of a body
// alternates between it and the graph around it.
detail::Names& names_of(const Graph& graph) {
  struct Known {
    const Graph* graph = nullptr;
    std::uint64_t id = 0, extensions = 0;
    std::unique_ptr<detail::Names> names;
  };
  constexpr std::size_t kKept = 6;
  thread_local std::array<Known, kKept> all;
  thread_local std::size_t oldest = 0;
  const std::uint64_t extensions = graph.version() - static_cast<std::uint64_t>(graph.size());
  const auto find = [&] {
    return std::find_if(all.begin(), all.end(), [&](const Known& k) {
      return k.graph == &graph && k.id == graph.id() && k.extensions == extensions;
    });
  };
  const auto first = find();
  // It looks at the graphs around this one, which may take its place.
  const Arguments taken = named_captures(graph, first == all.end() ? 0 : first->names->size());
  auto known = find();
  if (known == all.end()) {
    known = std::find_if(all.begin(), all.end(), [&](const Known& k) { return k.graph == &graph; });
    if (known == all.end()) known = all.begin() + static_cast<std::ptrdiff_t>(oldest++ % kKept);
    const Arguments captured = first == all.end() ? taken : named_captures(graph, 0);
    *known = {&graph, graph.id(), extensions, std::make_unique<detail::Names>(graph, captured)};
  }
  known->names->extend(taken);
  return *known->names;
}

// True if axes at one position differ.
bool collide(const detail::DimTable& dims, const std::vector<detail::Axes>& all) {
  for (const detail::Axes& a : all)
    for (const detail::Axes& b : all)
      for (std::size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
        const detail::Axis &x = a[a.size() - i], &y = b[b.size() - i];
        if (x == y || dims.extent(x) == 1 || dims.extent(y) == 1) continue;
        if (dims.extent(x) != dims.extent(y) || (dims.has_name(x) && dims.has_name(y))) return true;
      }
  return false;
}

// The axes of all operands, each once, those of the operand with most of them first; empty if an
// axis has no name, or an operand has one twice.
detail::Axes joined_axes(const detail::DimTable& dims, const std::vector<detail::Axes>& all) {
  const auto most = std::max_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  detail::Axes order;
  const auto add = [&](const detail::Axes& axes) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (!dims.has_name(axes[i]) ||
          std::find(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(i), axes[i]) !=
              axes.begin() + static_cast<std::ptrdiff_t>(i))
        return false;
      if (std::find(order.begin(), order.end(), axes[i]) == order.end()) order.push_back(axes[i]);
    }
    return true;
  };
  if (!add(*most)) return {};
  for (const detail::Axes& axes : all)
    if (!add(axes)) return {};
  return order.size() > Shape::kMaxRank ? detail::Axes{} : order;
}

// Operands whose names do not meet by position are brought into one order of axes.
Exprs align_by_name(Graph& here, std::span<const Expr> inputs, const Site& site) {
  Exprs out(inputs.begin(), inputs.end());
  for (const Expr& x : out)
    if (x.spec().is_list() || !x.shape().is_known()) return out;
  const detail::Names& names = names_of(here);
  std::vector<detail::Axes> all;
  for (const Expr& x : out) all.push_back(names.of(x.edge()));
  if (!collide(names.dims(), all)) return out;
  const detail::Axes order = joined_axes(names.dims(), all);
  if (order.empty()) return out;
  const Reader::AtSite at(here, site);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::vector<std::int64_t> permutation, made;
    for (std::size_t o = 0; o < order.size(); ++o) {
      const auto own = std::find(all[i].begin(), all[i].end(), order[o]);
      if (own != all[i].end()) permutation.push_back(own - all[i].begin());
      else if (!permutation.empty()) made.push_back(static_cast<std::int64_t>(o));
    }
    if (permutation.empty()) continue;  // a scalar
    const std::size_t leading = order.size() - permutation.size() - made.size();
    if (!std::is_sorted(permutation.begin(), permutation.end()))
      out[i] = transpose(out[i], permutation);
    for (std::int64_t axis : made)
      out[i] = expand_dims(out[i], axis - static_cast<std::int64_t>(leading));
  }
  return out;
}

[[maybe_unused]] const bool aligns_by_name = (Graph::set_align_by_name(align_by_name), true);

class Call {
 public:
  /// A call that binds where expressions are being built: in a body, outer values come in.
  Call(const char* what, const Expr& x, const MeshAt& at) : what_(what), site_(at) {
    if (x.is_empty()) refuse("the expression is empty");
    graph_ = dynamic_cast<Graph*>(&x.reader().current());
    if (!graph_)
      refuse("dimensions have names in graphs, and this is an eager value; build a Graph");
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Code::invalid_argument,
                fmt::format("mesh::{} at {}: {}", what_, site_.text(), why));
  }
  const Site& site() const { return site_; }
  Graph& graph() const { return *graph_; }
  /// x in this graph.
  Expr here(const Expr& x) const { return &x.reader() == graph_ ? x : graph_->adopt(x, site_); }
  const detail::Axes& axes(const Expr& x) const { return names().of(here(x).edge()); }
  detail::Names& names() const { return names_of(*graph_); }
  std::string text(const detail::Axis& axis) const { return names().dims().text(axis); }
  std::string describe(const Expr& x) const { return graph_->describe(here(x).edge().node); }

  /// The axis of x that is `dim`.
  std::size_t axis(const Expr& x, const Dim& dim) const {
    const detail::Axes& all = axes(x);
    for (std::size_t a = 0; a < all.size(); ++a)
      if (is(all[a], dim)) return a;
    std::string known;
    for (const detail::Axis& a : all) known += (known.empty() ? "" : ", ") + text(a);
    refuse(fmt::format("{} has no dimension '{}' of size {}; it has {}", describe(x), dim.name,
                       dim.size, known.empty() ? "none" : known));
  }
  bool has(const Expr& x, const Dim& dim) const {
    const detail::Axes& all = axes(x);
    return std::any_of(all.begin(), all.end(), [&](const auto& a) { return is(a, dim); });
  }

 private:
  bool is(const detail::Axis& axis, const Dim& dim) const {
    if (axis.size() != 1) return false;
    const Dim& known = names().dims()[axis[0]];
    return !known.name.empty() && known == dim;
  }

  const char* what_;
  const Site site_;
  Graph* graph_ = nullptr;
};

void require_name(const Call& call, const Dim& dim) {
  if (dim.name.empty() || dim.name.find_first_of(":;.,* \t\n") != std::string::npos)
    call.refuse(
        fmt::format("'{}' is no name of a dimension; a name has none of : ; . , * and "
                    "blanks",
                    dim.name));
  if (dim.size < 1) call.refuse(fmt::format("dimension '{}' has size {}", dim.name, dim.size));
}

Expr with_names(const Expr& x, std::string text, const Site& site) {
  const Operand operand = Operand(x).at(site);
  return bind1("NameDims", {&operand, 1}, Attrs{{"dims", std::move(text)}}, site);
}

std::string text_of_axes(const Dims& dims) {
  std::string text;
  for (std::size_t i = 0; i < dims.size(); ++i)
    text += fmt::format("{}{}:{}", i ? ";" : "", dims[i].name, dims[i].size);
  return text;
}

std::vector<std::int64_t> numbers(const Call& call, const Expr& x, const Dims& over) {
  std::vector<std::int64_t> axes;
  for (const Dim& d : over) axes.push_back(static_cast<std::int64_t>(call.axis(x, d)));
  if (axes.empty()) call.refuse("no dimension is given");
  return axes;
}

template <class Reduce>
Expr reduced(const char* what, const Expr& x, const Dims& over, const MeshAt& at, Reduce reduce) {
  const Call call(what, x, at);
  const std::vector<std::int64_t> axes = numbers(call, x, over);
  const Reader::AtSite site(x.reader(), call.site());
  return reduce(x, axes);
}

}  // namespace

Expr named(const Expr& x, const Dims& dims, MeshAt at) {
  const Call call("named", x, at);
  for (const Dim& d : dims) require_name(call, d);
  if (x.spec().is_list()) call.refuse("a list has no axes");
  const Shape shape = x.shape();
  bool fits = shape.has_rank() && shape.rank() == static_cast<int>(dims.size());
  for (int i = 0; fits && i < shape.rank(); ++i)
    fits = shape[i] < 0 || shape[i] == dims[static_cast<std::size_t>(i)].size;
  if (!fits)
    call.refuse(fmt::format("dimensions {} do not name the axes of {}, {}", mesh::text_of(dims),
                            call.describe(x), x.spec().text()));
  call.graph().set_has_names();
  const Expr made = with_names(x, text_of_axes(dims), call.site());
  call.names();  // refuses a name of two sizes here
  return made;
}

Dims dims_of(const Expr& x, MeshAt at) {
  const Call call("dims_of", x, at);
  Dims dims;
  const auto* own = dynamic_cast<const Graph*>(&x.reader());
  const detail::Names& names = own ? names_of(*own) : call.names();
  const detail::DimTable& table = names.dims();
  for (const detail::Axis& axis : names.of(own ? x.edge() : call.here(x).edge())) {
    std::string name;
    for (detail::DimId d : axis) name += (name.empty() ? "" : "*") + table[d].name;
    dims.push_back({table.has_name(axis) ? name : "", table.extent(axis)});
  }
  return dims;
}

Expr aligned(const Expr& x, const Dims& dims, MeshAt at) {
  const Call call("aligned", x, at);
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> made;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (call.has(x, dims[i])) order.push_back(static_cast<std::int64_t>(call.axis(x, dims[i])));
    else made.push_back(static_cast<std::int64_t>(i));
  }
  if (order.size() != call.axes(x).size())
    call.refuse(fmt::format("{} has dimensions that {} lacks: {}", call.describe(x),
                            mesh::text_of(dims), call.names().dims().text(call.axes(x))));
  const Reader::AtSite site(x.reader(), call.site());
  Expr y = std::is_sorted(order.begin(), order.end()) ? x : transpose(x, order);
  for (std::int64_t axis : made) y = expand_dims(y, axis);
  return y;
}

Expr einsum(const std::vector<Expr>& operands, const Dims& result, MeshAt at) {
  if (operands.empty())
    throw Error(Code::invalid_argument,
                fmt::format("mesh::einsum at {}: it has no operand", Site(at).text()));
  const Call call("einsum", operands[0], at);
  std::map<std::string, char> letters;
  std::map<std::string, std::int64_t> sizes;
  const auto letter_of = [&](const Dim& d) {
    if (d.name.empty()) call.refuse("an axis has no name; give it one with mesh::named");
    const auto [it, is_new] = letters.try_emplace(
        d.name, static_cast<char>(letters.size() < 26 ? 'a' + letters.size()
                                                      : 'A' + (letters.size() - 26)));
    if (letters.size() > 52) call.refuse("it has more than 52 dimensions");
    if (const auto [known, fresh] = sizes.try_emplace(d.name, d.size);
        !fresh && known->second != d.size)
      call.refuse(
          fmt::format("dimension '{}' has the sizes {} and {}", d.name, known->second, d.size));
    return it->second;
  };
  std::string equation;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (i > 0) equation += ',';
    if (operands[i].is_empty()) call.refuse("an operand is empty");
    for (const Dim& d : dims_of(operands[i], at)) equation += letter_of(d);
  }
  const std::size_t known = letters.size();
  equation += "->";
  for (const Dim& d : result) {
    equation += letter_of(d);
    if (letters.size() > known)
      call.refuse(fmt::format("no operand has the dimension '{}' of the result", d.name));
  }
  const Reader::AtSite site(operands[0].reader(), call.site());
  const Expr made = troupe::einsum(equation, operands, at);
  // Names of extents of 1 do not pass through the products that an einsum is made of.
  const bool has_one =
      std::any_of(result.begin(), result.end(), [](const Dim& d) { return d.size == 1; });
  return has_one ? named(made, result, at) : made;
}

Expr reshape(const Expr& x, const Dims& dims, MeshAt at) {
  const Call call("reshape", x, at);
  Shape shape;
  for (const Dim& d : dims) {
    require_name(call, d);
    shape.push_back(d.size);
  }
  if (x.shape().is_known() && x.shape().elements() != shape.elements())
    call.refuse(fmt::format("{} has {} elements, and {} has {}", call.describe(x),
                            x.shape().elements(), mesh::text_of(dims), shape.elements()));
  const Reader::AtSite site(x.reader(), call.site());
  return named(troupe::reshape(x, shape), dims, at);
}

Expr sum(const Expr& x, const Dims& over, MeshAt at) {
  return reduced("sum", x, over, at, [](const Expr& e, auto axes) { return troupe::sum(e, axes); });
}
Expr mean(const Expr& x, const Dims& over, MeshAt at) {
  return reduced("mean", x, over, at,
                 [](const Expr& e, auto axes) { return troupe::mean(e, axes); });
}
Expr reduce_max(const Expr& x, const Dims& over, MeshAt at) {
  return reduced("reduce_max", x, over, at,
                 [](const Expr& e, auto axes) { return troupe::reduce_max(e, axes); });
}
Expr reduce_min(const Expr& x, const Dims& over, MeshAt at) {
  return reduced("reduce_min", x, over, at,
                 [](const Expr& e, auto axes) { return troupe::reduce_min(e, axes); });
}

Expr softmax(const Expr& x, const Dim& along, MeshAt at) {
  const Call call("softmax", x, at);
  const auto axis = static_cast<std::int64_t>(call.axis(x, along));
  const bool is_last = axis == x.shape().rank() - 1;
  const Reader::AtSite site(x.reader(), call.site());
  return troupe::softmax(x, is_last ? -1 : axis);
}

namespace detail {

Parted parted(const Expr& x, const Dim& batch, std::int64_t count, const char* what, MeshAt at) {
  const Call call(what, x, at);
  const std::size_t axis = call.axis(x, batch);
  const Axes axes = call.axes(x);
  const std::string part = fmt::format("{}/{}:{}", batch.name, count, batch.size / count);
  const auto text_of_all = [&](const std::string& of_batch) {
    std::string text;
    for (std::size_t a = 0; a < axes.size(); ++a)
      text += (a ? ";" : "") + (a == axis ? of_batch : axes_text(call.names().dims(), {axes[a]}));
    return text;
  };
  Shape shape = x.shape();
  shape.set(static_cast<int>(axis), batch.size / count);
  shape = shape.with_inserted(static_cast<int>(axis) + 1, count);
  const Reader::AtSite site(x.reader(), call.site());
  const Expr two = with_names(x, text_of_all(fmt::format("{}*:{}", part, count)), call.site());
  return {troupe::reshape(two, shape), static_cast<std::int64_t>(axis) + 1, text_of_all(part)};
}

Expr part_of(const Parted& x, const Expr& i, MeshAt at) {
  const Reader::AtSite site(i.reader(), Site(at));
  const Expr part = gather(x.parts, i, x.axis);
  return with_names(part, x.names, at);
}

Expr named_as(const Expr& x, const Expr& like) {
  const auto* graph = dynamic_cast<const Graph*>(&like.reader());
  if (!graph || &x.reader() != &like.reader() || !like.shape().is_known()) return x;
  Names& names = names_of(*graph);
  const Axes& wanted = names.of(like.edge());
  const auto has_name = [&](const Axis& axis) { return names.dims().has_name(axis); };
  if (wanted == names.of(x.edge()) || std::none_of(wanted.begin(), wanted.end(), has_name))
    return x;
  const std::string text = axes_text(names.dims(), wanted);
  return bind1("NameDims", {x}, Attrs{{"dims", text}});
}

}  // namespace detail

}  // namespace troupe::mesh
