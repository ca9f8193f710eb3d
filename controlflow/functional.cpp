#include <troupe/controlflow/functional.hpp>

#include <limits>

#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/check_nan_predicates.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/controlflow/list_ops.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>

namespace troupe {

Reader* reader_of(const Operands& operands) {
  Reader* reader = nullptr;
  for (const Operand& o : operands)
    if (o.is_expr() && (!reader || o.expr().reader().depth() > reader->depth()))
      reader = &o.expr().reader();
  return reader ? &reader->current() : nullptr;
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
  return name.empty() ? fmt::format("{} ({})", what, at.text())
                      : fmt::format("{} '{}' ({})", what, name, at.text());
}

[[noreturn]] void refuse(const std::string& title, const std::string& why) {
  throw Error(Code::invalid_argument, title + ": " + why);
}

// Binding a functional node checks its sub-graphs: its errors are rewritten to name the construct,
// not the node.
template <class F>
Exprs named_errors(const std::string& title, const Site& at, F bind) {
  try {
    return bind();
  } catch (const Error& e) {
    std::string text = e.what();
    std::size_t found = text.find(at.text() + ": ");
    throw Error(
        e.code(),
        title + ": " +
            (found == std::string::npos ? text : text.substr(found + at.text().size() + 2)));
  }
}

// All elements of a list of `n`, which may be known while the graph is built.
Expr stacked(const Expr& list, std::int64_t n, const Site& at) {
  const ValueSpec element = list.spec().element();
  if (n < 0 || element.is_list() || !element.shape.is_known()) return list_stack(Operand(list, at));
  const Operand operands[] = {Operand(list, at)};
  return bind1("ListStackLike", operands,
               attrs_of({element.dtype, element.shape.with_inserted(0, n)}), at);
}

// Binds nodes that the construct itself needs and that the user did not write.
template <class F>
auto on_behalf(Reader& reader, const Site& at, F bind) {
  const Reader::AtSite here(reader, at);
  return bind();
}

// A number among the next values takes the dtype of its variable, which must hold it.
Expr next_in(Reader& reader, const Operand& o, DType dtype, const std::string& title) {
  if (!o.is_number()) return in_reader(reader, o);
  return reader.adopt(Expr(nullptr, o.number_as(dtype, title + ": ")), o.site());
}

// Checks a variable's initial and next values, in a graph and at once alike. `which`: `variable 1`.
void require_start(const std::string& title, const std::string& which, const ValueSpec& variable,
                   const ValueSpec& first) {
  if (!variable.covers(first))
    refuse(title, fmt::format("{} starts as {}, which its invariant {} does not cover", which,
                              first.text(), variable.text()));
}
void require_same(const std::string& title, const std::string& which, const ValueSpec& variable,
                  const ValueSpec& next, const char* after, const char* advice) {
  if (variable.dtype != next.dtype || variable.depth != next.depth)
    refuse(title, fmt::format("{} is {} at first and {} after {}; it must keep its dtype", which,
                              variable.text(), next.text(), after));
  if (!variable.covers(next))
    refuse(title, fmt::format("{} is {} at first and {} after {}; {}", which, variable.text(),
                              next.text(), after, advice));
}
constexpr const char* kGiveInvariant = "give it a shape invariant that covers both";

// Returns the tensor of an eager value, on the host.
Tensor on_host(const Expr& e) {
  auto* eager = dynamic_cast<Eager*>(&e.reader());
  return eager && !e.held().is_list() ? eager->on_host(e) : e.value();
}

Exprs eager_case(const Expr& index, const std::vector<Branch>& branches, const std::string& title) {
  const Tensor t = on_host(index);
  if (!t.shape().is_scalar())
    refuse(title, "the predicate must be a scalar, not " + index.spec().text());
  if (t.dtype() != DType::boolean && t.dtype() != DType::i32 && t.dtype() != DType::i64)
    refuse(title, "the predicate must be bool, or i32 or i64 for a choice of several, not " +
                      index.spec().text());
  auto i = static_cast<std::int64_t>(t.at(0));
  auto last = static_cast<std::int64_t>(branches.size()) - 1;
  return in_reader(index.reader().current(),
                   branches[static_cast<std::size_t>(i < 0 || i > last ? last : i)]());
}

// Runs `build`, whose variables start as `initial`. If it fails because dtypes differ, an integer
// initial value, which is i64, may be the reason. The failure is recognised by the error texts of
// pointwise ops, `require_same_dtype`, the algebra and branches.
template <class F>
auto explained(const std::string& title, const Operands& initial, const char* which, F build) {
  try {
    return build();
  } catch (const Error& e) {
    std::string text = e.what();
    const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
    const bool differ =
        has("cast one of them") || has("must have one dtype") || has("must be of one dtype");
    if (e.code() != Code::invalid_argument || !differ || !has("i64[]") ||
        has("starts as the number"))
      throw;
    std::string why;
    for (std::size_t k = 0; k < initial.size(); ++k)
      if (initial[k].is_number() && initial[k].literal().dtype() == DType::i64) {
        const auto n = initial[k].literal().item<std::int64_t>();
        why +=
            fmt::format("; {}{} of {} starts as the number {}, which is i64: write {}.0 for f32",
                        why.empty() ? "" : "or ", fmt::format(fmt::runtime(which), k), title, n, n);
      }
    if (why.empty()) throw;
    throw Error(e.code(), text + why);
  }
}

// Returns the eager result of a condition, and records its comparisons in `by`.
Expr watched(Eager* eager, Eager::Comparisons& by, const Condition& condition,
             const Exprs& variables) {
  if (!eager) return condition(variables);
  const Eager::Watching watching(*eager, by);
  return condition(variables);
}

constexpr std::int32_t kVariable = -2;  // the node of marked edges; -1: edges without a mark

// The condition has yielded false. This evaluates it again with comparisons with NaN as true,
// unless it changes states or draws. Its variables are marked meanwhile, so that the error can name
// the one that was NaN.
void require_end(Eager& eager, const Eager::Comparisons& seen, const Condition& condition,
                 const Exprs& variables, const std::string& title) {
  if (!seen.compares || seen.has_effect) return;
  Exprs marked;
  for (const Expr& v : variables)
    marked.emplace_back(&eager, v.held(),
                        Edge{kVariable, static_cast<std::int32_t>(marked.size())});
  Eager::Comparisons again;
  again.nan_holds = true;
  if (on_host(watched(&eager, again, condition, marked)).at(0) == 0 || again.nan.empty()) return;
  const std::string which = again.operand.node == kVariable
                                ? fmt::format("variable {}", again.operand.output)
                                : "a value";
  refuse(title, ended_by_nan(fmt::format("{} compares {}", again.nan, which), 0));
}

}  // namespace

