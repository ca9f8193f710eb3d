#include <troupe/controlflow/function.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/ops/graph/function_def.hpp>

namespace troupe::detail {
namespace {

// Calls of eager functions nest on the C++ stack.
constexpr int kMaxEagerDepth = 500;

// A number that nothing gives a dtype: an integer is i64, another f32.
DType lone_dtype(const Operand& o) {
  return o.literal().dtype() == DType::f64 ? DType::f32 : o.literal().dtype();
}

}  // namespace

NamedFunction::NamedFunction(Reader& reader, std::string name, std::vector<ValueSpec> parameters,
                             std::optional<std::vector<ValueSpec>> results, Counts counts,
                             const Site& at)
    : reader_(reader), graph_(dynamic_cast<Graph*>(&reader)), name_(std::move(name)),
      declared_at_(at), parameters_(std::move(parameters)), results_(std::move(results)),
      counts_(counts) {
  if (name_.empty())
    throw Error(Code::invalid_argument, fmt::format("a function ({}) needs a name", at.text()));
  if (counts_.takes >= 0 && parameters_.size() != static_cast<std::size_t>(counts_.takes))
    refuse(title(),
           fmt::format(
               "its signature takes {} values, and {} parameters are given; give one spec for each",
               counts_.takes, parameters_.size()));
  if (!graph_) return;
  if (graph_->outer() || &graph_->current() != graph_)
    refuse(
        title(),
        fmt::format("it is declared inside {}; declare it on the outermost graph and call it here",
                    graph_->current().what()));
  for (const auto& other : graph_->functions())
    if (other->name == name_ && !other->base)
      throw Error(Code::already_exists,
                  fmt::format("{}: the name is taken by the function declared at {}", title(),
                              other->site.text()));
  auto made = std::make_shared<FunctionDef>();
  made->name = name_;
  made->site = at;
  made->parameters = parameters_;
  made->parameters.push_back(any_list());  // the environment
  if (results_) made->results = *results_;
  function_ = &graph_->add_function(std::move(made));
}

std::string NamedFunction::title() const { return title(declared_at_); }
std::string NamedFunction::title(const Site& at) const {
  return fmt::format("function '{}' ({})", name_, at.text());
}
void NamedFunction::refuse(const std::string& title, const std::string& why) const {
  throw Error(Code::invalid_argument, title + ": " + why);
}
void NamedFunction::require_yields(std::size_t values, const char* what, const Site& at) const {
  if (counts_.yields >= 0 && values != static_cast<std::size_t>(counts_.yields))
    refuse(title(at),
           fmt::format("its signature yields {} values, and {} {}", counts_.yields, what, values));
}

void NamedFunction::define(Body body, const Site& at) {
  if (function_ ? function_->body != nullptr : body_ != nullptr)
    refuse(title(at), "it is defined already");
  if (graph_) define_in_graph(body, at);
  else body_ = std::move(body);
}

void NamedFunction::define_in_graph(const Body& body, const Site& at) {
  if (&graph_->current() != graph_)
    refuse(title(at),
           fmt::format("it is defined inside {}; define it outside", graph_->current().what()));
  auto scope = graph_->node_scope(name_);
  SubGraphBuilder builder(*graph_, at);
  Operands out =
      builder.add("the body of " + title(at), function_->parameters, [&](const Exprs& all) {
        Graph& here = builder.graph(0);
        const Expr environment = all.back();
        here.take_in_from(environment.edge(), [environment, f = function_, graph = graph_](
                                                  Graph& where, const Expr& outer,
                                                  const Site& site) {
          if (f->body)
            throw Error(Code::invalid_argument,
                        fmt::format("function '{}': {}, which a gradient uses at {}, is outside of "
                                    "it and not used by its body",
                                    f->name, graph->describe(outer.edge().node), site.text()));
          const std::int64_t slot = graph->environment_slot(outer.edge());
          f->captured.push_back({outer.edge(), slot});
          return list_read(Expr(&where, environment.edge()), where.constant(slot), outer.spec());
        });
        return body(Exprs(all.begin(), all.end() - 1));
      });
  if (results_ && out.size() != results_->size())
    refuse(title(at), fmt::format("its body yields {} values, and {} were declared at {}",
                                  out.size(), results_->size(), declared_at_.text()));
  if (!results_) require_yields(out.size(), "its body", at);
  std::vector<DType> dtypes;
  for (std::size_t k = 0; k < out.size(); ++k)
    dtypes.push_back(results_             ? (*results_)[k].dtype
                     : out[k].is_number() ? lone_dtype(out[k])
                                          : out[k].expr().dtype());
  builder.set_outputs(0, out, dtypes);
  if (!builder.graph(0).outer_controls().empty())
    refuse(
        title(at),
        fmt::format("its body cannot start after {}, which is outside of it; let its calls do so",
                    graph_->describe(builder.graph(0).outer_controls()[0])));
  std::vector<ValueSpec> specs;
  for (std::size_t k = 0; k < out.size(); ++k) {
    specs.push_back(builder.output_spec(0, k));
    if (results_ && !(*results_)[k].covers(specs[k]))
      refuse(title(at), fmt::format("result {} is {}, and {} was declared at {}", k,
                                    specs[k].text(), (*results_)[k].text(), declared_at_.text()));
  }
  if (!results_) function_->results = results_.emplace(std::move(specs));
  builder.graph(0).seal();
  graph_->define(*function_, builder.take()[0]);
}

Exprs NamedFunction::call(const Operands& arguments, const Site& at) {
  if (arguments.size() != parameters_.size())
    refuse(title(at),
           fmt::format("it takes {} values, not {}", parameters_.size(), arguments.size()));
  return graph_ ? call_in_graph(graph_->current(), arguments, at) : call_at_once(arguments, at);
}

Expr NamedFunction::as_argument(Reader& reader, const Operand& o, std::size_t i) const {
  if (o.is_number())
    return reader.adopt(Expr(nullptr, o.number_as(parameters_[i].dtype)), o.site());
  if (!o.is_expr()) return reader.adopt(Expr(nullptr, o.literal()), o.site());
  return &o.expr().reader() == &reader ? o.expr() : reader.adopt(o.expr(), o.site());
}

Exprs NamedFunction::call_in_graph(Graph& here, const Operands& arguments, const Site& at) {
  if (!results_)
    refuse(title(at),
           fmt::format("it is called before it is known what it yields; declare its results at {}",
                       declared_at_.text()));
  require_yields(results_->size(), "its declared results are", at);
  Exprs inputs;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    inputs.push_back(as_argument(here, arguments[i], i));
    if (const ValueSpec given = inputs.back().spec(); !parameters_[i].covers(given))
      refuse(title(at), fmt::format("argument {} is {}, and it takes {}", i, given.text(),
                                    parameters_[i].text()));
  }
  inputs.push_back(environment(here, at));
  return bind_call(here, *function_, inputs, at);
}

