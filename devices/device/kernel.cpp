#include <troupe/devices/device/kernel.hpp>

#include <map>

namespace troupe::detail {

void own_text(std::span<Value> values) {
  for (Value& v : values)
    if (v.kind() == Value::Kind::tensor && v.dtype() == DType::string)
      v = v.tensor().with_own_text();
}

Tensor KernelContext::allocate_over(int i, DType dtype, const Shape& shape) {
  Value& in = inputs_[i];
  if (in.kind() == Value::Kind::tensor && in.dtype() == dtype && in.tensor().is_sole_holder() &&
      in.tensor().shape() == shape &&
      in.tensor().device() == (device_->is_synchronous() ? nullptr : device_))
    return take(i);
  return allocate(dtype, shape);
}

namespace {
using Registry = std::map<std::pair<std::string, std::string>, KernelFactory, std::less<>>;
Registry& registry() {
  static Registry kernels;
  return kernels;
}
}  // namespace

void register_device_kernel(std::string_view device_kind, std::string_view op,
                            KernelFactory factory) {
  registry()[{std::string(device_kind), std::string(op)}] = std::move(factory);
}

const KernelFactory* find_device_kernel(std::string_view device_kind, std::string_view op) {
  auto it = registry().find(std::pair(std::string(device_kind), std::string(op)));
  return it == registry().end() ? nullptr : &it->second;
}

}  // namespace troupe::detail