Exprs switch_case(const Operand& index, const std::vector<Branch>& branches,
                  const CondOptions& options, const char* what, const Site& at) {
  const std::string name = title(what, options.name, at);
  if (branches.empty()) refuse(name, "there is no branch");
  if (!index.is_expr()) refuse(name, "the predicate is no expression: use C++'s own if");
  auto* outer = dynamic_cast<Graph*>(&index.expr().reader().current());
  if (!outer) return eager_case(index.expr(), branches, name);
  Graph& graph = outer->current();
  Expr predicate = in_reader(graph, index);
  auto scope = graph.node_scope(options.name.empty() ? what : options.name);
  SubGraphBuilder builder(graph, at);
  std::vector<Operands> results;
  for (std::size_t b = 0; b < branches.size(); ++b) {
    bool is_cond = branches.size() == 2 && predicate.dtype() == DType::boolean;
    std::string which =
        is_cond ? (b ? "the true branch" : "the false branch") : fmt::format("branch {}", b);
    results.push_back(
        builder.add(which + " of " + name, {}, [&](const Exprs&) { return branches[b](); }));
    if (results[b].size() != results[0].size())
      refuse(name,
             fmt::format("its branches yield {} and {} values; they must yield the same structure",
                         results[0].size(), results[b].size()));
  }
  // A number takes the dtype that another branch gives.
  std::vector<DType> dtypes;
  for (std::size_t k = 0; k < results[0].size(); ++k) {
    DType t = lone(results[0][k].is_number() ? results[0][k] : Operand(0.0)).dtype();
    for (const Operands& r : results)
      if (!r[k].is_number()) t = r[k].expr().dtype();
    dtypes.push_back(t);
  }
  for (std::size_t b = 0; b < branches.size(); ++b)
    builder.set_outputs(static_cast<int>(b), results[b], dtypes);
  Exprs captures = builder.finish();
  return named_errors(name, at, [&] {
    return bind_case(graph, predicate, builder.take(), captures,
                     options.name.empty() ? what : options.name, builder.controls(), at);
  });
}

