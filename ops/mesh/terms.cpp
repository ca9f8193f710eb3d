#include <troupe/ops/mesh/terms.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/families/reduction.hpp>

namespace troupe::mesh::detail {
namespace {

using collective::Combine;

const Shape& shape_of_input(const Graph& g, const Node& n, std::size_t i) {
  return g.spec(n.inputs[i]).shape;
}

// One term an axis of the output; the axes of the inputs are aligned from the last on.
Terms broadcast_terms(const Graph& g, const Node& n) {
  Terms t;
  const Shape& out = n.outputs[0].shape;
  std::vector<int> all;
  for (int i = 0; i < out.rank(); ++i) all.push_back(t.add());
  t.outputs = {all};
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    const Shape& in = shape_of_input(g, n, i);
    std::vector<int>& axes = t.inputs.emplace_back();
    for (int a = 0; a < in.rank(); ++a) {
      const int at = a + out.rank() - in.rank();
      axes.push_back(at >= 0 && in[a] == out[at] ? all[static_cast<std::size_t>(at)]
                                                 : Terms::kNone);
    }
  }
  return t;
}

Terms pointwise_terms(const Graph& g, const Node& n) {
  Terms t = broadcast_terms(g, n);
  const std::string& op = n.op->name;
  if (op == "Add" || op == "Sub") t.is_sum = true;
  if (op == "Mul") t.linear = 3;
  // An integer quotient is rounded.
  const DType dtype = n.outputs[0].dtype;
  if (op == "Neg" || (op == "Div" && (is_floating(dtype) || is_complex(dtype)))) t.linear = 1;
  return t;
}

Terms matmul_terms(const Graph& g, const Node& n) {
  const bool ta = n.attrs.get<bool>("transpose_a"), tb = n.attrs.get<bool>("transpose_b");
  const Shape &a = shape_of_input(g, n, 0), &b = shape_of_input(g, n, 1), &out = n.outputs[0].shape;
  Terms t;
  std::vector<int> result;
  for (int i = 0; i < out.rank(); ++i) result.push_back(t.add());
  const int k = t.add(), rows = result[static_cast<std::size_t>(out.rank() - 2)],
            columns = result[static_cast<std::size_t>(out.rank() - 1)];
  const auto batches = [&](const Shape& s) {
    std::vector<int> axes;
    for (int i = 0; i + 2 < s.rank(); ++i) {
      const int at = i + out.rank() - s.rank();
      axes.push_back(s[i] == out[at] ? result[static_cast<std::size_t>(at)] : Terms::kNone);
    }
    return axes;
  };
  t.inputs = {batches(a), batches(b)};
  const auto add = [](std::vector<int>& axes, int first, int second, bool swapped) {
    axes.push_back(swapped ? second : first);
    axes.push_back(swapped ? first : second);
  };
  add(t.inputs[0], rows, k, ta);
  add(t.inputs[1], k, columns, tb);
  t.outputs = {result};
  t.linear = 3;
  return t;
}

// Axes that are reduced get terms of their own, which no output has.
Terms reduction_terms(const Graph& g, const Node& n, std::uint32_t reduced, bool keeps,
                      bool is_whole) {
  const Shape& in = shape_of_input(g, n, 0);
  Terms t;
  t.inputs.emplace_back();
  t.outputs.emplace_back();
  for (int i = 0; i < in.rank(); ++i) {
    const bool goes = reduced >> i & 1;
    const int term = t.add(goes && is_whole);
    t.inputs[0].push_back(term);
    if (!goes) t.outputs[0].push_back(term);
    else if (keeps) t.outputs[0].push_back(Terms::kNone);
  }
  return t;
}

Terms reduction_of(const Graph& g, const Node& n, Combine how, bool is_whole) {
  Terms t = reduction_terms(
      g, n,
      reduced_axes(n.attrs.get<std::vector<std::int64_t>>("axes"), shape_of_input(g, n, 0).rank()),
      n.attrs.get<bool>("keep_dims"), is_whole);
  t.combine = how;
  if (how == Combine::sum && !is_whole) t.linear = 1;
  return t;
}

// All axes but one are apart from each other; that one is whole. Further inputs and outputs of the
// input's rank share the terms; others are whole.
Terms along_axis(const Graph& g, const Node& n, std::int64_t axis) {
  const Shape& in = shape_of_input(g, n, 0);
  if (axis < 0) axis += in.rank();
  Terms t;
  std::vector<int> all;
  for (int i = 0; i < in.rank(); ++i) all.push_back(t.add(i == axis));
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    const Shape& s = shape_of_input(g, n, i);
    std::vector<int>& axes = t.inputs.emplace_back();
    for (int a = 0; a < s.rank(); ++a) {
      const bool is_same = s.rank() == in.rank() && s[a] == in[a];
      axes.push_back(is_same ? all[static_cast<std::size_t>(a)] : t.add(true));
    }
  }
  for (const ValueSpec& out : n.outputs) {
    std::vector<int>& axes = t.outputs.emplace_back();
    for (int a = 0; a < out.shape.rank(); ++a) {
      const bool is_same = out.shape.rank() == in.rank() && out.shape[a] == in[a];
      axes.push_back(is_same ? all[static_cast<std::size_t>(a)] : t.add(true));
    }
  }
  return t;
}

