// The kernels of the nodes that differ from instance to instance of an SPMD plan, or meet others.
#include <troupe/actors/plan/exchange.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/graph/node_types.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/specs_attr.hpp>
#include <troupe/ops/mesh/instances.hpp>

namespace troupe::mesh::detail {
namespace {

using collective::Combine;
using Integers = std::vector<std::int64_t>;
using Values = Exchange::Values;
using Rule = Exchange::Rule;

// ---- operations on the host, by the kernels of the program over devices

// Never destroyed: plans of engines of static lifetime may still run.
Device& host() {
  static Device* const device = make_cpu_device().release();
  return *device;
}

Tensor computed(const char* name, Attrs attrs, const Values& inputs) {
  std::vector<ValueSpec> specs;
  std::vector<Value> values;
  for (const Tensor& t : inputs) {
    values.emplace_back(t);
    specs.push_back(spec_of_value(values.back()));
  }
  const OpDef& op = find_op(name);
  const std::vector<ValueSpec> outputs = infer_outputs(op, specs, attrs);
  const NodeTypes types(specs, outputs);
  const auto kernel = make_node_kernel(op, types.setup(op, attrs, host(), 0, {}));
  const auto stream = host().compute_stream();
  const RunInfo run;
  Value result;
  KernelContext c(values, {&result, 1}, host(), *stream, run);
  kernel->run(c);
  return std::move(result.tensor());
}

Tensor sliced(const Tensor& x, Integers starts, Integers extents) {
  return computed("Slice", Attrs{{"starts", std::move(starts)}, {"extents", std::move(extents)}},
                  {x});
}
// Piece `i` of `parts` along an axis.
Tensor piece(const Tensor& x, int axis, std::int64_t parts, std::int64_t i) {
  const Shape& shape = x.shape();
  Integers starts(static_cast<std::size_t>(shape.rank()), 0), extents(shape.begin(), shape.end());
  const std::int64_t count = shape[axis] / parts;
  starts[static_cast<std::size_t>(axis)] = i * count;
  extents[static_cast<std::size_t>(axis)] = count;
  return sliced(x, std::move(starts), std::move(extents));
}
Tensor joined(const Values& xs, std::int64_t axis) {
  return computed("Concat", Attrs{{"axis", axis}}, xs);
}

const char* op_of(Combine how) {
  switch (how) {
    case Combine::min: return "Minimum";
    case Combine::max: return "Maximum";
    case Combine::product: return "Mul";
    default: return "Add";
  }
}

// ---- kernels

Integers starts_of(const Mesh& mesh, int device, const Shape& piece, const Integers& mesh_axes,
                   const Integers& axes) {
  Integers starts(static_cast<std::size_t>(piece.rank()), 0);
  for (std::size_t i = 0; i < axes.size(); ++i)
    starts[static_cast<std::size_t>(axes[i])] =
        mesh.coordinate(device, static_cast<int>(mesh_axes[i])) * piece[static_cast<int>(axes[i])];
  return starts;
}

// A node of an instance, or of all, that arrives at a meeting.
class Meets final : public Kernel {
 public:
  Meets(std::shared_ptr<Exchange> exchange, std::shared_ptr<const Exchange::Meet> meet,
        std::int64_t key, int group, int giver, int taker)
      : exchange_(std::move(exchange)), meet_(std::move(meet)), key_(key), group_(group),
        giver_(giver), taker_(taker) {}

  void run(KernelContext& c) override {
    const Exchange::Place place{key_, c.tag(), group_};
    Tensor given;
    if (giver_ >= 0) given = c.inputs() > 0 ? c.take(0) : Tensor::scalar(true);
    if (!given.has_value() || given.is_on_host()) {
      if (taker_ < 0) {
        if (giver_ >= 0) exchange_->arrive(c.run(), place, arrival(std::move(given), {}, nullptr));
        c.set(0, Tensor::scalar(true));
      } else {
        exchange_->arrive(c.run(), place, arrival(std::move(given), c.defer(), &c.device()));
      }
      return;
    }
    arrive_later(c, place, std::move(given));
  }

 private:
  Exchange::Arrival arrival(Tensor value, Completion completion, Device* device) const {
    return {.meet = meet_,
            .giver = giver_,
            .value = std::move(value),
            .taker = taker_,
            .completion = std::move(completion),
            .device = device};
  }

