#include <troupe/ops/mesh/variables.hpp>

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe::mesh::detail {
namespace {

// Copies a box of `piece`'s shape between the whole value and the piece, row by row.
template <class Copy>
void for_rows(const Shape& whole, const Shape& piece, const std::vector<std::int64_t>& starts,
              const Copy& copy) {
  const int rank = whole.rank();
  if (rank == 0) return copy(0, 0, 1);
  std::vector<std::int64_t> at(static_cast<std::size_t>(rank), 0);
  const std::int64_t length = piece[rank - 1], rows = length == 0 ? 0 : piece.elements() / length;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t offset = 0;
    for (int i = 0; i < rank; ++i)
      offset =
          offset * whole[i] + at[static_cast<std::size_t>(i)] + starts[static_cast<std::size_t>(i)];
    copy(offset, row * length, length);
    for (int i = rank - 2; i >= 0; --i) {
      if (++at[static_cast<std::size_t>(i)] < piece[i]) break;
      at[static_cast<std::size_t>(i)] = 0;
    }
  }
}

const Shape& shape_of(const StateSpec& spec) { return spec.values[0].shape; }

// Rewrites the nodes of variables that have pieces.
class Joining {
 public:
  Joining(Program program, const VariableHomes& homes, const std::vector<std::string>& kept)
      : from_(std::move(program)), rewriter_(from_) {
    for (std::int32_t state : states_used_by(from_.graph)) {
      const StateSpec& spec = from_.graph.states()[static_cast<std::size_t>(state)];
      if (spec.kind != StateSpec::Kind::variable ||
          std::find(kept.begin(), kept.end(), spec.name) != kept.end())
        continue;
      if (auto laid = homes.find(spec)) laid_[state] = std::move(laid);
    }
  }

  Program run() {
    if (laid_.empty()) return from_;
    for (std::int32_t id = 0; id < from_.graph.size(); ++id) {
      const Node& n = from_.graph.node(id);
      const auto it = laid_.find(n.state);
      if (it != laid_.end()) {
        join(id, *it->second);
        continue;
      }
      refuse_inside(id);
      rewriter_.keep(id);
    }
    return rewriter_.finish();
  }

 private:
  void refuse_inside(std::int32_t id) const {
    const Node& n = from_.graph.node(id);
    if (!n.op->evaluate) return;
    for (const auto& [state, effect] : effects_of(n))
      if (const auto it = laid_.find(state); it != laid_.end())
        throw Error(
            Code::failed_precondition,
            fmt::format("{} uses {}, which this engine stores in pieces, {}; read it "
                        "outside of loops, branches and functions",
                        from_.graph.describe(id), it->second->whole.text(), it->second->text));
  }

  std::int32_t append(Node node) { return rewriter_.graph().append(std::move(node)); }
  Edge bind(const char* op, const std::vector<Edge>& inputs, Attrs attrs, const Node& like) {
    Exprs xs;
    for (Edge e : inputs) xs.push_back(rewriter_.graph().expr(e));
    return rewriter_.graph().bind(find_op(op), xs, std::move(attrs), like.site)[0].edge();
  }

  void join(std::int32_t id, const LaidVariable& laid) {
    const Node& n = from_.graph.node(id);
    const std::vector<std::int32_t>& states = states_of(n.state, laid);
    const std::vector<std::size_t> distinct = laid.distinct();
    const bool is_read = n.op->name == "ReadVariable";
    std::map<std::size_t, Edge> values;
    for (std::size_t i = 0; i < laid.pieces.size(); ++i) {
      const bool is_distinct = std::find(distinct.begin(), distinct.end(), i) != distinct.end();
      if (is_read && !is_distinct) continue;
      Node made = rewriter_.translated(id);
      if (n.op->name == "ScatterVariable") {
        // The whole value is scattered to, and each piece is set to its part.
        made.inputs = {cut_edge(scattered(id, laid), laid.pieces[i], n)};
        made.op = &find_op("AssignVariable");
        made.attrs = Attrs{};
        made.attrs.set("dtype", laid.whole.values[0].dtype);
      } else if (!is_read) {
        made.inputs = {cut_edge(made.inputs[0], laid.pieces[i], n)};
      }
      made.attrs.set("shape", shape_of(laid.pieces[i].spec));
      made.outputs = {laid.pieces[i].spec.values[0]};
      made.state = states[i];
      made.device.clear();
      made.name.clear();
      values[i] = {append(std::move(made)), 0};
    }
    scattered_.reset();
    const Edge whole = joined_edge(laid, values, n);
    if (is_read || distinct.size() == laid.pieces.size())
      return rewriter_.alias(id, {whole}, whole.node);
    // The whole value has one of equal pieces; a use of it waits for the updates of all.
    Node all;
    all.op = &find_op("Identity");
    all.inputs = {whole};
    all.outputs = {rewriter_.graph().spec(whole)};
    for (const auto& [i, edge] : values) all.controls.push_back(edge.node);
    all.site = n.site;
    const std::int32_t made = append(std::move(all));
    rewriter_.alias(id, {{made, 0}}, made);
  }

  Edge scattered(std::int32_t id, const LaidVariable& laid) {
    if (scattered_) return *scattered_;
    const Node node = rewriter_.translated(id);
    std::map<std::size_t, Edge> values;
    const std::vector<std::int32_t> states = states_of(from_.graph.node(id).state, laid);
    for (std::size_t i : laid.distinct()) {
      Node read;
      read.op = &find_op("ReadVariable");
      read.attrs =
          Attrs{{"dtype", laid.whole.values[0].dtype}, {"shape", shape_of(laid.pieces[i].spec)}};
      read.outputs = {laid.pieces[i].spec.values[0]};
      read.state = states[i];
      read.site = node.site;
      values[i] = {append(std::move(read)), 0};
    }
    Exprs xs{rewriter_.graph().expr(joined_edge(laid, values, node))};
    const auto mode = static_cast<Scatter>(node.attrs.get<std::int64_t>("mode"));
    Edge updates = node.inputs[1];
    if (mode == Scatter::sub) updates = bind("Neg", {updates}, {}, node);
    if (mode == Scatter::update)
      throw Error(Code::failed_precondition,
                  fmt::format("{} sets rows of {}, which this engine stores in pieces, {}; run it "
                              "under the same mesh and layout",
                              from_.graph.describe(id), laid.whole.text(), laid.text));
    scattered_ = bind("ScatterAdd", {xs[0].edge(), node.inputs[0], updates}, {}, node);
    return *scattered_;
  }

  const std::vector<std::int32_t>& states_of(std::int32_t state, const LaidVariable& laid) {
    auto [it, is_new] = states_.try_emplace(state);
    if (is_new) it->second = declare_pieces(rewriter_.graph(), laid);
    return it->second;
  }

  Edge cut_edge(Edge whole, const Piece& piece, const Node& like) {
    const Shape &shape = shape_of(piece.spec), given = rewriter_.graph().spec(whole).shape;
    std::vector<std::int64_t> starts, extents;
    for (int i = 0; i < given.rank(); ++i) {
      const int at = i + shape.rank() - given.rank();
      const bool is_repeated = given[i] == 1;
      starts.push_back(is_repeated ? 0 : piece.starts[static_cast<std::size_t>(at)]);
      extents.push_back(is_repeated ? 1 : shape[at]);
    }
    if (given.is_scalar()) return whole;
    return bind("Slice", {whole}, Attrs{{"starts", starts}, {"extents", extents}}, like);
  }

  // Joins the pieces axis by axis, the last axis first.
  Edge joined_edge(const LaidVariable& laid, const std::map<std::size_t, Edge>& values,
                   const Node& like) {
    std::map<std::vector<std::int64_t>, Edge> boxes;
    for (std::size_t i : laid.distinct()) boxes[laid.pieces[i].starts] = values.at(i);
    for (int axis = shape_of(laid.whole).rank() - 1; axis >= 0; --axis) {
      std::map<std::vector<std::int64_t>, std::vector<Edge>> rows;
      for (const auto& [starts, edge] : boxes) {
        std::vector<std::int64_t> key = starts;
        key[static_cast<std::size_t>(axis)] = 0;
        rows[key].push_back(edge);
      }
      boxes.clear();
      for (const auto& [key, row] : rows)
        boxes[key] = row.size() == 1
                         ? row[0]
                         : bind("Concat", row, Attrs{{"axis", std::int64_t{axis}}}, like);
    }
    return boxes.begin()->second;
  }

  const Program from_;
  Rewriter rewriter_;
  std::map<std::int32_t, VariableHomes::Laid> laid_;
  std::map<std::int32_t, std::vector<std::int32_t>> states_;
  std::optional<Edge> scattered_;
};

}  // namespace

