#include <numeric>

#include <fmt/format.h>

#include <troupe/autodiff/tape.hpp>
#include <troupe/autodiff/tape_records.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/eager/staged.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {
namespace {

Shape shape_of_source(const Independent& x) {
  return x.expr() ? x.expr()->shape() : x.variable()->shape();
}

// Returns y's extents, then those of x from axis `from` on.
Extents extents_of(const Expr& y, const Independent& x, int from) {
  const Shape head = y.shape(), tail = shape_of_source(x);
  if (head.is_known() && tail.is_known()) {
    std::vector<std::int64_t> extents;
    for (int i = 0; i < head.rank(); ++i) extents.push_back(head[i]);
    for (int i = from; i < tail.rank(); ++i) extents.push_back(tail[i]);
    return Extents(Shape(extents));
  }
  Expr of_x = shape_of(x.expr() ? *x.expr() : x.variable()->read());
  if (from > 0) of_x = slice(of_x, {from}, {tail.rank() - from});
  return Extents(concat({shape_of(y), of_x}, 0));
}

}  // namespace

std::vector<Expr> GradientTape::rows(const Expr& y, const Independents& xs, const Expr& count,
                                     const Expr& places, const JacobianOptions& options,
                                     const Site& at) {
  if (!options.parallel && !options_.persistent)
    throw Error(Code::failed_precondition,
                fmt::format("the tape at {}: the tape made at {} is not persistent, and a jacobian "
                            "takes one gradient a row; make it with {{.persistent = true}}, or "
                            "leave `parallel` true",
                            at.text(), made_at_.text()));
  begin_use(at);
  const auto gradient_of_row = [&](const Expr& i, Graph* graph) {
    TapeGradientOptions how;
    how.output_gradients = {cast(places == i, y.dtype())};
    // `jacobians` refuses a source that no row reaches
    if (options.unconnected != Unconnected::refused) how.unconnected = options.unconnected;
    return dense(graph ? of_graph(*graph, {y}, xs, how, at) : of_values({y}, xs, how, at));
  };
  std::vector<bool> arrives(xs.size());
  // Yields, of all rows, those gradients that there are.
  const auto in_parallel = [&](Graph* graph) {
    ScanOptions how;
    how.parallel_iterations = options.parallel ? 32 : 1;
    std::vector<Expr> all = map(
        [&](const Expr& i) {
          std::vector<Expr> found = {i}, row = gradient_of_row(i, graph);
          for (std::size_t k = 0; k < row.size(); ++k) {
            arrives[k] = !row[k].is_empty();
            if (arrives[k]) found.push_back(row[k]);
          }
          return found;
        },
        arange(count), how);
    all.erase(all.begin());
    return all;
  };
  std::vector<Expr> stacked;
  auto* graph = dynamic_cast<Graph*>(&y.reader().current());
  if (graph) {
    stacked = in_parallel(graph);
  } else if (options.parallel || count.value().at(0) == 0) {
    stacked = call_code(
        fmt::format("the jacobian at {}", at.text()), [&](Graph&) { return in_parallel(nullptr); },
        static_cast<Eager&>(y.reader()));
  } else {
    std::vector<std::vector<Expr>> by_source(xs.size());
    const auto n = static_cast<std::int64_t>(count.value().at(0));
    for (std::int64_t i = 0; i < n; ++i) {
      const std::vector<Expr> row = gradient_of_row(y.reader().constant(i), nullptr);
      for (std::size_t k = 0; k < row.size(); ++k)
        if (!row[k].is_empty()) by_source[k].push_back(row[k]);
    }
    for (std::size_t k = 0; k < xs.size(); ++k) {
      arrives[k] = !by_source[k].empty();
      if (arrives[k]) stacked.push_back(stack(by_source[k]));
    }
  }
  if (!options_.persistent) records_->clear();
  std::vector<Expr> out(xs.size());
  std::size_t next = 0;
  for (std::size_t k = 0; k < xs.size(); ++k)
    if (arrives[k]) out[k] = stacked[next++];
  return out;
}

std::vector<Expr> GradientTape::jacobians(const Expr& y, const Independents& xs,
                                          const JacobianOptions& options, const Site& at) {
  const auto refuse = [&](const std::string& why, Code code = Code::invalid_argument) {
    throw Error(code, fmt::format("the jacobian at {}: {}", at.text(), why));
  };
  if (y.is_empty()) refuse("the target is an empty expression", Code::failed_precondition);
  for (std::size_t i = 0; i < xs.size(); ++i)
    if (xs[i].expr() && xs[i].expr()->is_empty())
      refuse(fmt::format("source {} is an empty expression", i), Code::failed_precondition);
  if (y.spec().is_list() || !is_floating(y.dtype()))
    refuse(fmt::format("the target of a jacobian is {}; only floating values have one",
                       y.spec().text()));
  const Expr count = size_of(y), places = reshape_like(arange(count), y);
  std::vector<Expr> found = rows(y, xs, count, places, options, at);
  for (std::size_t k = 0; k < xs.size(); ++k) {
    const Extents extents = extents_of(y, xs[k], 0);
    if (!found[k].is_empty()) found[k] = reshape(found[k], extents);
    else if (!unreached(xs[k], k, options.unconnected, at).is_empty())
      found[k] = y.reader().zeros(xs[k].dtype(), extents);
  }
  return found;
}

Expr GradientTape::batch_jacobian(const Expr& y, const Expr& x, const JacobianOptions& options,
                                  At location) {
  const Site at(location);
  const auto refuse = [&](const std::string& why) {
    throw Error(Code::invalid_argument, fmt::format("the jacobian at {}: {}", at.text(), why));
  };
  for (const Expr* e : {&y, &x}) {
    const std::string what = e == &y ? "target" : "source";
    if (e->is_empty())
      throw Error(
          Code::failed_precondition,
          fmt::format("the jacobian at {}: the {} is an empty expression", at.text(), what));
    if (!is_floating(e->dtype()) || !e->shape().has_rank() || e->shape().rank() < 2)
      refuse(
          fmt::format("the {} is {}; a batch of examples is floating and has a rank of at least "
                      "2, the examples along the first axis",
                      what, e->spec().text()));
  }
  const std::int64_t examples = y.shape()[0];
  if (examples >= 0 && x.shape()[0] >= 0 && examples != x.shape()[0])
    refuse(
        fmt::format("the target has {} examples, and the source has {}; their first extents must "
                    "be equal",
                    examples, x.shape()[0]));
  // every example has its one at the same place
  const Expr count = floor_div(size_of(y), maximum(gather(shape_of(y), 0), 1));
  const Expr places = reshape_like(mod(arange(size_of(y)), maximum(count, 1)), y);
  const Expr found = rows(y, x, count, places, options, at)[0];
  const Extents extents = extents_of(y, x, 1);
  if (found.is_empty())
    return unreached(x, 0, options.unconnected, at).is_empty()
               ? Expr()
               : y.reader().zeros(x.dtype(), extents);
  std::vector<std::int64_t> order(static_cast<std::size_t>(x.shape().rank()) + 1);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[1]);
  return reshape(transpose(found, order), extents);
}

}  // namespace troupe