  // A value on the memory of a device arrives when it has come to the host. The kernel ends with a
  // Completion. A run that is cancelled ends it while a value may still be combined, and its plan
  // may go then: the exchange and the members are held here.
  void arrive_later(KernelContext& c, const Exchange::Place& place, Tensor on_device) {
    struct Away {
      Tensor on_device, host;
      Completion completion;
      Device* device;
      const RunInfo* run;
    };
    // A scalar in the memory of a device comes back as a vector of one.
    const Shape shape = on_device.shape().is_scalar() ? Shape{1} : on_device.shape();
    auto away = std::make_shared<Away>();
    away->host = c.device().host_empty(on_device.dtype(), shape);
    const View to(away->host);
    if (to.bytes() > 0) std::memset(to.data, 0, to.bytes());
    c.device().copy_to_host(c.stream(), on_device, to);
    away->on_device = std::move(on_device);
    away->device = &c.device();
    away->run = &c.run();
    away->completion = c.defer();
    c.stream().record()->then([away, place, exchange = exchange_, meet = meet_, giver = giver_,
                               taker = taker_](const Status& status) {
      if (!status.ok()) return away->completion.fail(status);
      Device& device = *away->device;
      device.run_on_host([away, place, exchange, meet, giver, taker] {
        try {
          const bool takes = taker >= 0;
          Exchange::Arrival arrival{.meet = meet,
                                    .giver = giver,
                                    .value = away->host.reshaped(away->on_device.shape()),
                                    .taker = taker,
                                    .completion = {},
                                    .device = takes ? away->device : nullptr};
          if (takes) arrival.completion = std::move(away->completion);
          away->on_device = {};
          away->host = {};
          exchange->arrive(*away->run, place, std::move(arrival));
          if (!takes) away->completion.fulfil(Value(Tensor::scalar(true)));
        } catch (...) {
          if (away->completion) away->completion.fail(Status::from_current_exception());
        }
      });
    });
  }

  const std::shared_ptr<Exchange> exchange_;
  const std::shared_ptr<const Exchange::Meet> meet_;
  const std::int64_t key_;
  const int group_, giver_, taker_;
};

// The pieces of the devices that hold a distinct one, in the order of the mesh, joined axis by axis
// as in `expand`.
class Joining {
 public:
  Joining(const Mesh& mesh, const Integers& mesh_axes) : mesh_(mesh), mesh_axes_(mesh_axes) {
    for (int device = 0; device < mesh.size(); ++device)
      if (is_first(device, -1)) givers_.push_back(device);
  }
  const std::vector<int>& givers() const { return givers_; }
  /// The device's place among the givers, which are in order; -1: its piece is another's.
  int giver_of(int device) const {
    const auto it = std::lower_bound(givers_.begin(), givers_.end(), device);
    return it == givers_.end() || *it != device ? -1 : static_cast<int>(it - givers_.begin());
  }
  Tensor operator()(Values given) const {
    Values pieces(static_cast<std::size_t>(mesh_.size()));
    for (std::size_t i = 0; i < given.size(); ++i)
      pieces[static_cast<std::size_t>(givers_[i])] = std::move(given[i]);
    for (std::size_t i = 0; i < mesh_axes_.size(); ++i) {
      if (mesh_axes_[i] < 0) continue;
      for (int device : givers_) {
        if (!is_first(device, static_cast<int>(i))) continue;
        Values all;
        for (int member : mesh_.line(device, static_cast<int>(mesh_axes_[i])))
          all.push_back(std::move(pieces[static_cast<std::size_t>(member)]));
        pieces[static_cast<std::size_t>(device)] = joined(all, static_cast<std::int64_t>(i));
      }
    }
    return std::move(pieces[0]);
  }

 private:
  // True if the device has the joined piece once axes up to `done` are joined, or is the first of
  // those with equal ones.
  bool is_first(int device, int done) const {
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      const auto at = std::find(mesh_axes_.begin(), mesh_axes_.end(), axis) - mesh_axes_.begin();
      const bool is_joined = at <= done || at == static_cast<std::ptrdiff_t>(mesh_axes_.size());
      if (is_joined && mesh_.coordinate(device, axis) != 0) return false;
    }
    return true;
  }

