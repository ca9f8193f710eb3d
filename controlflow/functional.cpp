#include <troupe/controlflow/functional.hpp>

#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/controlflow/list_ops.hpp>
#include <troupe/functions.hpp>

namespace troupe {

Reader* reader_of(const Operands& operands) {
  Reader* reader = nullptr;
  for (const Operand& o : operands)
    if (o.is_expr() && (!reader || o.expr().reader().depth() > reader->depth())) reader = &o.expr().reader();
  return reader;
}

namespace detail {
namespace {

// A number standing alone: an integer is i64, another f32.
Tensor lone(const Operand& o) {
  if (!o.is_number()) return o.literal();
  DType t = o.literal().dtype();
  return t == DType::f64 ? Tensor::scalar_as(DType::f32, o.literal().at(0)) : o.literal();
}

Expr in_reader(Reader& reader, const Operand& o) {
  if (!o.is_expr()) return reader.adopt(Expr(nullptr, lone(o)), o.site());
  return &o.expr().reader() == &reader ? o.expr() : reader.adopt(o.expr(), o.site());
}

Exprs in_reader(Reader& reader, const Operands& operands) {
  Exprs out;
  for (const Operand& o : operands) out.push_back(in_reader(reader, o));
  return out;
}

std::string title(const char* what, const std::string& name, const Site& at) {
  return name.empty() ? fmt::format("{} ({})", what, at.text()) : fmt::format("{} '{}' ({})", what, name, at.text());
}

[[noreturn]] void refuse(const std::string& title, const std::string& why) { throw Error(Code::invalid_argument, title + ": " + why); }

// Binding a functional node checks its sub-graphs: what it says is said of the construct, not of the node.
template <class F>
Exprs named_errors(const std::string& title, const Site& at, F bind) {
  try {
    return bind();
  } catch (const Error& e) {
    std::string text = e.what();
    std::size_t found = text.find(at.text() + ": ");
    throw Error(e.code(), title + ": " + (found == std::string::npos ? text : text.substr(found + at.text().size() + 2)));
  }
}

// All elements of a list of `n`, which may be known while the graph is built.
Expr stacked(const Expr& list, std::int64_t n, const Site& at) {
  const ValueSpec element = list.spec().element();
  if (n < 0 || element.is_list() || !element.shape.is_known()) return list_stack(Operand(list, at));
  const Operand operands[] = {Operand(list, at)};
  return bind1("ListStackLike", operands, attrs_of({element.dtype, element.shape.with_inserted(0, n)}), at);
}

// Binds what the construct itself needs, of which the user wrote none.
template <class F>
auto on_behalf(Reader& reader, const Site& at, F bind) {
  const Reader::AtSite here(reader, at);
  return bind();
}

Exprs eager_case(const Expr& index, const std::vector<Branch>& branches, const std::string& title) {
  const Tensor& t = index.value();
  if (!t.shape().is_scalar()) refuse(title, "the predicate must be a scalar, not " + index.spec().text());
  if (t.dtype() != DType::boolean && t.dtype() != DType::i32 && t.dtype() != DType::i64)
    refuse(title, "the predicate must be bool, or i32 or i64 for a choice of several, not " + index.spec().text());
  auto i = static_cast<std::int64_t>(t.at(0));
  auto last = static_cast<std::int64_t>(branches.size()) - 1;
  return in_reader(index.reader(), branches[static_cast<std::size_t>(i < 0 || i > last ? last : i)]());
}

}  // namespace

Exprs switch_case(const Operand& index, const std::vector<Branch>& branches, const CondOptions& options, const char* what, const Site& at) {
  const std::string name = title(what, options.name, at);
  if (branches.empty()) refuse(name, "there is no branch");
  if (!index.is_expr()) refuse(name, "the predicate is no expression: use C++'s own if");
  auto* outer = dynamic_cast<Graph*>(&index.expr().reader());
  if (!outer) return eager_case(index.expr(), branches, name);
  Graph& graph = outer->current();
  Expr predicate = in_reader(graph, index);
  auto scope = graph.scope(options.name.empty() ? what : options.name);
  SubGraphBuilder builder(graph, at);
  std::vector<Operands> results;
  for (std::size_t b = 0; b < branches.size(); ++b) {
    bool is_cond = branches.size() == 2 && predicate.dtype() == DType::boolean;
    std::string which = is_cond ? (b ? "the true branch" : "the false branch") : fmt::format("branch {}", b);
    results.push_back(builder.add(which + " of " + name, {}, [&](const Exprs&) { return branches[b](); }));
    if (results[b].size() != results[0].size())
      refuse(name, fmt::format("its branches yield {} and {} values; they must yield the same structure", results[0].size(), results[b].size()));
  }
  // A number takes the dtype that another branch gives.
  std::vector<DType> dtypes;
  for (std::size_t k = 0; k < results[0].size(); ++k) {
    DType t = lone(results[0][k].is_number() ? results[0][k] : Operand(0.0)).dtype();
    for (const Operands& r : results)
      if (!r[k].is_number()) t = r[k].expr().dtype();
    dtypes.push_back(t);
  }
  for (std::size_t b = 0; b < branches.size(); ++b) builder.set_outputs(static_cast<int>(b), results[b], dtypes);
  Exprs captures = builder.finish();
  return named_errors(name, at, [&] { return bind_case(graph, predicate, builder.take(), captures, options.name.empty() ? what : options.name, builder.controls(), at); });
}

Exprs while_loop(Reader* reader, const Operands& initial, const Condition& condition, const LoopBody& body, const WhileOptions& options,
                 const Site& at) {
  const std::string name = title("while_loop", options.name, at);
  if (!reader) reader = reader_of(initial);
  if (!reader) refuse(name, "none of its variables starts as an expression; pass the graph, or start one from g.constant(...)");
  if (options.shape_invariants.size() > initial.size())
    refuse(name, fmt::format("{} shape invariants are given for {} variables", options.shape_invariants.size(), initial.size()));
  auto* outer = dynamic_cast<Graph*>(reader);
  if (!outer) {  // eager: at once
    Exprs variables = in_reader(*reader, initial);
    for (std::int64_t n = 0; options.maximum_iterations < 0 || n < options.maximum_iterations; ++n) {
      Expr more = condition(variables);
      if (more.dtype() != DType::boolean || !more.shape().is_scalar()) refuse(name, "its condition must yield a bool scalar, not " + more.spec().text());
      if (more.value().at(0) == 0) break;
      Operands next = body(variables);
      if (next.size() != variables.size()) refuse(name, fmt::format("its body yields {} values for {} variables", next.size(), variables.size()));
      for (std::size_t k = 0; k < next.size(); ++k)
        variables[k] = next[k].is_number() ? reader->adopt(Expr(nullptr, Tensor::scalar_as(variables[k].dtype(), next[k].literal().at(0))), at)
                                           : in_reader(*reader, next[k]);
    }
    return variables;
  }
  Graph& graph = outer->current();
  Exprs first = in_reader(graph, initial);
  const bool is_bounded = options.maximum_iterations >= 0;
  if (is_bounded) first.push_back(on_behalf(graph, at, [&] { return graph.constant(std::int64_t{0}); }));
  std::vector<ValueSpec> specs;
  std::vector<DType> dtypes;
  for (std::size_t k = 0; k < first.size(); ++k) {
    specs.push_back(first[k].spec());
    if (k < options.shape_invariants.size() && options.shape_invariants[k]) specs[k].shape = *options.shape_invariants[k];
    dtypes.push_back(specs[k].dtype);
  }
  const std::string label = options.name.empty() ? "while_loop" : options.name;
  auto scope = graph.scope(label);
  SubGraphBuilder builder(graph, at);
  auto users = [&](const Exprs& v) { return is_bounded ? Exprs(v.begin(), v.end() - 1) : v; };
  Operands more = builder.add("the condition of " + name, specs, [&](const Exprs& v) -> Operands {
    Expr holds = condition(users(v));
    if (is_bounded && holds.dtype() == DType::boolean && holds.shape().is_scalar())
      holds = on_behalf(v.back().reader(), at, [&] { return logical_and(v.back() < options.maximum_iterations, holds); });
    return {Operand(holds, at)};
  });
  Operands next = builder.add("the body of " + name, specs, [&](const Exprs& v) -> Operands {
    Operands out = body(users(v));
    if (is_bounded) out.push_back(on_behalf(v.back().reader(), at, [&] { return v.back() + 1; }));
    return out;
  });
  if (next.size() != first.size())
    refuse(name, fmt::format("its body yields {} values for {} variables", next.size() - is_bounded, first.size() - is_bounded));
  builder.set_outputs(0, more, {DType::boolean});
  builder.set_outputs(1, next, dtypes);
  WhileParts parts;
  parts.captures = builder.finish();
  parts.graphs = builder.take();
  parts.initial = std::move(first);
  parts.parallel_iterations = options.parallel_iterations;
  parts.back_prop = options.back_prop;
  parts.name = label;
  parts.controls = builder.controls();
  Exprs out = named_errors(name, at, [&] { return bind_while(graph, parts, at); });
  if (is_bounded) out.pop_back();
  return out;
}

Exprs scan(const Operands& elements, const Operands& initial, const LoopBody& step, std::size_t states, const ScanOptions& options,
           const char* what, const Site& at) {
  const std::string name = title(what, options.name, at);
  if (elements.empty()) refuse(name, "there are no elements to go over");
  Operands all = elements;
  all.insert(all.end(), initial.begin(), initial.end());
  Reader* found = reader_of(all);
  if (!found) refuse(name, "none of its operands is an expression; start from a Graph or an Eager scope");
  auto* outer = dynamic_cast<Graph*>(found);
  Reader& reader = outer ? outer->current() : *found;
  Exprs lists;
  for (const Expr& x : in_reader(reader, elements)) {
    if (x.spec().is_list()) refuse(name, "an element is a list; stack it first");
    if (x.shape().has_rank() && x.shape().rank() == 0) refuse(name, "it goes over axis 0 of its elements, and a scalar has none");
    lists.push_back(list_unstack(Operand(x, at)));
  }
  const Exprs first = in_reader(reader, initial);
  const Expr length = list_length(Operand(lists[0], at));
  const std::int64_t steps = elements[0].is_expr() && elements[0].expr().shape().has_rank() ? elements[0].expr().shape()[0] : kAny;
  auto position = [&](const Expr& i) { return on_behalf(i.reader(), at, [&] { return options.reverse ? length - 1 - i : i; }); };
  auto apply = [&](const Exprs& state, const Expr& at_index) {
    Exprs arguments = state;
    for (const Expr& l : lists) arguments.push_back(list_read(Operand(l, at), at_index));
    return step(arguments);
  };
  if (!outer) {  // eager: at once
    Exprs state = first;
    std::vector<Expr> written;
    const std::int64_t n = length.value().item<std::int64_t>();
    for (std::int64_t i = 0; i < n; ++i) {
      Expr index = position(reader.constant(i));
      Exprs made = in_reader(reader, apply(state, index));
      state.assign(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(states));
      for (std::size_t k = states; k < made.size(); ++k) {
        if (written.size() <= k - states) written.push_back(list_reserve(reader, length, made[k].spec()));
        written[k - states] = list_write(written[k - states], index, made[k]);
      }
    }
    for (const Expr& l : written) state.push_back(list_stack(l));
    return state;
  }
  Graph& graph = outer->current();
  const std::string label = options.name.empty() ? what : options.name;
  auto scope = graph.scope(label);
  // The body first: it tells what is put out, and so what lists the loop carries.
  SubGraphBuilder builder(graph, at);
  std::vector<ValueSpec> specs{{DType::i64, Shape{}}};
  for (const Expr& e : first) specs.push_back(e.spec());
  std::vector<DType> dtypes;
  for (const ValueSpec& spec : specs) dtypes.push_back(spec.dtype);
  Operands next = builder.add("the body of " + name, specs, [&](const Exprs& v) -> Operands {
    Graph& body = builder.graph(0);
    Expr index = position(v[0]);
    Operands made = apply(Exprs(v.begin() + 1, v.end()), index);
    Operands out{on_behalf(body, at, [&] { return v[0] + 1; })};
    for (std::size_t k = 0; k < states; ++k) out.push_back(made[k]);
    for (std::size_t k = states; k < made.size(); ++k) {
      Expr value = in_reader(body, made[k]);
      specs.push_back(value.spec().list_of());
      dtypes.push_back(value.dtype());
      out.emplace_back(list_write(Operand(builder.argument(0, specs.back()), at), index, value), at);
    }
    return out;
  });
  Operands more = builder.add("the condition of " + name, specs, [&](const Exprs& v) -> Operands { return {on_behalf(v[0].reader(), at, [&] { return v[0] < length; })}; });
  builder.set_outputs(0, next, dtypes);
  builder.set_outputs(1, more, {DType::boolean});
  WhileParts parts;
  parts.captures = builder.finish();
  parts.graphs = {builder.take()[1], builder.take()[0]};
  on_behalf(graph, at, [&] {
    parts.initial = {graph.constant(std::int64_t{0})};
    parts.initial.insert(parts.initial.end(), first.begin(), first.end());
    for (std::size_t k = 1 + states; k < specs.size(); ++k) parts.initial.push_back(list_reserve(graph, length, specs[k].element()));
  });
  parts.parallel_iterations = options.parallel_iterations;
  parts.name = label;
  parts.controls = builder.controls();
  Exprs out = named_errors(name, at, [&] { return bind_while(graph, parts, at); });
  Exprs results(out.begin() + 1, out.begin() + 1 + static_cast<std::ptrdiff_t>(states));
  for (std::size_t k = 1 + states; k < out.size(); ++k) results.push_back(stacked(out[k], steps, at));
  return results;
}

}  // namespace detail
}  // namespace troupe
