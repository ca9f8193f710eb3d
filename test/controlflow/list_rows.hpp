// A row for every operation on lists: a function through it, whose gradients are compared with
// differences.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <troupe/autodiff/check.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>

namespace troupe::test {

using Doubles = std::vector<double>;
inline const Shape kAnyShape = Shape::unknown();

inline Tensor tensor(const Shape& shape, const Doubles& elements, DType dtype = DType::f64) {
  Tensor t = Tensor::empty(dtype, shape);
  for (std::size_t i = 0; i < elements.size(); ++i)
    std::memcpy(static_cast<unsigned char*>(t.raw_mutable()) + i * size_of(dtype),
                Tensor::scalar_as(dtype, elements[i]).raw(), size_of(dtype));
  return t;
}

inline TensorArray array(Graph& g, std::int64_t size, DType dtype = DType::f64,
                         const Shape& element = kAnyShape, bool dynamic = false) {
  return TensorArray(
      g, {.dtype = dtype, .element_shape = element, .size = size, .dynamic_size = dynamic});
}

struct ListRow {
  std::string name;
  std::vector<Tensor> xs;
  Differentiable f;
};

inline Expr index(Graph& g, std::vector<std::int64_t> at) {
  return g.constant(Tensor::of(at, Shape{static_cast<std::int64_t>(at.size())}));
}

// Every list operation on a path; products make the second order see something.
inline std::vector<ListRow> list_rows() {
  Tensor a = tensor({2}, {1.5, -.5}), b = tensor({2}, {.25, 2}),
         m = tensor({3, 2}, {1, 2, -1, .5, 3, -2}), n = tensor({1, 2}, {.7, -1.2});
  return {
      {"push, pop, read",
       {a, b},
       [](Graph& g, const Exprs& x) {
         Expr list = list_push(
             list_push(list_push(list_empty(g, {DType::f64, {kAny}}), x[0]), x[1] * x[0]), x[1]);
         auto [rest, last] = list_pop(list);
         auto [rest2, second] = list_pop(rest);
         return last * second + list_read(rest2, 0) * list_read(list, 1);
       }},
      {"a push whose element nobody reads, a pop whose list nobody reads",
       {a, b},
       [](Graph& g, const Exprs& x) {
         Expr list = list_push(list_push(list_empty(g, {DType::f64, kAnyShape}), x[0]), x[1]);
         return list_read(list, 0) * list_pop(list_push(list, x[0] * x[0])).value;
       }},
      {"two pushes on one list",
       {a, b},
       [](Graph& g, const Exprs& x) {
         Expr list = list_push(list_empty(g, {DType::f64, kAnyShape}), x[0]);
         Expr one = list_push(list, x[1]), two = list_push(list, x[0] * x[1]);
         return list_read(one, 1) * list_read(two, 1) * list_read(two, 0) + list_read(list, 0);
       }},
      {"write, read",
       {a, b},
       [](Graph& g, const Exprs& x) {
         TensorArray ta = array(g, 3).write(2, x[0]).write(0, x[1]),
                     other = array(g, 0, DType::f64, kAnyShape, true).write(4, ta.read(2) * x[1]);
         return ta.read(2) * ta.read(0) * other.read(4) + ta.read(2);
       }},
      {"two writes of one element, of two shapes",
       {a, n},
       [](Graph& g, const Exprs& x) {
         TensorArray ta = array(g, 2).write(1, x[0] * x[0]);
         TensorArray one = ta.write(0, x[0]), two = ta.write(0, x[1]);
         return one.read(0) * one.read(1) + sum(two.read(0) * two.read(0)) * two.read(1);
       }},
      {"stack, unstack",
       {m},
       [](Graph&, const Exprs& x) {
         Expr list = list_unstack(x[0] * x[0]);
         Expr more = list_push(list, list_read(list, 1) * list_read(list, 0));
         return sum(list_stack(more) * list_stack(more)) * list_stack(list_pop(more).list) +
                list_stack(list) * x[0];
       }},
      {"stack of elements not written",
       {a},
       [](Graph& g, const Exprs& x) {
         TensorArray ta = array(g, 3, DType::f64, {2}).write(1, reshape(x[0] * x[0], {2}));
         return ta.stack() * ta.stack() + ta.read(0) * 3.0;
       }},
      {"gather with duplicates, scatter",
       {m},
       [](Graph& g, const Exprs& x) {
         Expr list = list_unstack(x[0]);
         Expr some = list_gather(list, index(g, {2, 0, 2}));
         Expr scattered = list_scatter(index(g, {3, 0, 1}), some * some, 5);
         return list_gather(scattered, index(g, {1, 3})) * list_gather(list, index(g, {1, 1}));
       }},
      {"scatter into a list",
       {m, a},
       [](Graph& g, const Exprs& x) {
         TensorArray ta = array(g, 6).write(5, x[1] * x[1]);
         TensorArray all = ta.scatter(index(g, {4, 0, 2}), x[0]),
                     again = ta.scatter(index(g, {0, 4, 1}), x[0] * x[0]);
         return all.read(5) * all.read(4) * again.read(0) + all.read(2) * again.read(5);
       }},
      {"two scatters into one element, of two shapes",
       {m, a},
       [](Graph& g, const Exprs& x) {
         TensorArray ta = array(g, 4).write(3, x[1] * x[1]);
         TensorArray one = ta.scatter(index(g, {1}), reshape(x[1], {1, 2})),
                     two = ta.scatter(index(g, {1}), reshape(x[0] * x[0], {1, 3, 2}));
         return one.read(1) * one.read(3) * sum(two.read(1) * two.read(1)) * two.read(3);
       }},
      // The gradient with respect to a list, stacked: in slots that the list had not, or not yet,
      // it is zero.
      {"a gradient that is a list",
       {a, b},
       [](Graph& g, const Exprs& x) {
         Expr list =
             list_write(list_reserve(g, 4, {DType::f64, {2}}), 1, reshape(x[0] * x[1], {2}));
         Expr written = list_write(list, 0, reshape(x[0], {2})),
              pushed = list_push(written, reshape(x[1], {2}));
         Expr y = sum(list_read(written, 0) * list_read(written, 0) * list_read(written, 1) *
                      list_read(pushed, 4) * list_read(pushed, 1));
         Expr alone = gradients(y, list)[0];
         Exprs d = gradients(y, {list, x[0]});
         return (list_stack(alone) + x[1]) * (list_stack(d[0]) + x[0]) + d[1];
       }},
      {"concat, split",
       {m, n},
       [](Graph& g, const Exprs& x) {
         Expr list = list_push(list_split(x[0] * x[0], index(g, {2, 0, 1})), x[1]);
         Expr all = list_concat(list), parts = list_split(all * all, index(g, {1, 3}));
         return list_read(parts, 1) * sum(list_read(parts, 0)) + list_read(list, 2) * x[1];
       }},
      {"concat of elements not written",
       {n},
       [](Graph& g, const Exprs& x) {
         TensorArray ta = array(g, 3, DType::f64, {1, 2}).write(1, reshape(x[0] * x[0], {1, 2}));
         return ta.concat() * ta.concat();
       }},
      {"lists of lists",
       {a, b},
       [](Graph& g, const Exprs& x) {
         ValueSpec numbers{DType::f64, kAnyShape};
         Expr one = list_push(list_empty(g, numbers), x[0] * x[1]),
              two = list_push(one, x[1] * x[1]);
         Expr outer = list_push(list_push(list_empty(g, numbers.list_of()), one), two);
         outer = list_write(list_push(outer, two), 3, two, true);
         auto [rest, last] = list_pop(outer);
         return list_read(last, 1) * list_read(list_read(rest, 1), 0) +
                list_read(list_read(rest, 0), 0) * list_pop(list_read(rest, 1)).value;
       }},
      {"lists of anything",
       {a, b},
       [](Graph& g, const Exprs& x) {
         ValueSpec vector{DType::f64, {kAny}};
         Expr any = list_push(list_push(list_of_any(g, DType::f64), x[0] * x[1]),
                              g.constant(std::int64_t{3}));
         any = list_push(any, list_push(list_empty(g, vector), x[1] * x[1]));
         auto [rest, list] = list_pop(any, vector.list_of());
         auto [rest2, number] = list_pop(rest, {DType::i64, {}});
         return list_read(list, 0) * list_read(rest2, 0, vector) * cast(number, DType::f64);
       }},
      {"identity of a list",
       {a},
       [](Graph& g, const Exprs& x) {
         Expr list = identity(list_push(list_empty(g, {DType::f64, kAnyShape}), x[0] * x[0]));
         return list_read(list, 0) * list_read(list, 0);
       }},
      {"products of the elements of two lists",
       {m, b},
       [](Graph& g, const Exprs& x) {
         Expr as = list_split(x[0] * x[0], index(g, {2, 1})), column = reshape(x[1], {2, 1});
         Expr bs = list_push(list_push(list_empty(g, {DType::f64, {kAny, 1}}), column * column),
                             reshape(sum(x[1]), {1, 1}));
         Expr y = bind1("ListProduct", {as, bs});
         return y * y;
       }},
  };
}

}  // namespace troupe::test