Terms transpose_terms(const Graph& g, const Node& n) {
  Terms t;
  t.inputs.emplace_back();
  t.outputs.emplace_back();
  for (int i = 0; i < shape_of_input(g, n, 0).rank(); ++i) t.inputs[0].push_back(t.add());
  for (std::int64_t a : n.attrs.get<std::vector<std::int64_t>>("permutation"))
    t.outputs[0].push_back(t.inputs[0][static_cast<std::size_t>(a)]);
  t.linear = 1;
  return t;
}

// The second input, or the output of a node of one input, is the first with more axes of extent 1.
Terms same_terms(const Graph& g, const Node& n) {
  Terms t;
  t.inputs.emplace_back();
  t.outputs.emplace_back();
  for (int i = 0; i < shape_of_input(g, n, 0).rank(); ++i) t.inputs[0].push_back(t.add());
  t.outputs[0] = t.inputs[0];
  return t;
}

// x summed to the shape of `like`: axes that `like` lacks, or has with extent 1, are reduced.
Terms sum_to_terms(const Graph& g, const Node& n) {
  const Shape &from = shape_of_input(g, n, 0), &to = shape_of_input(g, n, 1);
  Terms t;
  t.inputs.resize(2);
  t.outputs.emplace_back();
  for (int i = 0; i < from.rank(); ++i) {
    const int term = t.add(), at = i - (from.rank() - to.rank());
    t.inputs[0].push_back(term);
    if (at < 0) continue;
    const int kept = to[at] == from[i] ? term : Terms::kNone;
    t.inputs[1].push_back(kept);
    t.outputs[0].push_back(kept);
  }
  t.linear = 1;
  return t;
}

// x repeated to the shape of `like`.
Terms broadcast_like_terms(const Graph& g, const Node& n) {
  Terms t = broadcast_terms(g, n);
  t.linear = 1;
  return t;
}

// Terms by letters, "*C,C,C->*C,*": one word an operand, one letter an axis, as an einsum has them.
// A capital is a whole term. `*` stands for all axes that the other letters of the first operand
// leave, and `+` for as many whole axes as an operand has more. A scalar operand has no axes.
Terms lettered(const Graph& g, const Node& n, std::string_view text) {
  Terms t;
  std::map<char, int> known;
  std::vector<int> rows;
  const auto term = [&](char letter) {
    const auto [it, is_new] = known.try_emplace(letter, 0);
    if (is_new) it->second = t.add(letter >= 'A' && letter <= 'Z');
    return it->second;
  };
  std::size_t at = 0, operand = 0;
  bool of_outputs = false;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find_first_of(",-", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const Shape& shape = of_outputs ? n.outputs[operand].shape : shape_of_input(g, n, operand);
    std::vector<int>& axes = (of_outputs ? t.outputs : t.inputs).emplace_back();
    const int free =
        shape.rank() - static_cast<int>(std::count_if(word.begin(), word.end(),
                                                      [](char c) { return c != '*' && c != '+'; }));
    for (char c : shape.rank() == 0 ? std::string_view() : word) {
      if (c == '*')
        for (int i = 0; i < free; ++i) {
          if (static_cast<int>(rows.size()) <= i) rows.push_back(t.add());
          axes.push_back(rows[static_cast<std::size_t>(i)]);
        }
      else if (c == '+')
        for (int i = 0; i < free; ++i) axes.push_back(t.add(true));
      else axes.push_back(term(c));
    }
    ++operand;
    if (end == text.size()) break;
    at = end + 1;
    if (text[end] == '-') {
      at = end + 2;
      of_outputs = true;
      operand = 0;
    }
  }
  return t;
}