Pieces::Pieces(int count, Make make) : lazy_(std::make_shared<Lazy>()) {
  lazy_->count = count;
  lazy_->first = make(0);
  lazy_->make = std::move(make);
}

const std::vector<Piece>& Pieces::all() const {
  static const std::vector<Piece> kNone;
  if (!lazy_) return kNone;
  std::call_once(lazy_->once, [this] {
    for (int device = 0; device < lazy_->count; ++device) lazy_->all.push_back(lazy_->make(device));
  });
  return lazy_->all;
}

// Equal texts name equal dimensions on equal axes.
bool LaidVariable::is_same_arrangement(const LaidVariable& other) const {
  if (mesh && other.mesh && *mesh == *other.mesh && text == other.text &&
      whole.is_same(other.whole))
    return true;
  return std::equal(pieces.begin(), pieces.end(), other.pieces.begin(), other.pieces.end(),
                    [](const Piece& a, const Piece& b) {
                      return a.spec.device == b.spec.device && a.starts == b.starts &&
                             a.spec.is_same(b.spec);
                    });
}

std::vector<std::size_t> LaidVariable::distinct() const {
  std::vector<std::size_t> first;
  std::set<std::vector<std::int64_t>> known;
  std::size_t i = 0;
  for (const Piece& piece : pieces) {
    if (known.insert(piece.starts).second) first.push_back(i);
    ++i;
  }
  return first;
}

