// Steps whose replicas have copies of all variables: by collectives, and local SGD.
#include <troupe/autodiff/parallel/data_parallel.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/autodiff/parallel/replica_gradients.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>

namespace troupe::data_parallel {
namespace {

using collective::Combine;

// slopes[r][i]: the gradient of variable i on replica r. Yields as many, averaged: dense ones in
// buckets, rows as all replicas' rows.
std::vector<std::vector<Cotangent>> averaged(const Replicas& replicas,
                                             const collective::Group& group,
                                             const std::vector<std::vector<Cotangent>>& slopes,
                                             const Options& options, At at) {
  const std::size_t k = slopes.size(), n = slopes[0].size();
  const auto on = [&](std::size_t r, auto f) {
    const auto there = replicas.graph().on_device(group.device(static_cast<int>(r)));
    return f();
  };
  std::vector<std::vector<Cotangent>> out(k, std::vector<Cotangent>(n));
  std::vector<Exprs> dense;
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < n; ++i) {
    const bool are_rows = std::all_of(slopes.begin(), slopes.end(),
                                      [&](const auto& of) { return of[i].is_sparse(); });
    Exprs values, indices;
    for (std::size_t r = 0; r < k; ++r) {
      if (are_rows) indices.push_back(slopes[r][i].indices);
      values.push_back(on(r, [&] {
        return are_rows ? slopes[r][i].values * (1.0 / static_cast<double>(k))
                        : slopes[r][i].to_dense();
      }));
    }
    if (!are_rows) {
      dense.push_back(std::move(values));
      which.push_back(i);
      continue;
    }
    indices = collective::all_gather(group, indices, 0, at);
    values = collective::all_gather(group, values, 0, at);
    for (std::size_t r = 0; r < k; ++r)
      out[r][i] = Cotangent::sparse(indices[r], values[r], slopes[r][i].like);
  }
  const std::vector<Exprs> means =
      collective::all_reduce(group, dense, Combine::mean, options.buckets, at);
  for (std::size_t d = 0; d < means.size(); ++d)
    for (std::size_t r = 0; r < k; ++r) out[r][which[d]] = means[d][r];
  return out;
}

}  // namespace

Step by_collectives(const collective::Group& group, const Exprs& losses,
                    const std::vector<MirroredVariable>& variables, const Optimizer& optimizer,
                    const Options& options, At at) {
  const Replicas replicas("by_collectives", group, losses, options, at);
  std::vector<std::vector<Cotangent>> slopes;
  for (int r = 0; r < group.size(); ++r)
    slopes.push_back(replicas.gradients_of_all(r, replicas.copies(variables, r)));
  slopes = averaged(replicas, group, slopes, options, at);
  Exprs steps;
  for (int r = 0; r < group.size(); ++r) {
    const auto there = replicas.graph().on_device(group.device(r));
    steps.push_back(optimizer.apply(replicas.clipped(slopes[static_cast<std::size_t>(r)]),
                                    replicas.copies(variables, r), at));
  }
  return {replicas.mean_loss(), troupe::group(steps, at)};
}

Step local_sgd(const collective::Group& group, const Exprs& losses,
               const std::vector<MirroredVariable>& variables, const Optimizer& optimizer,
               int every, const Options& options, At at) {
  const Replicas replicas("local_sgd", group, losses, options, at);
  if (every < 1)
    replicas.refuse(fmt::format("copies are averaged every {} steps; give 1 or more", every));
  Graph& graph = replicas.graph();
  Exprs steps;
  for (int r = 0; r < group.size(); ++r) {
    const auto there = graph.on_device(group.device(r));
    const std::vector<Variable> copies = replicas.copies(variables, r);
    steps.push_back(
        optimizer.apply(replicas.clipped(replicas.gradients_of(r, copies)), copies, at));
  }
  const Expr done = [&] {
    const auto there = graph.on_device(group.device(0));
    return graph
        .variable(group.name() + "/local_sgd/steps", DType::i64, Shape(), Initializer::constant(0),
                  at)
        .assign_add(1);
  }();
  steps.push_back(when(
      done % static_cast<std::int64_t>(every) == std::int64_t{0},
      [&] {
        std::vector<Exprs> copies;
        for (const MirroredVariable& v : variables) {
          Exprs of_one;
          for (int r = 0; r < group.size(); ++r) {
            const auto there = graph.on_device(group.device(r));
            of_one.push_back(v[r].read(at));
          }
          copies.push_back(std::move(of_one));
        }
        const std::vector<Exprs> means =
            collective::all_reduce(group, copies, Combine::mean, options.buckets, at);
        for (std::size_t i = 0; i < variables.size(); ++i)
          for (int r = 0; r < group.size(); ++r) {
            const auto there = graph.on_device(group.device(r));
            variables[i][r].assign(means[i][static_cast<std::size_t>(r)]);
          }
      },
      {.name = "average"}, at));
  return {replicas.mean_loss(), troupe::group(steps, at)};
}

}  // namespace troupe::data_parallel