using Describe = std::optional<Terms> (*)(const Graph&, const Node&);

template <Terms (*describe)(const Graph&, const Node&)>
std::optional<Terms> always(const Graph& g, const Node& n) {
  return describe(g, n);
}
template <Combine how, bool is_whole>
std::optional<Terms> reduction(const Graph& g, const Node& n) {
  return reduction_of(g, n, how, is_whole);
}
std::optional<Terms> identity_terms(const Graph& g, const Node& n) {
  Terms t = same_terms(g, n);
  t.linear = 1;
  return t;
}
std::optional<Terms> ensured_terms(const Graph& g, const Node& n) {
  Terms t = same_terms(g, n);
  t.localise = [](Attrs& attrs, const std::vector<Shape>& outputs) {
    attrs.set("shape", outputs[0]);
  };
  t.linear = 1;
  return t;
}
// Each output is the input of its place.
std::optional<Terms> together_terms(const Graph& g, const Node& n) {
  Terms t;
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    std::vector<int>& axes = t.inputs.emplace_back();
    for (int a = 0; a < shape_of_input(g, n, i).rank(); ++a) axes.push_back(t.add());
  }
  t.outputs = t.inputs;
  t.are_apart = true;
  return t;
}
std::optional<Terms> alike_terms(const Graph& g, const Node& n) { return same_terms(g, n); }
// Along the last axis; the other axes are apart.
std::optional<Terms> last_axis_terms(const Graph& g, const Node& n) {
  if (shape_of_input(g, n, 0).rank() < 1) return std::nullopt;
  return along_axis(g, n, -1);
}
std::optional<Terms> named_axis_terms(const Graph& g, const Node& n) {
  if (shape_of_input(g, n, 0).rank() < 1) return std::nullopt;
  return along_axis(g, n, n.attrs.get<std::int64_t>("axis"));
}
std::optional<Terms> concat_terms(const Graph& g, const Node& n) {
  std::int64_t axis = n.attrs.get<std::int64_t>("axis");
  const Shape& out = n.outputs[0].shape;
  if (axis < 0) axis += out.rank();
  Terms t;
  std::vector<int> all;
  for (int i = 0; i < out.rank(); ++i) all.push_back(t.add(i == axis));
  t.outputs = {all};
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    t.inputs.push_back(all);
    // Pieces along the axis have extents of their own.
    t.inputs.back()[static_cast<std::size_t>(axis)] = t.add(true);
  }
  (void)g;
  return t;
}
// Whole axes may be split; an axis that is cut is whole.
std::optional<Terms> slice_terms(const Graph& g, const Node& n) {
  const Shape &in = shape_of_input(g, n, 0), &out = n.outputs[0].shape;
  Terms t;
  t.inputs.emplace_back();
  t.outputs.emplace_back();
  for (int i = 0; i < in.rank(); ++i) {
    const bool is_cut = in[i] != out[i];
    t.inputs[0].push_back(t.add(is_cut));
    t.outputs[0].push_back(is_cut ? t.add(true) : t.inputs[0].back());
  }
  t.localise = [in, out](Attrs& attrs, const std::vector<Shape>& outputs) {
    const auto dims = outputs[0].dims();
    attrs.set("extents", std::vector<std::int64_t>(dims.begin(), dims.end()));
    auto starts = attrs.get<std::vector<std::int64_t>>("starts");
    for (int i = 0; i < in.rank(); ++i)  // a negative start counts from the whole's end
      if (in[i] == out[i]) starts[static_cast<std::size_t>(i)] = 0;
    attrs.set("starts", std::move(starts));
  };
  t.linear = 1;
  return t;
}
// The first input cut into pieces like the others.
std::optional<Terms> split_like_terms(const Graph& g, const Node& n) {
  std::int64_t axis = n.attrs.get<std::int64_t>("axis");
  if (axis < 0) axis += shape_of_input(g, n, 0).rank();
  Terms t;
  std::vector<int> all;
  for (int i = 0; i < shape_of_input(g, n, 0).rank(); ++i) all.push_back(t.add(i == axis));
  t.inputs = {all};
  for (std::size_t i = 1; i < n.inputs.size(); ++i) {
    t.inputs.push_back(all);
    t.inputs.back()[static_cast<std::size_t>(axis)] = t.add(true);
    t.outputs.push_back(t.inputs.back());
  }
  t.linear = 1;
  return t;
}
// A block of the first input, of the second's shape, or the first input as a block of that shape.
std::optional<Terms> block_like_terms(const Graph& g, const Node& n) {
  const Shape &in = shape_of_input(g, n, 0), &like = shape_of_input(g, n, 1);
  Terms t;
  t.inputs.resize(2);
  std::vector<std::size_t> kept;
  for (int i = 0; i < in.rank(); ++i) {
    const bool is_cut = in[i] != like[i];
    t.inputs[0].push_back(t.add(is_cut));
    t.inputs[1].push_back(is_cut ? t.add(true) : t.inputs[0].back());
    if (!is_cut) kept.push_back(static_cast<std::size_t>(i));
  }
  t.outputs = {t.inputs[1]};
  t.localise = [kept](Attrs& attrs, const std::vector<Shape>&) {
    auto starts = attrs.get<std::vector<std::int64_t>>("starts");
    for (std::size_t i : kept) starts[i] = 0;  // a negative start counts from the whole's end
    attrs.set("starts", std::move(starts));
  };
  t.linear = 1;
  return t;
}
std::optional<Terms> expand_terms(const Graph& g, const Node& n) {
  Terms t = same_terms(g, n);
  std::int64_t axis = n.attrs.get<std::int64_t>("axis");
  if (axis < 0) axis += n.outputs[0].shape.rank();
  t.outputs[0].insert(t.outputs[0].begin() + axis, Terms::kNone);
  t.linear = 1;
  return t;
}
std::optional<Terms> squeeze_terms(const Graph& g, const Node& n) {
  Terms t = same_terms(g, n);
  std::int64_t axis = n.attrs.get<std::int64_t>("axis");
  if (axis < 0) axis += shape_of_input(g, n, 0).rank();
  t.inputs[0][static_cast<std::size_t>(axis)] = Terms::kNone;
  t.outputs[0].erase(t.outputs[0].begin() + axis);
  t.linear = 1;
  return t;
}
// Indices become a new last axis, which is whole.
std::optional<Terms> one_hot_terms(const Graph& g, const Node& n) {
  Terms t = same_terms(g, n);
  t.outputs[0].push_back(t.add(true));
  return t;
}