namespace {

// Returns the largest number of iterations as an i64 scalar of `reader`; empty: no bound.
Expr bound_of(Reader& reader, const Operand& most, const std::string& name) {
  if (most.is_number()) {
    const Tensor number = most.number_as(DType::i64, name + ": maximum_iterations ");
    const auto n = number.item<std::int64_t>();
    if (n < -1)
      refuse(name, fmt::format("maximum_iterations is {}; it is -1 where there is none", n));
    return n < 0 ? Expr() : reader.adopt(Expr(nullptr, number), most.site());
  }
  const Expr bound = in_reader(reader, most);
  if (bound.spec().is_list() || (bound.dtype() != DType::i32 && bound.dtype() != DType::i64) ||
      !bound.shape().has_rank() || !bound.shape().is_scalar())
    refuse(name, "maximum_iterations must be an i32 or i64 scalar, not " + bound.spec().text());
  return bound.dtype() == DType::i64 ? bound : cast(Operand(bound, most.site()), DType::i64);
}

}  // namespace

Exprs while_loop(Reader* reader, const Operands& initial, const Condition& condition,
                 const LoopBody& user_body, const WhileOptions& options, const Site& at,
                 const char* what) {
  const std::string name = title(what, options.name, at);
  const LoopBody body = [&](const Exprs& v) {
    return explained(name, initial, "variable {}", [&] { return user_body(v); });
  };
  if (!reader) reader = reader_of(initial);
  if (!reader)
    refuse(name,
           "none of its variables starts as an expression; pass the graph, or start one from "
           "g.constant(...)");
  if (options.shape_invariants.size() > initial.size())
    refuse(name, fmt::format("{} shape invariants are given for {} variables",
                             options.shape_invariants.size(), initial.size()));
  if (options.parallel_iterations < 1) refuse(name, "parallel_iterations must be at least 1");
  auto* outer = dynamic_cast<Graph*>(&reader->current());
  if (!outer) {  // eager: at once
    Exprs variables = in_reader(*reader, initial);
    std::vector<ValueSpec> specs;
    for (std::size_t k = 0; k < variables.size(); ++k) {
      specs.push_back(variables[k].spec());
      if (k < options.shape_invariants.size() && options.shape_invariants[k])
        specs[k].shape = *options.shape_invariants[k];
      require_start(name, fmt::format("variable {}", k), specs[k], variables[k].spec());
    }
    auto* eager = dynamic_cast<Eager*>(reader);
    const Expr bound = bound_of(*reader, options.maximum_iterations, name);
    const std::int64_t most = bound.is_empty() ? std::numeric_limits<std::int64_t>::max()
                                               : on_host(bound).item<std::int64_t>();
    for (std::int64_t n = 0;; ++n) {
      Eager::Comparisons seen;
      Expr more = watched(eager, seen, condition, variables);
      if (more.dtype() != DType::boolean || !more.shape().is_scalar())
        refuse(name, "its condition must yield a bool scalar, not " + more.spec().text());
      if (n >= most) break;  // after the condition and its effects, as in a graph
      if (on_host(more).at(0) == 0) {
        if (eager) require_end(*eager, seen, condition, variables, name);
        break;
      }
      Operands next = body(variables);
      if (next.size() != variables.size())
        refuse(name, fmt::format("its body yields {} values for {} variables", next.size(),
                                 variables.size()));
      for (std::size_t k = 0; k < next.size(); ++k) {
        variables[k] = next_in(*reader, next[k], specs[k].dtype, name);
        require_same(name, fmt::format("variable {}", k), specs[k], variables[k].spec(),
                     "one iteration", kGiveInvariant);
      }
    }
    return variables;
  }
  Graph& graph = outer->current();
  Exprs first = in_reader(graph, initial);
  if (first.empty() && !graph.outer())
    refuse(name,
           "it has no variables, so that nothing could ask for its end and it would never run; "
           "give it one, such as a counter");
  const Expr bound = bound_of(graph, options.maximum_iterations, name);
  const bool is_bounded = !bound.is_empty();
  if (is_bounded)
    first.push_back(on_behalf(graph, at, [&] { return graph.constant(std::int64_t{0}); }));
  std::vector<ValueSpec> specs;
  std::vector<DType> dtypes;
  for (std::size_t k = 0; k < first.size(); ++k) {
    specs.push_back(first[k].spec());
    if (k < options.shape_invariants.size() && options.shape_invariants[k])
      specs[k].shape = *options.shape_invariants[k];
    dtypes.push_back(specs[k].dtype);
  }
  const std::string label = options.name.empty() ? what : options.name;
  auto scope = graph.node_scope(label);
  SubGraphBuilder builder(graph, at);
  auto users = [&](const Exprs& v) { return is_bounded ? Exprs(v.begin(), v.end() - 1) : v; };
  Operands more = builder.add("the condition of " + name, specs, [&](const Exprs& v) -> Operands {
    Expr holds = condition(users(v));
    // A predicate of unknown rank may be a scalar; another shape is refused below.
    if (is_bounded && holds.dtype() == DType::boolean &&
        (!holds.shape().has_rank() || holds.shape().is_scalar()))
      holds =
          on_behalf(v.back().reader(), at, [&] { return logical_and(v.back() < bound, holds); });
    return {Operand(holds, at)};
  });
  Operands next = builder.add("the body of " + name, specs, [&](const Exprs& v) -> Operands {
    Operands out = body(users(v));
    if (is_bounded) out.push_back(on_behalf(v.back().reader(), at, [&] { return v.back() + 1; }));
    return out;
  });
  if (next.size() != first.size())
    refuse(name, fmt::format("its body yields {} values for {} variables", next.size() - is_bounded,
                             first.size() - is_bounded));
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

Exprs scan(const Operands& elements, const Operands& initial, const LoopBody& user_step,
           std::size_t states, const ScanOptions& options, const char* what, const Site& at) {
  const std::string name = title(what, options.name, at);
  // A scan's step yields its state twice, the second time as an output; a map's step may yield
  // anything, and dynamic_rnn checks its own.
  const bool is_scan = std::string_view(what) == "scan", is_fold = std::string_view(what) == "fold";
  const LoopBody step = [&](const Exprs& v) {
    Operands made = explained(name, initial, "part {} of the state", [&] { return user_step(v); });
    const std::size_t yields = is_scan ? made.size() / 2 : made.size();
    if ((is_scan || is_fold) && yields != states)
      refuse(name, fmt::format("its step yields {} values for a state of {}", yields, states));
    return made;
  };
  if (elements.empty()) refuse(name, "there are no elements to go over");
  Operands all = elements;
  all.insert(all.end(), initial.begin(), initial.end());
  Reader* found = reader_of(all);
  if (!found)
    refuse(name, "none of its operands is an expression; start from a Graph or an Eager scope");
  auto* outer = dynamic_cast<Graph*>(found);
  Reader& reader = outer ? outer->current() : *found;
  if (options.parallel_iterations < 1) refuse(name, "parallel_iterations must be at least 1");
  if (options.shape_invariants.size() > initial.size())
    refuse(name, fmt::format("{} shape invariants are given for a state of {}",
                             options.shape_invariants.size(), initial.size()));
  Exprs lists;
  // the number of elements, and the operand that it is known from
  std::int64_t steps = kAny, told_by = 0;
  for (const Expr& x : in_reader(reader, elements)) {
    if (x.spec().is_list()) refuse(name, "an element is a list; stack it first");
    if (x.shape().has_rank() && x.shape().rank() == 0)
      refuse(name, "it iterates over axis 0 of its elements, and a scalar has none");
    if (const std::int64_t n = x.shape().has_rank() ? x.shape()[0] : kAny; n >= 0) {
      if (steps >= 0 && n != steps)
        refuse(name, fmt::format("elements {} and {} are {} and {} long on axis 0; they are gone "
                                 "over together, and must be as long",
                                 told_by, lists.size(), steps, n));
      if (steps < 0) steps = n, told_by = static_cast<std::int64_t>(lists.size());
    }
    lists.push_back(list_unstack(Operand(x, at)));
  }
  const Exprs first = in_reader(reader, initial);
  std::vector<ValueSpec> state_specs;
  auto which = [](std::size_t k) { return fmt::format("part {} of the state", k); };
  for (std::size_t k = 0; k < first.size(); ++k) {
    state_specs.push_back(first[k].spec());
    if (k < options.shape_invariants.size() && options.shape_invariants[k])
      state_specs[k].shape = *options.shape_invariants[k];
    require_start(name, which(k), state_specs[k], first[k].spec());
  }
  auto require_state = [&](std::size_t k, const ValueSpec& next) {
    require_same(name, which(k), state_specs[k], next, "one step",
                 is_scan || is_fold ? kGiveInvariant : "it must keep its shape");
  };
  const Expr length = [&] {
    Operands all_lists;
    for (const Expr& l : lists) all_lists.emplace_back(l, at);
    return common_length(all_lists, at);
  }();
  auto position = [&](const Expr& i) {
    return on_behalf(i.reader(), at, [&] { return options.reverse ? length - 1 - i : i; });
  };
  auto apply = [&](const Exprs& state, const Expr& at_index) {
    Exprs arguments = state;
    for (const Expr& l : lists) arguments.push_back(list_read(Operand(l, at), at_index));
    return step(arguments);
  };
  // The outputs may repeat the state; then a number takes the state's dtype.
  auto put_out = [&](Reader& into, const Operands& made, std::size_t k) {
    return made.size() == 2 * states ? next_in(into, made[k], state_specs[k - states].dtype, name)
                                     : in_reader(into, made[k]);
  };
  if (!outer) {  // eager: at once
    Exprs state = first;
    std::vector<Expr> written;
    const std::int64_t n = on_host(length).item<std::int64_t>();
    if (n == 0 && !is_fold) {
      // Nothing is computed, and no effect happens: the specs of the outputs come from a graph that
      // is never run.
      Graph unused;
      Exprs arguments;
      for (const ValueSpec& spec : state_specs) arguments.push_back(unused.argument(spec, at));
      for (const Expr& l : lists) arguments.push_back(unused.argument(l.spec().element(), at));
      const Operands made = [&] {
        std::optional<Eager::Looking> looking;
        if (auto* eager = dynamic_cast<Eager*>(&reader)) looking.emplace(*eager);
        return step(arguments);
      }();
      for (std::size_t k = states; k < made.size(); ++k)
        written.push_back(list_reserve(reader, length, put_out(unused, made, k).spec()));
    }
    for (std::int64_t i = 0; i < n; ++i) {
      Expr index = position(reader.constant(i));
      const Operands next = apply(state, index);
      Exprs made;
      for (std::size_t k = 0; k < next.size(); ++k) {
        made.push_back(k < states ? next_in(reader, next[k], state_specs[k].dtype, name)
                                  : put_out(reader, next, k));
        if (k < states) require_state(k, made[k].spec());
      }
      state.assign(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(states));
      for (std::size_t k = states; k < made.size(); ++k) {
        if (written.size() <= k - states)
          written.push_back(list_reserve(reader, length, made[k].spec()));
        written[k - states] = list_write(written[k - states], index, made[k]);
      }
    }
    for (const Expr& l : written) state.push_back(list_stack(l));
    return state;
  }
  Graph& graph = outer->current();
  const std::string label = options.name.empty() ? what : options.name;
  auto scope = graph.node_scope(label);
  // The body comes first: its outputs determine the lists that the loop carries.
  SubGraphBuilder builder(graph, at);
  std::vector<ValueSpec> specs{{DType::i64, Shape{}}};
  specs.insert(specs.end(), state_specs.begin(), state_specs.end());
  std::vector<DType> dtypes;
  for (const ValueSpec& spec : specs) dtypes.push_back(spec.dtype);
  Operands next = builder.add("the body of " + name, specs, [&](const Exprs& v) -> Operands {
    Graph& body = builder.graph(0);
    Expr index = position(v[0]);
    Operands made = apply(Exprs(v.begin() + 1, v.end()), index);
    Operands out{on_behalf(body, at, [&] { return v[0] + 1; })};
    for (std::size_t k = 0; k < states; ++k) out.push_back(made[k]);
    for (std::size_t k = states; k < made.size(); ++k) {
      Expr value = put_out(body, made, k);
      specs.push_back(value.spec().list_of());
      dtypes.push_back(value.dtype());
      out.emplace_back(list_write(Operand(builder.argument(0, specs.back()), at), index, value),
                       at);
    }
    return out;
  });
  Operands more = builder.add("the condition of " + name, specs, [&](const Exprs& v) -> Operands {
    return {on_behalf(v[0].reader(), at, [&] { return v[0] < length; })};
  });
  builder.set_outputs(0, next, dtypes);
  builder.set_outputs(1, more, {DType::boolean});
  for (std::size_t k = 0; k < states; ++k) require_state(k, builder.output_spec(0, 1 + k));
  WhileParts parts;
  parts.captures = builder.finish();
  parts.graphs = {builder.take()[1], builder.take()[0]};
  on_behalf(graph, at, [&] {
    parts.initial = {graph.constant(std::int64_t{0})};
    parts.initial.insert(parts.initial.end(), first.begin(), first.end());
    for (std::size_t k = 1 + states; k < specs.size(); ++k)
      parts.initial.push_back(list_reserve(graph, length, specs[k].element()));
  });
  parts.parallel_iterations = options.parallel_iterations;
  parts.back_prop = options.back_prop;
  parts.name = label;
  parts.controls = builder.controls();
  Exprs out = named_errors(name, at, [&] { return bind_while(graph, parts, at); });
  Exprs results(out.begin() + 1, out.begin() + 1 + static_cast<std::ptrdiff_t>(states));
  for (std::size_t k = 1 + states; k < out.size(); ++k)
    results.push_back(stacked(out[k], steps, at));
  return results;
}

}  // namespace detail
}  // namespace troupe