std::set<std::int32_t> states_used_by(const Graph& graph) {
  std::set<std::int32_t> used;
  for (const Node& n : graph.nodes()) {
    if (n.state >= 0) used.insert(n.state);
    if (n.op->evaluate)
      for (const auto& [state, effect] : effects_of(n)) used.insert(state);
  }
  return used;
}

Tensor cut(const Tensor& whole, const Piece& piece) {
  const Shape& shape = shape_of(piece.spec);
  Tensor made = Tensor::empty(whole.dtype(), shape);
  const std::size_t size = size_of(whole.dtype());
  const auto* from = static_cast<const unsigned char*>(whole.raw());
  auto* to = static_cast<unsigned char*>(made.raw_mutable());
  for_rows(whole.shape(), shape, piece.starts,
           [&](std::int64_t of_whole, std::int64_t of_piece, std::int64_t count) {
             std::memcpy(to + static_cast<std::size_t>(of_piece) * size,
                         from + static_cast<std::size_t>(of_whole) * size,
                         static_cast<std::size_t>(count) * size);
           });
  return made;
}

Tensor joined(const LaidVariable& variable,
              const std::function<Tensor(const StateSpec& piece)>& value_of) {
  const ValueSpec& whole = variable.whole.values[0];
  Tensor made = Tensor::empty(whole.dtype, whole.shape);
  const std::size_t size = size_of(whole.dtype);
  auto* to = static_cast<unsigned char*>(made.raw_mutable());
  for (std::size_t i : variable.distinct()) {
    const Piece& piece = variable.pieces[i];
    const Tensor value = value_of(piece.spec);
    const auto* from = static_cast<const unsigned char*>(value.raw());
    for_rows(whole.shape, shape_of(piece.spec), piece.starts,
             [&](std::int64_t of_whole, std::int64_t of_piece, std::int64_t count) {
               std::memcpy(to + static_cast<std::size_t>(of_whole) * size,
                           from + static_cast<std::size_t>(of_piece) * size,
                           static_cast<std::size_t>(count) * size);
             });
  }
  return made;
}

Program join_variables(Program program, const VariableHomes& homes,
                       const std::vector<std::string>& kept) {
  return homes.has_any ? Joining(std::move(program), homes, kept).run() : program;
}

std::vector<std::int32_t> declare_pieces(Graph& graph, const LaidVariable& variable) {
  std::vector<std::int32_t> states;
  for (const Piece& piece : variable.pieces)
    states.push_back(graph.declare(piece.spec, piece.spec.site));
  return states;
}

}  // namespace troupe::mesh::detail
