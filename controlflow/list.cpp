#include <troupe/controlflow/list.hpp>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

TensorArray::TensorArray(Expr list, bool dynamic_size)
    : list_(std::move(list)), dynamic_size_(dynamic_size) {
  if (list_.spec().depth != 1)
    throw Error(Code::invalid_argument,
                fmt::format("a TensorArray is a list of tensors, not {}", list_.spec().text()));
}

TensorArray TensorArray::filled(Expr list, const Site& site) const {
  ValueSpec given = list.spec(), own = list_.spec();
  if (given.dtype != own.dtype || !given.shape.is_compatible(own.shape))
    throw Error(Code::invalid_argument,
                fmt::format("at {}: {} does not fit a TensorArray that is {}", site.text(),
                            given.text(), own.text()));
  return TensorArray(std::move(list), dynamic_size_);
}

}  // namespace troupe
