#include <troupe/test/support/programs/eager_runs.hpp>

#include <functional>

#include <fmt/format.h>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/test/support/programs/random_gradients.hpp>

namespace troupe::test {

namespace {

// A scope as a way asks for it, and the recipe's variables in it.
class Place {
 public:
  Place(const Recipe& r, const Way& way) : recipe_(r), way_(way) {
    if (!way.is_alone) engine_ = std::make_unique<Engine>(options_of(way, r.seed));
    scope_ = engine_ ? std::make_unique<Eager>(*engine_) : std::make_unique<Eager>();
    for (std::size_t k = 0; k < r.variables.size(); ++k)
      variables_.push_back(scope_->variable(
          fmt::format("v{}", k), tensor_of(r, r.variables[k].type, r.variables[k].initial)));
  }

  Eager& scope() { return *scope_; }
  const std::vector<Variable>& variables() const { return variables_; }
  Exprs inputs(int run) {
    Exprs out;
    for (const Recipe::Input& in : recipe_.inputs)
      out.push_back(scope_->constant(
          tensor_of(recipe_, in.name.type, in.values[static_cast<std::size_t>(run)])));
    return out;
  }
  Exprs code(const Exprs& inputs) {
    return Kitchen(recipe_, *scope_, inputs, variables_, way_.devices).fetches();
  }
  std::vector<Tensor> on_host(const Exprs& values) {
    std::vector<Tensor> out;
    for (const Expr& e : values) out.push_back(scope_->on_host(e));
    return out;
  }

 private:
  const Recipe& recipe_;
  const Way& way_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Eager> scope_;
  std::vector<Variable> variables_;
};

// `code`, at once or as a traced function.
std::function<Exprs(const Exprs&)> staged(const Way& way, std::function<Exprs(const Exprs&)> code) {
  if (!way.is_traced) return code;
  return function("program", std::move(code));
}

ProgramOutcome run_on_scope(const Recipe& r, const Way& way) {
  ProgramOutcome out;
  try {
    Place place(r, way);
    const auto program = staged(way, [&](const Exprs& inputs) { return place.code(inputs); });
    for (int run = 0; run < r.runs; ++run)
      out.fetched.push_back(place.on_host(program(place.inputs(run))));
    for (const Variable& v : place.variables())
      out.variables.push_back(place.scope().on_host(v.read()));
  } catch (const Error& e) { out.error = e.what(); }
  return out;
}

// A scalar of the inputs, as `Differentiated` makes it of the recipe's graph.
Expr loss_of(Place& place, const Exprs& inputs) {
  return weighted_sum(place.scope(), place.code(inputs));
}

Exprs tape_gradients(Place& place, const std::function<Expr(const Exprs&)>& loss,
                     const Exprs& inputs, const Exprs& xs, int order) {
  GradientTape tape({.watch_variables = false});
  tape.watch(xs);
  const Expr y = order == 1
                     ? loss(inputs)
                     : derived(place.scope(), tape_gradients(place, loss, inputs, xs, order - 1));
  return tape.gradient(y, xs, {.unconnected = Unconnected::zeros});
}

}  // namespace

const std::vector<Way>& eager_ways() {
  static const std::vector<Way> all{
      {.name = "eager", .is_interpreter = true, .is_alone = true},
      {.name = "traced", .is_interpreter = true, .is_alone = true, .is_traced = true},
      {.name = "eager, in an engine", .workers = 1},
      {.name = "eager, spread", .workers = 1, .devices = Devices::all},
      {.name = "eager, on a simulated device", .workers = 1, .device = "sim:0"},
      {.name = "traced, one worker",
       .workers = 1,
       .granularity = Granularity::automatic,
       .is_traced = true},
      {.name = "traced, no passes, an actor an op",
       .workers = 2,
       .granularity = Granularity::op,
       .optimize = false,
       .is_traced = true},
      {.name = "traced, spread",
       .workers = 2,
       .granularity = Granularity::automatic,
       .devices = Devices::all,
       .is_traced = true},
      {.name = "traced, on a simulated device",
       .workers = 1,
       .granularity = Granularity::automatic,
       .device = "sim:0",
       .is_traced = true},
  };
  return all;
}

std::optional<std::string> eager_difference(const Recipe& r, const Expected& e, const Way& way) {
  if (!does_all(r)) throw Unfit("the fetches leave out an effect");
  ProgramOutcome o = run_on_scope(r, way);
  const bool differs = e.error.empty() != o.error.empty();
  // values that nothing uses are computed at once, and may be left out where passes run
  if (differs && may_fail(r) && e.error.empty()) return std::nullopt;
  if (differs && may_fail(r) && way.is_traced && way.optimize) {
    Way plain = way;
    plain.optimize = false;
    o = run_on_scope(r, plain);
  }
  if (auto wrong = difference(r, e, o)) return wrong;
  // Gradients sum cotangents in another order.
  if (!way.is_interpreter || has_slopes(r) || !e.error.empty()) return std::nullopt;
  return difference_of_outcomes(o, interpret(r), "interpreted");
}

std::optional<std::string> tape_difference(const Recipe& r, const Way& way, int order) {
  if (!does_all(r)) throw Unfit("the fetches leave out an effect");
  const auto graph = differentiated(r, Devices::none, order);
  if (graph->d.empty()) throw Unfit("no real input");
  // all effects happen
  Exprs fetches = graph->d;
  const Exprs& all = graph->kitchen.fetches();
  fetches.insert(fetches.end(), all.begin(), all.end());
  std::vector<Tensor> expected = Eager().run(graph->g, graph->feeds(r), fetches);
  expected.resize(graph->d.size());

  try {
    Place place(r, way);
    const auto xs_of = [&](const Exprs& inputs) {
      Exprs xs;
      for (std::size_t k = 0; k < inputs.size(); ++k)
        if (is_real(r.inputs[k].name.type)) xs.push_back(inputs[k]);
      return xs;
    };
    const Exprs inputs = place.inputs(0);
    Exprs d;
    if (r.seed % 2 == 0) {
      const auto program = staged(way, [&](const Exprs& given) {
        return tape_gradients(
            place, [&](const Exprs& in) { return loss_of(place, in); }, given, xs_of(given), order);
      });
      d = program(inputs);
    } else {
      const auto program =
          staged(way, [&](const Exprs& given) { return Exprs{loss_of(place, given)}; });
      d = tape_gradients(
          place, [&](const Exprs& in) { return program(in)[0]; }, inputs, xs_of(inputs), order);
    }
    return difference_of_gradients(place.on_host(d), expected);
  } catch (const Error& e) { return std::string("an error: ") + e.what(); }
}

}  // namespace troupe::test