  Mesh mesh_;
  Integers mesh_axes_;
  std::vector<int> givers_;
};

// The part that the kernels of a node share on all devices.
struct Shared {
  std::string op;  // MeshTake and MeshGive are one
  std::shared_ptr<Rule> rule = std::make_shared<Rule>();
  std::optional<Joining> joining = {};
};

class Maker {
 public:
  Maker(const Mesh& mesh, const InstanceNodes& nodes, const Graph& program, const Node& node,
        std::shared_ptr<Exchange> exchange, int instance, Device& device)
      : mesh_(mesh), nodes_(nodes), program_(program), n_(node), op_(node.op->name),
        exchange_(std::move(exchange)), instance_(instance), device_(device) {}

  std::unique_ptr<Kernel> make() {
    check();
    if (op_ == "MeshCoordinate") return coordinate();
    if (op_ == "MeshSlice") return slice();
    std::shared_ptr<const void>& known = exchange_->shared(key());
    if (!known) known = std::make_shared<const Shared>(shared());
    const auto& of_all = *static_cast<const Shared*>(known.get());
    if (of_all.op != shared_op() || of_all.rule->result != result()) refuse("shares a key");
    const int joined = of_all.joining && instance_ >= 0 ? of_all.joining->giver_of(instance_) : -1;
    if (op_ == "MeshExport")
      return meets(of_all, 0, of_all.joining->givers(), all(), joined, instance_);
    const bool gives = op_ == "MeshGive";
    if (gives || op_ == "MeshTake") {
      if (attr<bool>("to_instances"))
        return meets(of_all, 0, kOnce, all(), gives ? 0 : -1, gives ? -1 : instance_);
      return meets(of_all, 0, of_all.joining ? of_all.joining->givers() : all(), kOnce,
                   !gives           ? -1
                   : of_all.joining ? joined
                                    : instance_,
                   gives ? -1 : 0);
    }
    // All devices along the node's mesh axis give and take.
    const std::vector<int> line = mesh_.line(instance_, number("mesh_axis"));
    const int member =
        static_cast<int>(std::find(line.begin(), line.end(), instance_) - line.begin());
    return meets(of_all, line[0], line, line, member, member);
  }

 private:
  static inline const std::vector<int> kOnce{-1};  // in the place of a device

  template <class T>
  const T& attr(const char* name) const {
    return n_.attrs.get<T>(name);
  }
  int number(const char* name) const { return static_cast<int>(attr<std::int64_t>(name)); }
  std::int64_t key() const { return attr<std::int64_t>("key"); }
  bool crosses() const { return op_ == "MeshGive" || op_ == "MeshTake"; }
  std::string shared_op() const { return crosses() ? "MeshTake" : op_; }
  ValueSpec result() const {
    if (!crosses()) return n_.outputs[0];
    const auto* taken =
        dynamic_cast<const SpecsAttr*>(attr<std::shared_ptr<const AttrObject>>("taken").get());
    if (!taken || taken->specs.size() != 1) refuse("takes no value");
    return taken->specs[0];
  }
  std::vector<int> all() const {
    std::vector<int> devices(static_cast<std::size_t>(mesh_.size()));
    std::iota(devices.begin(), devices.end(), 0);
    return devices;
  }

  // ---- attributes, which another node may have sent

