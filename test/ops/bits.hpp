// The cases of the table as tensors of a dtype, and how near to a reference in double precision its
// results are.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include <troupe/test/ops/tables/table.hpp>

namespace troupe::test {

inline Tensor tensor_of(const Array& a, DType dtype) {
  Tensor t = Tensor::empty(dtype, a.shape);
  auto* bytes = static_cast<unsigned char*>(t.raw_mutable());
  for (std::size_t i = 0; i < a.v.size(); ++i) {
    double v = a.v[i];
    if (is_integer(dtype)) v = is_signed_integer(dtype) ? std::trunc(v) : std::abs(std::trunc(v));
    Tensor one = Tensor::scalar_as(dtype, v);
    std::memcpy(bytes + i * size_of(dtype), one.raw(), size_of(dtype));
  }
  return t;
}

inline DType dtype_of_role(Role role, DType under_test) {
  if (role == Role::truth) return DType::boolean;
  if (role == Role::index) return under_test == DType::f32 ? DType::i32 : DType::i64;
  return under_test;
}

inline std::vector<Tensor> tensors_of(const Case& c, DType dtype) {
  std::vector<Tensor> out;
  for (const Sample& s : c.inputs) out.push_back(tensor_of(s.array, dtype_of_role(s.role, dtype)));
  return out;
}

inline double tolerance_of(DType t) {
  switch (t) {
    case DType::f16: return 1.0 / 1024;
    case DType::bf16: return 1.0 / 128;
    case DType::f32: return 1e-6;
    case DType::f64: return 1e-13;
    default: return 0;
  }
}

}  // namespace troupe::test
