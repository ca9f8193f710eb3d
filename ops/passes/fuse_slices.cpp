#include <troupe/ops/graph/program.hpp>

#include <algorithm>
#include <utility>

#include <troupe/ops/graph/made_by.hpp>
#include <troupe/ops/graph/pointwise.hpp>

// Splits, Slices and Concats along the last axis go into the pointwise nodes on their other side:
//
//   h R, x W ─► Add ─► Split ─► Fused ─► Concat          h R, x W ─► FusedSlices
//
// A recurrent cell's gates are cut out of one product, and their cotangents joined for another:
// copies of rows that cost as much as the arithmetic.
// 1. A Split, or a Slice of whole rows, goes if all of its users are such nodes of the pieces'
//    shape. Its operand goes too if it is pointwise and has no other users than what goes, and no
//    piece is used twice: nothing is computed twice.
// 2. A Concat goes if one node makes all of its operands, which have no other user.
// Shapes must be known in full: then an operand is whole, or one row or element for all, and
// nothing else.

namespace troupe::detail {
namespace {

constexpr std::size_t kMostEnds = 16;  // inputs, results
constexpr std::size_t kMostInstructions = 128;
// a row is a run of a tile: short ones cost more than the copy
constexpr std::int64_t kFewColumns = 32;

class Slicing {
 public:
  explicit Slicing(const Program& program)
      : program_(program), g_(program.graph), users_(size()), has_order_(size(), 0), of_(size()),
        concat_of_(size(), -1) {
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      for (Edge e : g_.node(id).inputs) users_[at(e.node)].push_back({id, e.output});
      for (std::int32_t c : g_.node(id).controls) has_order_[at(c)] = 1;
      if (!g_.node(id).controls.empty()) has_order_[at(id)] = 1;
    }
  }