  [[noreturn]] void refuse(const char* why) const {
    throw Error(Code::data_loss, fmt::format("{} {} that no pass has made", op_, why));
  }
  void check() const {
    const bool is_of_once = instance_ < 0;
    if (is_of_once != (crosses() && attr<bool>("to_instances") == (op_ == "MeshGive")))
      refuse("is in a place");
    const bool gives = op_ != "MeshTake" && op_ != "MeshCoordinate";
    const bool has_input = gives && (op_ != "MeshGive" || attr<bool>("has_value"));
    if (n_.inputs.size() != (has_input ? 1 : 0)) refuse("has inputs");
    if (n_.attrs.has("mesh_axis")) check_axis(attr<std::int64_t>("mesh_axis"), mesh_.rank());
    if (n_.attrs.has("mesh_axis") && n_.attrs.has("parts"))
      check_parts(attr<std::int64_t>("parts"), attr<std::int64_t>("mesh_axis"));
    for (const char* axis : {"axis", "split_axis"})
      if (n_.attrs.has(axis)) check_axis(attr<std::int64_t>(axis), rank_of_input());
    if (op_ == "MeshSlice") {
      const auto &mesh_axes = attr<Integers>("mesh_axes"), &parts = attr<Integers>("parts");
      check_cut(attr<Integers>("axes"), mesh_axes, n_.outputs[0].shape);
      if (parts.size() != mesh_axes.size()) refuse("has parts");
      for (std::size_t i = 0; i < parts.size(); ++i) check_parts(parts[i], mesh_axes[i]);
    }
    if (n_.attrs.has("by") && attr<std::int64_t>("by") != number("by")) refuse("moves values");
    if (op_ == "MeshExport") check_joined(rank_of_input());
    if (!crosses()) return;
    if (!nodes_.of_once.contains(key())) refuse("meets no node");
    if (n_.attrs.has("piece"))
      check_cut(attr<Integers>("cut_axes"), attr<Integers>("cut_mesh_axes"), attr<Shape>("piece"));
    else if (n_.attrs.has("mesh_axes")) check_joined(Shape::kMaxRank);
  }
  int rank_of_input() const {
    const Shape& shape = program_.spec(n_.inputs[0]).shape;
    if (!shape.has_rank()) refuse("has a shape");
    return shape.rank();
  }
  void check_axis(std::int64_t axis, int axes) const {
    if (axis < 0 || axis >= axes) refuse("has an axis");
  }
  void check_parts(std::int64_t parts, std::int64_t mesh_axis) const {
    if (parts != mesh_.axes()[static_cast<std::size_t>(mesh_axis)].size) refuse("has parts");
  }
  void check_cut(const Integers& axes, const Integers& mesh_axes, const Shape& piece) const {
    if (axes.size() != mesh_axes.size() || !piece.is_known()) refuse("has a piece");
    for (const std::int64_t axis : axes) check_axis(axis, piece.rank());
    for (const std::int64_t axis : mesh_axes) check_axis(axis, mesh_.rank());
  }
  void check_joined(int rank) const {
    const auto& mesh_axes = attr<Integers>("mesh_axes");
    if (mesh_axes.size() > static_cast<std::size_t>(rank)) refuse("joins axes");
    for (const std::int64_t axis : mesh_axes)
      if (axis != -1) check_axis(axis, mesh_.rank());
  }

  // ---- kernels

  std::unique_ptr<Kernel> coordinate() const {
    const std::int64_t at = mesh_.coordinate(instance_, number("mesh_axis"));
    return make_kernel([at](KernelContext& c) { c.set(0, Tensor::scalar(at)); });
  }
  // The device's own kernel of Slice, with its coordinates.
  std::unique_ptr<Kernel> slice() const {
    const Shape& piece = n_.outputs[0].shape;
    Attrs attrs{{"starts", starts_of(mesh_, instance_, piece, attr<Integers>("mesh_axes"),
                                     attr<Integers>("axes"))},
                {"extents", Integers(piece.begin(), piece.end())}};
    const OpDef& op = find_op("Slice");
    const NodeTypes types(program_, n_);
    return make_node_kernel(op, types.setup(op, attrs, device_, n_.origin, {}));
  }
  std::unique_ptr<Kernel> meets(const Shared& shared, int group, const std::vector<int>& givers,
                                const std::vector<int>& takers, int giver, int taker) {
    std::shared_ptr<const Exchange::Meet>& meet = exchange_->meet(key(), group);
    if (!meet)
      meet = std::make_shared<const Exchange::Meet>(shared.rule, nodes_of(givers), nodes_of(takers),
                                                    nodes_.here);
    return std::make_unique<Meets>(exchange_, meet, key(), group, giver, taker);
  }
  std::vector<int> nodes_of(const std::vector<int>& devices) const {
    std::vector<int> nodes;
    for (const int device : devices)
      nodes.push_back(device < 0 ? nodes_.of_once.at(key())
                                 : nodes_.of_device[static_cast<std::size_t>(device)]);
    return nodes;
  }

  // ---- rules

