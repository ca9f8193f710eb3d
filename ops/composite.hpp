// Functions of the DSL that are made of others: their nodes carry the caller's line, and so do their errors.
//
//   Expr rms_norm(Operand x, Operand scale) {
//     Composite c("rms_norm", {x, scale});
//     c.require(is_floating(c[0].dtype()), "needs a floating dtype");
//     return c[0] * rsqrt(mean(square(c[0]), {-1}, true)) * c[1];
//   }
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <troupe/ops/op.hpp>
#include <troupe/ops/reader.hpp>

namespace troupe {

class Composite {
 public:
  /// At least one operand is an expression or a variable; numbers take the first expression's dtype.
  Composite(std::string_view name, std::initializer_list<Operand> operands);

  /// The operands as expressions of one reader.
  const Expr& operator[](std::size_t i) const { return inputs_[i]; }
  std::size_t operands() const { return inputs_.size(); }
  Reader& reader() const { return reader_; }
  /// Throws invalid_argument, naming function and line, unless `condition`.
  void require(bool condition, const std::string& message) const;
  /// The rank of operand i, which must be known.
  int rank(std::size_t i) const;
  /// An extent of operand i, which must be known.
  std::int64_t extent(std::size_t i, std::int64_t axis) const;

 private:
  std::string name_;
  Reader& reader_;
  Site site_;  // of the outermost of functions within functions
  Reader::AtSite at_;
  std::vector<Expr> inputs_;
};

}  // namespace troupe
