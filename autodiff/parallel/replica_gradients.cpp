#include <troupe/autodiff/parallel/replica_gradients.hpp>

#include <fmt/format.h>

#include <troupe/autodiff/differentiate.hpp>
#include <troupe/autodiff/rate.hpp>
#include <troupe/functions.hpp>

namespace troupe::data_parallel {

Replicas::Replicas(const char* what, const collective::Group& group, const Exprs& losses,
                   const Options& options, At at)
    : what_(what), group_(group), losses_(losses), clip_norm_(options.clip_norm), at_(at) {
  if (static_cast<int>(losses.size()) != group.size())
    refuse(fmt::format("there are {} losses for {} replicas; give one of each replica",
                       losses.size(), group.size()));
  if (!(clip_norm_ >= 0)) refuse(fmt::format("clip_norm must be 0 or more, not {:g}", clip_norm_));
  for (std::size_t r = 0; r < losses.size(); ++r) {
    if (losses[r].is_empty()) refuse(fmt::format("the loss of replica {} is empty", r));
    auto* const graph = dynamic_cast<Graph*>(&losses[r].reader());
    if (!graph) refuse("losses are values of a graph; eager ones have no replicas");
    if (!graph_) graph_ = graph;
    one_number(losses[r], what, at);
  }
  here_.emplace(*graph_, at);
}

std::vector<Cotangent> Replicas::gradients_of(int replica,
                                              const std::vector<Variable>& variables) const {
  if (variables.empty()) refuse("there is no variable; give one or more");
  const auto there = graph_->on_device(group_.device(replica));
  std::vector<Cotangent> all =
      cotangents(one_number(losses_[static_cast<std::size_t>(replica)], what_, at_), variables,
                 {.unconnected = Unconnected::none}, at_);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].is_none())
      refuse(fmt::format("the loss of replica {} does not depend on the variable '{}'", replica,
                         variables[i].name()));
    else all[i] = flattened(all[i]);
  return all;
}

std::vector<Cotangent> Replicas::gradients_of_all(int replica,
                                                  const std::vector<Variable>& copies) const {
  std::vector<Cotangent> all = gradients_of(replica, copies);
  const auto there = graph_->on_device(group_.device(replica));
  for (int s = 0; s < size(); ++s) {
    if (s == replica) continue;
    const std::vector<Cotangent> others =
        cotangents(one_number(losses_[static_cast<std::size_t>(s)], what_, at_), copies,
                   {.unconnected = Unconnected::none}, at_);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!others[i].is_none()) all[i] = flattened(sum_of({all[i], others[i]}));
  }
  return all;
}

Expr Replicas::mean_loss() const {
  Exprs scalars;
  for (int r = 0; r < size(); ++r) {
    const auto there = graph_->on_device(group_.device(r));
    scalars.push_back(reshape(losses_[static_cast<std::size_t>(r)], Shape()));
  }
  return collective::reduce(group_, scalars, 0, collective::Combine::mean, at_);
}

std::vector<Cotangent> Replicas::clipped(const std::vector<Cotangent>& gradients) const {
  return clip_norm_ > 0 ? clip_by_global_norm(gradients, clip_norm_, at_) : gradients;
}

std::string Replicas::home_of(const Variable& v) const {
  const std::string& own = v.reader().state_spec(v.state()).device;
  return own.empty() ? group_.device(0) : own;
}

std::vector<Variable> Replicas::copies(const std::vector<MirroredVariable>& variables,
                                       int replica) const {
  std::vector<Variable> out;
  for (const MirroredVariable& v : variables) {
    if (static_cast<int>(v.copies().size()) != size())
      refuse(fmt::format("the variable '{}' has {} copies for {} replicas", v.name(),
                         v.copies().size(), size()));
    out.push_back(v[replica]);
  }
  return out;
}

void Replicas::refuse(const std::string& why) const {
  throw Error(Code::invalid_argument, fmt::format("{} at {} over group '{}': {}", what_,
                                                  Site(at_).text(), group_.name(), why));
}

}  // namespace troupe::data_parallel