// The groups of a convolution keep channels and filters together.
template <int at>
std::optional<Terms> convolution_terms(const Graph& g, const Node& n) {
  constexpr std::string_view kText[] = {"b+c,+cf->b+f", "b+f,+cf,b+c->b+c", "b+c,b+f,+cf->+cf"};
  constexpr std::string_view kSame[] = {"b%c,+cf->b%f", "b%f,+cf,b%c->b%c", "b%c,b%f,+cf->+cf"};
  constexpr std::string_view kGrouped[] = {"b+C,+IF->b+F", "b+F,+IF,b+C->b+C", "b+C,b+F,+IF->+IF"};
  const bool is_grouped = n.attrs.get<std::int64_t>("groups") != 1;
  const auto& strides = n.attrs.get<std::vector<std::int64_t>>("strides");
  const bool keeps_space =
      !is_grouped && n.attrs.get<std::string>("padding") == "same" &&
      std::all_of(strides.begin(), strides.end(), [](auto s) { return s == 1; });
  std::string text(is_grouped ? kGrouped[at] : keeps_space ? kSame[at] : kText[at]);
  // Space of equal extents keeps its names.
  const std::string space =
      std::string("XYZ").substr(0, static_cast<std::size_t>(shape_of_input(g, n, 0).rank() - 2));
  for (std::size_t i = text.find('%'); i != std::string::npos; i = text.find('%'))
    text.replace(i, 1, space);
  Terms t = lettered(g, n, text);
  t.linear = 3;
  return t;
}
// Queries and keys of as many heads; a mask, input 3, is whole but for axes of the batch and the
// heads.
std::optional<Terms> attention(const Graph& g, const Node& n, bool has_mask, std::string text) {
  const Shape &q = shape_of_input(g, n, 0), &k = shape_of_input(g, n, 1);
  if (q.rank() != 4 || k.rank() != 4 || q[1] != k[1]) return std::nullopt;
  Terms t = lettered(g, n, text);
  if (!has_mask) return t;
  const Shape& mask = shape_of_input(g, n, 3);
  for (int i = 0; i < mask.rank(); ++i) {
    // A mask of three axes has the batch first.
    const int of_scores = mask.rank() == 3 && i == 0 ? 0 : i + 4 - mask.rank();
    if (of_scores < 2 && mask[i] == q[of_scores])
      t.inputs[3][static_cast<std::size_t>(i)] = t.inputs[0][static_cast<std::size_t>(of_scores)];
  }
  if (n.outputs.size() == 4) t.outputs[3] = t.inputs[3];
  return t;
}
std::optional<Terms> attention_terms(const Graph& g, const Node& n) {
  const bool has_mask = n.inputs.size() == 4;
  return attention(g, n, has_mask,
                   std::string("bhQD,bhKD,bhKW") + (has_mask ? ",+" : "") + "->bhQW,bhQ");
}
std::optional<Terms> attention_gradient_terms(const Graph& g, const Node& n) {
  const bool has_mask = n.inputs.size() == 7;
  return attention(g, n, has_mask,
                   std::string("bhQD,bhKD,bhKW") + (has_mask ? ",+" : "") +
                       ",bhQW,bhQ,bhQW->bhQD,bhKD,bhKW" + (n.outputs.size() == 4 ? ",+" : ""));
}
// Indices take the place of the axis that they choose from, which is whole.
std::optional<Terms> gather_terms(const Graph& g, const Node& n) {
  const Shape &params = shape_of_input(g, n, 0), &indices = shape_of_input(g, n, 1);
  std::int64_t axis = n.attrs.get<std::int64_t>("axis");
  if (axis < 0) axis += params.rank();
  Terms t;
  t.inputs.resize(2);
  t.outputs.emplace_back();
  for (int i = 0; i < params.rank(); ++i) t.inputs[0].push_back(t.add(i == axis));
  for (int i = 0; i < indices.rank(); ++i) t.inputs[1].push_back(t.add());
  for (int i = 0; i < params.rank(); ++i) {
    if (i == axis) t.outputs[0].insert(t.outputs[0].end(), t.inputs[1].begin(), t.inputs[1].end());
    else t.outputs[0].push_back(t.inputs[0][static_cast<std::size_t>(i)]);
  }
  t.linear = 1;
  return t;
}
// Rows that are added to have the table's other axes.
std::optional<Terms> scatter_add_terms(const Graph& g, const Node& n) {
  Terms t;
  t.inputs.resize(3);
  for (int i = 0; i < shape_of_input(g, n, 0).rank(); ++i) t.inputs[0].push_back(t.add(i == 0));
  for (int i = 0; i < shape_of_input(g, n, 1).rank(); ++i) t.inputs[1].push_back(t.add(true));
  t.inputs[2] = t.inputs[1];
  t.inputs[2].insert(t.inputs[2].end(), t.inputs[0].begin() + 1, t.inputs[0].end());
  t.outputs = {t.inputs[0]};
  return t;
}
// Axes without padding.
std::optional<Terms> pad_terms(const Graph& g, const Node& n) {
  const Shape &in = shape_of_input(g, n, 0), &out = n.outputs[0].shape;
  Terms t;
  t.inputs.emplace_back();
  t.outputs.emplace_back();
  for (int i = 0; i < in.rank(); ++i) {
    const bool is_padded = in[i] != out[i];
    t.inputs[0].push_back(t.add(is_padded));
    t.outputs[0].push_back(is_padded ? t.add(true) : t.inputs[0].back());
  }
  return t;
}
template <const char* text>
std::optional<Terms> letters(const Graph& g, const Node& n) {
  return lettered(g, n, text);
}
constexpr char kLosses[] = "*C,*->*", kLossesGradient[] = "*C,*,*->*C", kSorted[] = "*N->*N,*N",
               kLargest[] = "*N->*K,*K", kLayerNorm[] = "*C,C,C->*C,*,*",
               kLayerNormGradient[] = "*C,C,*,*,*C->*C,C,C", kRmsNorm[] = "*C,C->*C,*",
               kRmsNormGradient[] = "*C,C,*,*C->*C,C", kPool[] = "b+c->b+c";

