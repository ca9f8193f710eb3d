// The gradients of replicas' losses, checked; shared by the functions of data_parallel.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <troupe/autodiff/parallel/data_parallel.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::data_parallel {

/// One call: its name and line, its group and losses.
class Replicas {
 public:
  /// Throws invalid_argument as the functions do.
  Replicas(const char* what, const collective::Group& group, const Exprs& losses,
           const Options& options, At at);

  Graph& graph() const { return *graph_; }
  int size() const { return group_.size(); }
  /// Gradients of replica r's loss with respect to the variables, on the replica's device.
  std::vector<Cotangent> gradients_of(int replica, const std::vector<Variable>& variables) const;
  /// As `gradients_of`, of the sum of all losses: another replica's loss depends on replica r's
  /// copies through collectives, as that of a global batch normalisation does.
  std::vector<Cotangent> gradients_of_all(int replica, const std::vector<Variable>& copies) const;
  /// The mean loss, on the first replica.
  Expr mean_loss() const;
  /// Clips one update's gradients.
  std::vector<Cotangent> clipped(const std::vector<Cotangent>& gradients) const;
  /// The device of a variable, or the first replica's if the variable has none.
  std::string home_of(const Variable& v) const;
  /// Copy r of each variable. Throws invalid_argument unless each has one a replica.
  std::vector<Variable> copies(const std::vector<MirroredVariable>& variables, int replica) const;
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const char* what_;
  const collective::Group& group_;
  const Exprs losses_;
  const double clip_norm_;
  const At at_;
  Graph* graph_ = nullptr;
  std::optional<detail::Reader::AtSite> here_;  // the nodes carry the caller's line
};

}  // namespace troupe::data_parallel
