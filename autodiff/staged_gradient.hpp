// The gradient of a staged function: programs over its graph, to which the gradient's nodes are
// appended once (`of`).
//
//   forward     one; yields the function's outputs, then the values that the gradient needs
//   backward    one for each set of needed inputs, made when first used; takes these values, the
//               inputs that it uses, and one cotangent an output; yields dx, dense or as rows
//
// Each is a staged function itself: a tape around the call of a backward program differentiates it
// like any other.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/eager/staged.hpp>

namespace troupe {

class StagedGradient final : public StagedExtension {
 public:
  /// Returns the function's gradient, made on first use. Throws the errors of differentiation.
  static std::shared_ptr<StagedGradient> of(const std::shared_ptr<StagedFunction>& function);

  const std::shared_ptr<StagedFunction>& forward() const { return forward_; }

  /// The origin of an input of the backward program.
  struct Source {
    enum class Kind : std::uint8_t { output, input, cotangent } kind;
    std::size_t index;  // counts the forward program's outputs or inputs, the function's outputs
  };
  /// The place of a cotangent among the backward program's outputs.
  struct Result {
    std::int32_t dense = -1;                 // -1: none, or sparse
    std::int32_t indices = -1, values = -1;  // a sparse cotangent's
    bool is_none() const { return dense < 0 && indices < 0; }
  };
  struct Backward {
    std::shared_ptr<StagedFunction> function;
    std::vector<Source> sources;
    std::vector<Result> inputs;     // one an input of the function
    std::vector<Result> variables;  // one for each of its `reads`
  };
  /// For those inputs and variables; `needed` has one flag for each, variables last.
  const Backward& backward(const std::vector<bool>& needed);
  /// Why output i has no gradient though it is floating; ok: it has one. `ends_are_zeros`: paths
  /// that end are no reason.
  const Status& refusal(std::size_t i, bool ends_are_zeros) const {
    return ends_are_zeros ? failures_[i] : refusals_[i];
  }

 private:
  explicit StagedGradient(const std::shared_ptr<StagedFunction>& function);
  void find_refusals(const std::vector<Independent>& xs);
  std::unique_ptr<Backward> make_backward(const std::vector<bool>& needed) const;
  /// Appends the gradient of those outputs that have one.
  void append(const std::vector<Independent>& xs, const std::vector<std::size_t>& place);
  std::vector<Edge> edges_of(const Cotangent& c) const;
  /// The outputs of the gradient's own effects.
  std::vector<Edge> effects() const;
  /// The values made before the gradient that these edges are computed from.
  std::vector<Edge> used_by(std::vector<Edge> edges) const;

  const std::shared_ptr<StagedGraph> in_;
  const std::string name_;
  const std::vector<Edge> inputs_, outputs_;
  const std::vector<StagedFunction::Read> reads_;
  std::int32_t forward_nodes_;        // nodes before those of the gradient
  std::int32_t first_ = 0, end_ = 0;  // the nodes of the gradient whose effects happen
  // one an output; a failed one is refused, too
  std::vector<Status> failures_, refusals_;
  std::vector<Edge> cotangents_;    // one an output; none: it carries no gradient
  std::vector<Cotangent> results_;  // inputs, then variables
  std::vector<Edge> saved_;
  std::shared_ptr<StagedFunction> forward_;
  std::map<std::vector<bool>, std::unique_ptr<Backward>> backward_;
};

}  // namespace troupe