const std::map<std::string_view, Describe>& descriptions() {
  static const std::map<std::string_view, Describe> known{
      {"MatMul", always<matmul_terms>},
      {"Transpose", always<transpose_terms>},
      {"SumTo", always<sum_to_terms>},
      {"BroadcastLike", always<broadcast_like_terms>},
      {"Identity", identity_terms},
      {"StopGradient", identity_terms},
      {"FillLike", alike_terms},
      {"EnsureShape", ensured_terms},
      {"ExpandDims", expand_terms},
      {"Squeeze", squeeze_terms},
      {"Sum", reduction<Combine::sum, false>},
      {"Mean", reduction<Combine::mean, false>},
      {"Max", reduction<Combine::max, false>},
      {"Min", reduction<Combine::min, false>},
      {"Product", reduction<Combine::product, false>},
      {"LogSumExp", reduction<Combine::sum, true>},
      {"Any", reduction<Combine::sum, true>},
      {"All", reduction<Combine::sum, true>},
      {"Softmax", last_axis_terms},
      {"LogSoftmax", last_axis_terms},
      {"CumSum", named_axis_terms},
      {"ShiftAlong", named_axis_terms},
      {"CumProd", named_axis_terms},
      {"Concat", concat_terms},
      {"Slice", slice_terms},
      {"SliceLike", block_like_terms},
      {"SliceGradient", block_like_terms},
      {"SplitLike", split_like_terms},
      {"WaitForAll", together_terms},
      {"OneHot", one_hot_terms},
      {"ArgMax", reduction<Combine::sum, true>},
      {"ArgMin", reduction<Combine::sum, true>},
      {"Sort", letters<kSorted>},
      {"TopK", letters<kLargest>},
      {"Split", named_axis_terms},
      {"TakeAlong", named_axis_terms},
      {"AddAlong", named_axis_terms},
      {"LinearScan", named_axis_terms},
      {"Pad", pad_terms},
      {"Gather", gather_terms},
      {"ScatterAdd", scatter_add_terms},
      {"CrossEntropy", letters<kLosses>},
      {"CrossEntropyGradient", letters<kLossesGradient>},
      {"LayerNorm", letters<kLayerNorm>},
      {"LayerNormGradient", letters<kLayerNormGradient>},
      {"RmsNorm", letters<kRmsNorm>},
      {"RmsNormGradient", letters<kRmsNormGradient>},
      {"Attention", attention_terms},
      {"AttentionGradient", attention_gradient_terms},
      {"Conv", convolution_terms<0>},
      {"ConvInputGradient", convolution_terms<1>},
      {"ConvFilterGradient", convolution_terms<2>},
      {"MaxPool", letters<kPool>},
      {"AvgPool", letters<kPool>},
  };
  return known;
}

}  // namespace

std::optional<Terms> terms_of(const Graph& graph, const Node& node) {
  if (node.op->pointwise) return pointwise_terms(graph, node);
  const auto it = descriptions().find(node.op->name);
  return it == descriptions().end() ? std::nullopt : it->second(graph, node);
}

bool is_reshape(const Node& node) {
  return node.op->name == "Reshape" || node.op->name == "ReshapeLike" ||
         node.op->name == "ReshapeTo";
}

}  // namespace troupe::mesh::detail