  Shared shared() const {
    Shared made{.op = shared_op()};
    Rule& rule = *made.rule;
    rule.result = result();
    if (crosses()) crossing(made);
    else if (op_ == "MeshExport") joining(made);
    else if (op_ == "MeshAllReduce") all_reduce(rule);
    else if (op_ == "MeshReduceScatter") reduce_scatter(rule);
    else if (op_ == "MeshAllGather") all_gather(rule);
    else if (op_ == "MeshAllToAll") all_to_all(rule);
    else if (op_ == "MeshShift") shift(rule);
    else throw Error(Code::internal, op_ + " has no kernel for an instance");
    return made;
  }
  void joining(Shared& made) const {
    made.joining.emplace(mesh_, attr<Integers>("mesh_axes"));
    made.rule->join = *made.joining;
  }
  void crossing(Shared& made) const {
    if (!attr<bool>("to_instances")) {
      if (attr<bool>("has_value")) joining(made);
      // all have fired
      else made.rule->add = [](const Tensor& first, const Tensor&) { return first; };
    } else if (n_.attrs.has("piece")) {
      made.rule->cut = [mesh = mesh_, shape = attr<Shape>("piece"),
                        mesh_axes = attr<Integers>("cut_mesh_axes"),
                        axes = attr<Integers>("cut_axes")](const Tensor& whole, int, int device) {
        return sliced(whole, starts_of(mesh, device, shape, mesh_axes, axes),
                      Integers(shape.begin(), shape.end()));
      };
    }
  }
  static auto addition(const char* op) {
    return [op](const Tensor& a, const Tensor& b) { return computed(op, {}, {a, b}); };
  }
  void all_reduce(Rule& rule) const {
    rule.add = addition(op_of(static_cast<Combine>(attr<std::int64_t>("combine"))));
    rule.piece = [](const Tensor& x, std::int64_t i, std::int64_t pieces) {
      const std::int64_t n = x.elements(), first = n * i / pieces;
      return sliced(x.reshaped({n}), {first}, {n * (i + 1) / pieces - first});
    };
    rule.from_pieces = [shape = rule.result.shape](const Values& pieces) {
      const Tensor all = joined(pieces, 0);
      if (all.elements() != shape.elements())
        throw Error(Code::data_loss, "devices exchanged pieces of other sizes");
      return all.reshaped(shape);
    };
  }
  void reduce_scatter(Rule& rule) const {
    rule.add = addition("Add");
    rule.cut = [axis = number("axis"), parts = attr<std::int64_t>("parts")](
                   const Tensor& sum, int, int member) { return piece(sum, axis, parts, member); };
  }
  void all_gather(Rule& rule) const {
    rule.join = [axis = attr<std::int64_t>("axis")](const Values& all) {
      return joined(all, axis);
    };
  }
  void all_to_all(Rule& rule) const {
    rule.cut = [split = number("split_axis"), parts = attr<std::int64_t>("parts")](
                   const Tensor& x, int, int member) { return piece(x, split, parts, member); };
    rule.join = [axis = attr<std::int64_t>("axis")](const Values& all) {
      return joined(all, axis);
    };
  }
  // The first devices get zeros unless values wrap. Others get one value, and none of the rest.
  void shift(Rule& rule) const {
    const auto n =
        static_cast<int>(mesh_.axes()[static_cast<std::size_t>(number("mesh_axis"))].size);
    rule.may_need_none = true;
    rule.cut = [n, by = attr<std::int64_t>("by"), wraps = attr<bool>("wrap")](
                   const Tensor& x, int giver, int member) {
      const std::int64_t from = member - by;
      return from == giver || (wraps && (from - giver) % n == 0) ? x : Tensor();
    };
    rule.join = [spec = rule.result](Values all) {
      for (Tensor& x : all)
        if (x.has_value()) return std::move(x);
      return Tensor::zeros(spec.dtype, spec.shape);
    };
  }

  const Mesh& mesh_;
  const InstanceNodes& nodes_;
  const Graph& program_;
  const Node& n_;
  const std::string op_;
  const std::shared_ptr<Exchange> exchange_;
  const int instance_;
  Device& device_;
};

}  // namespace

std::unique_ptr<Kernel> make_exchange_kernel(const Mesh& mesh, const InstanceNodes& nodes,
                                             const Graph& program, const Node& node,
                                             std::shared_ptr<Exchange> exchange, int instance,
                                             Device& device) {
  return Maker(mesh, nodes, program, node, std::move(exchange), instance, device).make();
}

}  // namespace troupe::mesh::detail
