// Value specs as an attribute (a queue's components).
#pragma once

#include <vector>

#include <troupe/devices/device/attr.hpp>
#include <troupe/ops/graph/expr.hpp>

namespace troupe::detail {

class SpecsAttr final : public AttrObject {
 public:
  explicit SpecsAttr(std::vector<ValueSpec> s) : specs(std::move(s)) {}
  std::string text() const override {
    std::string out;
    for (const ValueSpec& s : specs) out += (out.empty() ? "" : ", ") + s.text();
    return out;
  }
  const std::vector<ValueSpec> specs;
};

std::shared_ptr<const AttrObject> make_specs_attr(std::vector<ValueSpec> specs);

}  // namespace troupe::detail