  Program run() {
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      if (is_along_columns(id, "Split") || is_slice_of_columns(id)) take_split(id);
      if (is_along_columns(id, "Concat")) take_concat(id);
    }
    Rewriter rewriter(program_);
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      if (concat_of_[at(id)] >= 0) continue;  // emitted with the node that makes its operands
      if (of_[at(id)].is_chosen) emit(rewriter, id);
      else rewriter.keep(id);
    }
    return rewriter.finish();
  }

 private:
  struct User {
    std::int32_t id, output;  // the user, and the output that it uses
  };
  /// The Splits, or Slices, and the Concat that go into a chosen node.
  struct Choice {
    bool is_chosen = false;
    std::vector<std::int32_t> splits;  // the node reads their pieces in place
    std::int32_t concat = -1;          // the node replaces it
  };

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  std::size_t size() const { return at(g_.size()); }
  bool is_free(std::int32_t id) const { return !has_order_[at(id)]; }
  bool is_fetched(Edge e) const {
    return std::find(program_.fetches.begin(), program_.fetches.end(), e) != program_.fetches.end();
  }
  bool is_fetched_at_all(std::int32_t id) const {
    return std::any_of(program_.fetches.begin(), program_.fetches.end(),
                       [&](Edge e) { return e.node == id; });
  }
  const Shape& shape_of(Edge e) const { return g_.spec(e).shape; }

  bool is_along_columns(std::int32_t id, const char* op) const {
    const Node& n = g_.node(id);
    return n.op->name == op && is_free(id) && is_last_axis(n);
  }
  static bool is_last_axis(const Node& n) {
    const Shape& s = n.outputs[0].shape;
    const std::int64_t axis = n.attrs.get<std::int64_t>("axis");
    return s.is_known() && s.rank() > 0 && (axis == -1 || axis == s.rank() - 1);
  }

  bool is_slice_of_columns(std::int32_t id) const {
    const Node& n = g_.node(id);
    if (n.op->name != "Slice" || !is_free(id)) return false;
    const Shape &whole = shape_of(n.inputs[0]), &piece = n.outputs[0].shape;
    if (!whole.is_known() || !piece.is_known() || piece.rank() == 0) return false;
    for (int axis = 0; axis + 1 < piece.rank(); ++axis)
      if (piece[axis] != whole[axis]) return false;
    return true;
  }
  /// Returns the first column of a piece among those of what was cut.
  std::int64_t start_of(Edge piece) const {
    const Node& n = g_.node(piece.node);
    if (n.op->name == "Slice") {
      const std::int64_t start = n.attrs.get<std::vector<std::int64_t>>("starts").back();
      const Shape& whole = shape_of(n.inputs[0]);
      return start < 0 ? start + whole[whole.rank() - 1] : start;
    }
    std::int64_t start = 0;
    for (std::int32_t o = 0; o < piece.output; ++o)
      start += n.outputs[at(o)].shape[n.outputs[at(o)].shape.rank() - 1];
    return start;
  }

  /// True if the node could work on rows.
  bool is_pointwise(std::int32_t id) const {
    const Node& n = g_.node(id);
    if (!(n.op->pointwise || n.op->name == "Fused") || !is_free(id)) return false;
    const Shape& s = n.outputs[0].shape;
    return s.is_known() && s.rank() > 0 && s[s.rank() - 1] >= kFewColumns &&
           n.outputs.size() <= kMostEnds &&
           std::all_of(n.inputs.begin(), n.inputs.end(),
                       [&](Edge e) { return is_whole_or_row(shape_of(e), s); });
  }
  static bool is_whole_or_row(const Shape& in, const Shape& out) {
    if (!in.is_known()) return false;
    return in == out || in.elements() == 1 ||
           (in.rank() > 0 && in[in.rank() - 1] == out[out.rank() - 1] &&
            in.elements() == out[out.rank() - 1]);
  }

  void take_split(std::int32_t split) {
    const Node& n = g_.node(split);
    const auto& users = users_[at(split)];
    if (users.empty() || is_fetched_at_all(split)) return;
    // its width must be known: otherwise only the Split, at run time, checks the sum of the pieces
    if (!shape_of(n.inputs[0]).is_known()) return;
    for (const User& u : users) {
      if (!is_pointwise(u.id) || g_.node(u.id).device != n.device) return;
      if (g_.node(u.id).outputs[0].shape != n.outputs[at(u.output)].shape) return;
      Choice next = of_[at(u.id)];
      next.splits.push_back(split);
      if (!fits(u.id, next)) return;
    }
    for (const User& u : users) {
      Choice& c = of_[at(u.id)];
      c.is_chosen = true;
      if (std::find(c.splits.begin(), c.splits.end(), split) == c.splits.end())
        c.splits.push_back(split);
    }
  }

  void take_concat(std::int32_t concat) {
    const Node& n = g_.node(concat);
    const std::int32_t maker = n.inputs[0].node;
    if (!is_pointwise(maker) || g_.node(maker).device != n.device || of_[at(maker)].concat >= 0)
      return;
    for (Edge e : n.inputs) {
      if (e.node != maker || shape_of(e) != shape_of(n.inputs[0]) || is_fetched(e)) return;
      for (const User& u : users_[at(maker)])
        if (u.output == e.output && u.id != concat) return;
    }
    Choice next = of_[at(maker)];
    next.concat = concat;
    if (!fits(maker, next)) return;
    of_[at(maker)] = next;
    of_[at(maker)].is_chosen = true;
    concat_of_[at(concat)] = maker;
  }

  /// The new node, before it is in a graph.
  struct Made {
    ScalarProgram program;
    std::string parts;  // kMadeBy of the program
    std::vector<Edge> inputs;
    std::vector<std::int64_t> starts, outputs;
    std::vector<ValueSpec> specs;
    std::vector<std::int32_t> output_of;  // by old output; -1: in the concatenation only

    /// The instruction that reads columns of `e` from `start` on; -1: all of it.
    std::int16_t read(Edge e, std::int64_t start, DType type) {
      for (std::size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i] == e && starts[i] == start) return static_cast<std::int16_t>(i);
      inputs.push_back(e);
      starts.push_back(start);
      return append_input(program, type);
    }
  };

  bool fits(std::int32_t id, const Choice& choice) const {
    const Made made = make(id, choice, false);
    return made.inputs.size() <= kMostEnds && made.program.code.size() <= kMostInstructions &&
           made.program.results.size() <= kMostEnds;
  }

  /// True if the operand of the Split, or of the Slice, may go with it: it does if all that cut it
  /// go.
  bool may_go_along(std::int32_t split) const {
    const Edge wide = g_.node(split).inputs[0];
    const Node& n = g_.node(wide.node);
    if (!is_pointwise(wide.node) || n.outputs.size() != 1 || is_fetched(wide)) return false;
    if (n.device != g_.node(split).device || of_[at(wide.node)].is_chosen) return false;
    if (g_.node(split).op->name == "Split")
      return users_[at(wide.node)].size() == 1 && has_one_user_a_piece(split);
    std::vector<std::pair<std::int64_t, std::int64_t>> cut;  // columns of pieces: begin, end
    for (const User& user : users_[at(wide.node)]) {
      if (!is_slice_of_columns(user.id) || !has_one_user_a_piece(user.id) ||
          is_fetched_at_all(user.id))
        return false;
      const Shape& piece = g_.node(user.id).outputs[0].shape;
      const std::int64_t begin = start_of({user.id, 0}), end = begin + piece[piece.rank() - 1];
      for (const auto& [from, to] : cut)
        if (begin < to && from < end) return false;
      cut.emplace_back(begin, end);
    }
    return true;
  }
  // A node that reads a piece as two operands is one user.
  bool has_one_user_a_piece(std::int32_t split) const {
    const auto& users = users_[at(split)];
    for (const User& a : users)
      for (const User& b : users)
        if (a.output == b.output && a.id != b.id) return false;
    return true;
  }
  bool goes_along(std::int32_t split) const {
    if (!may_go_along(split)) return false;
    for (const User& cutting : users_[at(g_.node(split).inputs[0].node)]) {
      if (users_[at(cutting.id)].empty()) return false;
      for (const User& user : users_[at(cutting.id)]) {
        const auto& taken = of_[at(user.id)].splits;
        if (std::find(taken.begin(), taken.end(), cutting.id) == taken.end()) return false;
      }
    }
    return true;
  }

  // `is_final`: all choices are made; before, operands go along that may.
  Made make(std::int32_t id, const Choice& choice, bool is_final) const {
    const Node& node = g_.node(id);
    Made made;
    auto is_sliced = [&](Edge e) {
      return std::find(choice.splits.begin(), choice.splits.end(), e.node) != choice.splits.end();
    };
    // Inputs come first in the program, each once.
    struct Read {
      // the program's inputs for an operand: itself, or the operands of the node that was split
      std::vector<std::int16_t> of;
    };
    std::vector<Read> reads;
    for (Edge e : node.inputs) {
      Read& r = reads.emplace_back();
      if (!is_sliced(e)) {
        r.of.push_back(made.read(e, -1, g_.spec(e).dtype));
        continue;
      }
      const std::int64_t start = start_of(e);
      const Edge wide = g_.node(e.node).inputs[0];
      if (!(is_final ? goes_along(e.node) : may_go_along(e.node))) {
        r.of.push_back(made.read(wide, start, g_.spec(wide).dtype));
        continue;
      }
      for (Edge w : g_.node(wide.node).inputs)
        r.of.push_back(made.read(w, shape_of(w).elements() == 1 ? -1 : start, g_.spec(w).dtype));
    }
    std::vector<std::int16_t> operands;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Edge e = node.inputs[i];
      if (is_sliced(e) && (is_final ? goes_along(e.node) : may_go_along(e.node))) {
        const Node& wide = g_.node(g_.node(e.node).inputs[0].node);
        const auto computed = program_of(g_, wide);
        add_parts(made.parts, wide.attrs, *computed, made.program.code.size());
        operands.push_back(append(made.program, *computed, reads[i].of)[0]);
      } else {
        operands.push_back(reads[i].of[0]);
      }
    }
    const auto computed = program_of(g_, node);
    add_parts(made.parts, node.attrs, *computed, made.program.code.size());
    const std::vector<std::int16_t> results = append(made.program, *computed, operands);
    made.output_of.assign(node.outputs.size(), -1);
    std::vector<char> is_joined(node.outputs.size(), 0);
    auto add_output = [&](const ValueSpec& spec) {
      made.specs.push_back(spec);
      return static_cast<std::int32_t>(made.specs.size()) - 1;
    };
    auto place = [&](std::int32_t from, std::int32_t to) {
      made.program.results.push_back(results[at(from)]);
      made.outputs.push_back(to);
    };
    if (choice.concat >= 0) {
      const Node& concat = g_.node(choice.concat);
      const std::int32_t to = add_output(concat.outputs[0]);
      for (Edge e : concat.inputs) place(e.output, to), is_joined[at(e.output)] = 1;
    }
    for (std::size_t o = 0; o < node.outputs.size(); ++o)
      if (!is_joined[o])
        place(static_cast<std::int32_t>(o), made.output_of[o] = add_output(node.outputs[o]));
    return made;
  }

  void emit(Rewriter& rewriter, std::int32_t id) const {
    const Choice& choice = of_[at(id)];
    Made made = make(id, choice, true);
    Node node = rewriter.translated(id);
    const Shape& shape = node.outputs[0].shape;
    node.op = &find_op("FusedSlices");
    node.attrs =
        Attrs{{"program", std::shared_ptr<const AttrObject>(std::make_shared<ProgramAttr>(
                              std::make_shared<const ScalarProgram>(std::move(made.program))))},
              {"columns", shape[shape.rank() - 1]},
              {"starts", made.starts},
              {"outputs", made.outputs}};
    set_parts(node.attrs, std::move(made.parts));
    node.inputs.clear();
    for (Edge e : made.inputs) node.inputs.push_back(rewriter.at(e));
    node.outputs = made.specs;
    const std::int32_t fresh = rewriter.graph().append(std::move(node));
    std::vector<Edge> edges;
    for (std::int32_t o : made.output_of) edges.push_back(Edge{fresh, std::max(o, 0)});
    rewriter.alias(id, edges, fresh);
    if (choice.concat >= 0) rewriter.alias(choice.concat, {Edge{fresh, 0}}, fresh);
  }

  const Program& program_;
  const Graph& g_;
  std::vector<std::vector<User>> users_;
  std::vector<char> has_order_;  // the node has a control edge in or out
  std::vector<Choice> of_;
  std::vector<std::int32_t> concat_of_;  // by Concat: the node that makes its operands; -1: stays
};

}  // namespace

Program fuse_slices(Program program) {
  const auto cuts_or_joins = [](const Node& n) {
    return n.op->name == "Split" || n.op->name == "Slice" || n.op->name == "Concat";
  };
  if (std::none_of(program.graph.nodes().begin(), program.graph.nodes().end(), cuts_or_joins))
    return program;
  return Slicing(program).run();
}

}  // namespace troupe::detail
