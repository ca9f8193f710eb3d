#include <troupe/autodiff/parallel/data_parallel.hpp>

#include <algorithm>

#include <troupe/autodiff/parallel/replica_gradients.hpp>
#include <troupe/functions.hpp>

namespace troupe::data_parallel {
namespace {

bool are_sparse(const std::vector<Cotangent>& all) {
  return std::all_of(all.begin(), all.end(), [](const Cotangent& c) { return c.is_sparse(); });
}

// The mean of one variable's gradients, where the variable is. Sparse rows are joined: an
// optimizer adds up those that occur twice.
Cotangent mean_of(const Replicas& replicas, const collective::Group& group, const Variable& v,
                  std::vector<Cotangent> slopes, At at) {
  const std::string home = replicas.home_of(v);
  if (are_sparse(slopes)) {
    const auto there = replicas.graph().on_device(home);
    Exprs indices, values;
    for (const Cotangent& c : slopes) {
      indices.push_back(c.indices);
      values.push_back(c.values * (1.0 / group.size()));
    }
    return Cotangent::sparse(concat(indices, 0, at), concat(values, 0, at), slopes[0].like);
  }
  Exprs dense;
  for (int r = 0; r < group.size(); ++r) {
    const auto there = replicas.graph().on_device(group.device(r));
    dense.push_back(slopes[static_cast<std::size_t>(r)].to_dense());
  }
  const auto& devices = group.devices();
  const auto found = std::find(devices.begin(), devices.end(), home);
  const int root = found == devices.end() ? 0 : static_cast<int>(found - devices.begin());
  return collective::reduce(group, dense, root, collective::Combine::mean, at);
}

}  // namespace

Step synchronous(const collective::Group& group, const Exprs& losses,
                 const std::vector<Variable>& variables, const Optimizer& optimizer,
                 const Options& options, At at) {
  const Replicas replicas("synchronous", group, losses, options, at);
  std::vector<std::vector<Cotangent>> slopes;
  for (int r = 0; r < group.size(); ++r) slopes.push_back(replicas.gradients_of(r, variables));
  std::vector<Cotangent> means;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    std::vector<Cotangent> of_one;
    for (const auto& of_replica : slopes) of_one.push_back(of_replica[i]);
    means.push_back(mean_of(replicas, group, variables[i], std::move(of_one), at));
  }
  return {replicas.mean_loss(), optimizer.apply(replicas.clipped(means), variables, at)};
}

}  // namespace troupe::data_parallel
