#include <troupe/ops/mesh/mixture.hpp>

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::mesh {
namespace {

[[noreturn]] void refuse(const char* what, const MeshAt& at, const std::string& why) {
  throw Error(Code::invalid_argument,
              fmt::format("mesh::{} at {}: {}", what, Site(at).text(), why));
}

// Throws unless `e` has the dimensions, in this order.
void require_dims(const char* what, const char* operand, const Expr& e, const Dims& wanted,
                  const MeshAt& at) {
  const Dims got = dims_of(e, at);
  if (got != wanted)
    refuse(what, at,
           fmt::format("{} has the dimensions {}, and needs {}", operand, text_of(got),
                       text_of(wanted)));
}

// An axis of experts whose values lie where the positions lie.
Dim from(const Dim& experts) { return {experts.name + "/from", experts.size}; }
// Groups of positions where the experts lie.
Dim grouped(const Routing& r) { return {r.experts.name + "/group", r.group.size}; }

std::int64_t capacity_of(const RoutingOptions& o, std::int64_t positions) {
  const double share = static_cast<double>(o.chosen) * static_cast<double>(positions) /
                       static_cast<double>(o.experts.size);
  // Clamped before the cast: a large factor gives more than 64 bits hold.
  const double most = std::max(1.0, static_cast<double>(positions));
  return static_cast<std::int64_t>(std::clamp(std::ceil(share * o.capacity_factor), 1.0, most));
}

// One choice of all positions. Masks are 1 at the expert of a position, else 0.
struct Choice {
  Expr mask;    // [group, position, experts/from]
  Expr weight;  // [group, position]
};

class Router {
 public:
  Router(const Routing& r, DType dtype)
      : r_(r), dtype_(dtype), gated_{r.group, r.position, from(r.experts)} {}

  // The expert that is largest in `by`.
  Choice choose(const Expr& by, const Expr& gates) const {
    const Expr mask = named(one_hot(argmax(by), r_.experts.size, dtype_), gated_);
    return {mask, mesh::sum(gates * mask, {from(r_.experts)})};
  }
  // Gives places, after the `taken` [group, experts/from] that earlier choices have.
  // Returns [group, position, experts/from, capacity]: 1 at the place.
  Expr place(const Expr& mask, const Expr& taken) const {
    Expr before = cumsum(mask, 1, true);
    if (!taken.is_empty()) before = before + aligned(taken, gated_);
    const Expr number = cast(mesh::sum(before * mask, {from(r_.experts)}), DType::i64);
    // A number that is not below the capacity has no place: its row is 0.
    const Expr places =
        named(one_hot(number, r_.capacity.size, dtype_), {r_.group, r_.position, r_.capacity});
    const Dims all{r_.group, r_.position, from(r_.experts), r_.capacity};
    return named(aligned(mask, all) * aligned(places, all), all);
  }
  // How many places each expert of each group has given.
  Expr taken(const Expr& placed) const { return mesh::sum(placed, {r_.position, r_.capacity}); }
  Expr weighted(const Choice& c, const Expr& placed) const {
    const Dims all = dims_of(placed);
    return named(placed * aligned(c.weight, all), all);
  }

 private:
  const Routing& r_;
  const DType dtype_;
  const Dims gated_;
};

}  // namespace

Routing route(const Expr& x, const Expr& gate, const RoutingOptions& options, MeshAt at) {
  const Dims dims = dims_of(x, at);
  for (const Dim& d : dims)
    if (dims.size() != 3 || d.name.empty() || d.name.find('*') != std::string::npos)
      refuse("route", at,
             fmt::format("x has the dimensions {}, and needs three with names: groups, positions "
                         "and width",
                         text_of(dims)));
  if (dims.size() != 3) refuse("route", at, "x is a scalar, and needs groups, positions and width");
  if (options.chosen != 1 && options.chosen != 2)
    refuse("route", at,
           fmt::format("{} experts are chosen for a position; choose 1 or 2", options.chosen));
  if (options.experts.size < options.chosen)
    refuse("route", at,
           fmt::format("dimension '{}' has {} experts, and each position chooses {}",
                       options.experts.name, options.experts.size, options.chosen));
  if (!std::isfinite(options.capacity_factor) || options.capacity_factor <= 0)
    refuse(
        "route", at,
        fmt::format("the capacity factor is {}; give a positive number", options.capacity_factor));
  if (!is_floating(x.dtype()))
    refuse("route", at, fmt::format("x is {}; a gate needs a floating dtype", x.spec().text()));
  require_dims("route", "the gate", gate, {dims[2], options.experts}, at);

  Routing r;
  r.experts = options.experts;
  r.group = dims[0], r.position = dims[1], r.width = dims[2];
  r.capacity = {options.experts.name + "/capacity", capacity_of(options, r.position.size)};
  const Reader::AtSite site(x.reader(), Site(at));
  // Numbers of places are exact in f32, and gates near 0 count.
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Router router(r, dtype);
  const Dims gated{r.group, r.position, from(r.experts)};

  // A gate has no rule for its experts: each device chooses among all of them.
  const Expr weights = named(gate, {r.width, from(r.experts)}, at);
  const Expr scores = cast(mesh::einsum({x, weights}, gated, at), dtype);
  const Expr gates = softmax(scores, from(r.experts), at);
  Choice first = router.choose(gates, gates);
  const Expr placed = router.place(first.mask, {});
  r.dispatch = placed;
  if (options.chosen == 1) {
    r.combine = router.weighted(first, placed);
  } else {
    // No gate is above 1.
    Choice second = router.choose(gates - first.mask * 2.0, gates);
    const Expr both = first.weight + second.weight;
    first.weight = first.weight / both;
    second.weight = second.weight / both;
    const Expr also = router.place(second.mask, router.taken(placed));
    r.dispatch = named(placed + also, dims_of(placed));
    r.combine =
        named(router.weighted(first, placed) + router.weighted(second, also), dims_of(placed));
  }
  const Expr busy = mesh::mean(first.mask, {r.position}), wanted = mesh::mean(gates, {r.position});
  r.loss = mesh::sum(busy * wanted, {r.group, from(r.experts)}) *
           (static_cast<double>(r.experts.size) / static_cast<double>(r.group.size));
  r.load = mesh::sum(router.taken(r.dispatch), {r.group});
  r.dispatch = cast(r.dispatch, x.dtype());
  r.combine = cast(r.combine, x.dtype());
  return r;
}

Expr to_experts(const Routing& r, const Expr& x, MeshAt at) {
  require_dims("to_experts", "x", x, {r.group, r.position, r.width}, at);
  const Reader::AtSite site(x.reader(), Site(at));
  const Expr taken =
      mesh::einsum({r.dispatch, x}, {from(r.experts), r.group, r.capacity, r.width}, at);
  return named(taken, {r.experts, grouped(r), r.capacity, r.width}, at);
}

Expr from_experts(const Routing& r, const Expr& made, MeshAt at) {
  const Dims dims = dims_of(made, at);
  if (dims.size() != 4)
    refuse("from_experts", at,
           fmt::format("the result of the experts has the dimensions {}, and needs {} and columns",
                       text_of(dims), text_of({r.experts, grouped(r), r.capacity})));
  require_dims("from_experts", "the result of the experts", made,
               {r.experts, grouped(r), r.capacity, dims[3]}, at);
  const Reader::AtSite site(made.reader(), Site(at));
  const Expr back = named(made, {from(r.experts), r.group, r.capacity, dims[3]}, at);
  return mesh::einsum({r.combine, back}, {r.group, r.position, dims[3]}, at);
}

Mixture mixture_of_experts(const Expr& x, const Expr& gate, const Expr& in, const Expr& out,
                           const MixtureOptions& options, MeshAt at) {
  const Routing r = route(x, gate, {options.experts, options.chosen, options.capacity_factor}, at);
  const Dims of_in = dims_of(in, at);
  if (of_in.size() != 3)
    refuse("mixture_of_experts", at,
           fmt::format("`in` has the dimensions {}, and needs {} and an inner one", text_of(of_in),
                       text_of({r.experts, r.width})));
  const Dim inner = of_in[2];
  require_dims("mixture_of_experts", "`in`", in, {r.experts, r.width, inner}, at);
  require_dims("mixture_of_experts", "`out`", out, {r.experts, inner, r.width}, at);
  const Reader::AtSite site(x.reader(), Site(at));
  const Dims places{r.experts, grouped(r), r.capacity};
  const auto with = [&](const Dim& last) {
    Dims dims = places;
    dims.push_back(last);
    return dims;
  };
  const Expr wide = mesh::einsum({to_experts(r, x, at), in}, with(inner), at);
  const Expr active = options.activation ? options.activation(wide) : relu(wide);
  const Expr made = mesh::einsum({active, out}, with(r.width), at);
  return {from_experts(r, made, at), r.loss, r.load};
}

}  // namespace troupe::mesh