// Returns the environment for a call. Inside a function it is that function's own. Outside it has
// the values that the bodies of all reachable functions use.
Expr NamedFunction::environment(Graph& here, const Site& at) {
  if (Graph* body = here.function_body()) {
    const Expr mine = body->expr(body->environment());
    return body == &here ? mine : here.adopt(mine, at);
  }
  std::map<std::int64_t, Edge> captured;
  for (const FunctionDef* f : reachable_from(*function_)) {
    if (!f->body)
      refuse(title(at),
             fmt::format("it leads to a call of '{}', declared at {}, which is not defined yet",
                         f->name, f->site.text()));
    for (const FunctionDef::Captured& c : f->captured) captured.emplace(c.slot, c.outer);
  }
  Graph::AtSite site(here, at);
  Expr list = list_of_any(here);
  for (auto [slot, outer] : captured) {
    const Expr value = graph_->expr(outer);
    list = list_write(list, here.constant(slot), &here == graph_ ? value : here.adopt(value, at),
                      true);
  }
  return list;
}

Exprs NamedFunction::call_at_once(const Operands& arguments, const Site& at) {
  if (!body_) refuse(title(at), "it is called and was not defined");
  if (depth_ >= kMaxEagerDepth)
    throw Error(Code::resource_exhausted, fmt::format("{}: it is called inside {} calls of itself, "
                                                      "which is the limit: does its recursion end?",
                                                      title(at), depth_));
  struct Deeper {
    int& depth;
    explicit Deeper(int& d) : depth(d) { ++depth; }
    ~Deeper() { --depth; }
  } deeper(depth_);
  Exprs in;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].is_expr() && dynamic_cast<Graph*>(&arguments[i].expr().reader()))
      refuse(title(at),
             "it belongs to an eager scope and is called with a value of a graph; define it on the "
             "graph");
    in.push_back(as_argument(reader_, arguments[i], i));
    if (const ValueSpec given = in.back().spec(); !parameters_[i].covers(given))
      refuse(title(at), fmt::format("argument {} is {}, and it takes {}", i, given.text(),
                                    parameters_[i].text()));
  }
  Exprs out;
  for (const Operand& o : body_(in)) {
    const std::size_t k = out.size();
    if (o.is_number())
      out.push_back(reader_.adopt(
          Expr(nullptr, o.number_as(results_ && k < results_->size() ? (*results_)[k].dtype
                                                                     : lone_dtype(o))),
          at));
    else out.push_back(o.is_expr() ? o.expr() : reader_.adopt(Expr(nullptr, o.literal()), at));
    if (results_ && (k >= results_->size() || !(*results_)[k].covers(out[k].spec())))
      refuse(title(at), fmt::format("result {} is {}, which is not what was declared at {}", k,
                                    out[k].spec().text(), declared_at_.text()));
  }
  if (results_ && out.size() != results_->size())
    refuse(title(at), fmt::format("its body yields {} values, and {} were declared at {}",
                                  out.size(), results_->size(), declared_at_.text()));
  require_yields(out.size(), "its body", at);
  return out;
}

}  // namespace troupe::detail
