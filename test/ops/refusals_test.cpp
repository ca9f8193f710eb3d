// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Every op is given invalid arguments: wrong numbers, ranks, extents, dtypes and attributes are
// refused while building, in one sentence with op and line. The kernel refuses those that building
// could not detect, naming the op. TROUPE_SEED and TROUPE_TRIES (for each op) draw other arguments.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include <fmt/format.h>

#include <troupe/autodiff/check.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/ops/tables/all_rows.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(refusals_test, TROUPE_ONE_THREAD)

namespace {

std::uint64_t number_from(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : fallback;
}

/// Does the op compute tensors from tensors, with attributes that can be written down?
bool is_plain(const OpDef& op) {
  bool has_objects = false;
  for (const AttrSpec& a : op.attrs)
    has_objects = has_objects || a.type == AttrValue(std::shared_ptr<const AttrObject>()).index();
  return op.effect == Effect::none && !op.evaluate && !op.side_effect && !op.takes_lists &&
         !has_objects && op.kernel && op.name != "Input" &&
         op.name != "Blank";  // made by differentiation alone, which tells it the truth
}

class Nonsense {
 public:
  explicit Nonsense(std::uint64_t seed) : random_(seed) {}

  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  bool once_in(std::int64_t n) { return below(n) == 0; }

  DType dtype() {
    const DType likely[] = {DType::f32, DType::f64, DType::i64, DType::i32};
    return once_in(4) ? static_cast<DType>(below(kDTypes)) : likely[below(4)];
  }
  Shape shape() {
    Shape s;
    for (std::int64_t rank = once_in(12) ? below(7) : below(4); rank > 0; --rank)
      s.push_back(once_in(8) ? 0 : 1 + below(4));
    return s;
  }
  std::int64_t integer() {
    return once_in(10) ? (once_in(2) ? -1 : 1) * (std::int64_t{1} << (20 + below(43)))
                       : below(9) - 3;
  }
  AttrValue attribute(const AttrSpec& spec) {
    switch (spec.type) {
      case 0: return once_in(2);
      case 1: return integer();
      case 2:
        return once_in(6) ? (once_in(2) ? double(NAN) : 1e300)
                          : static_cast<double>(below(9) - 3) / 2;
      case 3: return std::string(once_in(2) ? "add" : once_in(2) ? "same" : "nonsense");
      case 4: return once_in(8) ? DType::string : dtype();
      case 5: return once_in(6) ? Shape{kAny, 2} : shape();
      case 6: {
        std::vector<std::int64_t> v(static_cast<std::size_t>(below(5)));
        for (std::int64_t& e : v) e = integer();
        return v;
      }
      default: return tensor(dtype(), shape());
    }
  }
  Tensor tensor(DType t, const Shape& s) {
    Tensor out = Tensor::empty(t, s);
    auto* bytes = static_cast<unsigned char*>(out.raw_mutable());
    for (std::int64_t i = 0; i < out.elements(); ++i) {
      Tensor one = Tensor::scalar_as(
          t, once_in(30) ? 1e30 : static_cast<double>(below(8)) - (once_in(5) ? 3 : 0));
      std::memcpy(bytes + static_cast<std::size_t>(i) * size_of(t), one.raw(), size_of(t));
    }
    return out;
  }
  /// The shape as declared while the graph is built.
  Shape said_of(const Shape& s) {
    if (once_in(3)) return Shape::unknown();
    Shape out = s;
    for (int i = 0; i < s.rank(); ++i)
      if (once_in(3)) out.set(i, kAny);
    return out;
  }

 private:
  std::mt19937_64 random_;
};

/// Valid arguments of an op's row in the table, so that some drawn arguments are nearly right.
const std::map<std::string, std::vector<Case>>& right_cases() {
  static const auto cases = [] {
    std::map<std::string, std::vector<Case>> out;
    for (const Row& r : all_rows())
      for (const Case& c : r.cases)
        if (std::all_of(c.inputs.begin(), c.inputs.end(),
                        [](const Sample& s) { return s.array.shape.elements() < 200; }))
          out[r.op].push_back(c);
    return out;
  }();
  return cases;
}

struct Try {
  std::vector<Tensor> inputs;
  std::vector<Shape> said;
  Attrs attrs;
  std::string text;
};

Try drawn(const OpDef& op, Nonsense& n) {
  Try t;
  auto known = right_cases().find(op.name);
  if (known != right_cases().end() && !n.once_in(3)) {
    // A right case with something wrong in it.
    const Case& c = known->second[static_cast<std::size_t>(
        n.below(static_cast<std::int64_t>(known->second.size())))];
    t.attrs = c.attrs;
    const DType value = n.dtype();
    for (const Sample& s : c.inputs) {
      const DType type = n.once_in(12)           ? n.dtype()
                         : s.role == Role::index ? DType::i64
                         : s.role == Role::truth ? DType::boolean
                                                 : value;
      Shape shape = s.array.shape;
      if (n.once_in(8) && shape.rank() > 0)
        shape.set(static_cast<int>(n.below(shape.rank())), n.below(5));
      if (n.once_in(12)) shape = n.shape();
      t.inputs.push_back(n.tensor(type, shape));
    }
    if (n.once_in(12) && !t.inputs.empty()) t.inputs.pop_back();
    for (const AttrSpec& a : op.attrs)
      if (n.once_in(5)) t.attrs.set(a.name, n.attribute(a));
  } else {
    const std::int64_t most = op.max_inputs < 0 ? op.min_inputs + 2 : op.max_inputs;
    const std::int64_t count =
        std::max<std::int64_t>(0, op.min_inputs + n.below(most - op.min_inputs + 1) +
                                      (n.once_in(15) ? n.below(3) - 1 : 0));
    const DType common = n.dtype();
    const Shape shape = n.shape();
    for (std::int64_t i = 0; i < count; ++i)
      t.inputs.push_back(
          n.tensor(n.once_in(3) ? n.dtype() : common, n.once_in(2) ? n.shape() : shape));
    for (const AttrSpec& a : op.attrs)
      if (!a.fallback || n.once_in(3)) t.attrs.set(a.name, n.attribute(a));
  }
  t.text = op.name;
  for (const Tensor& x : t.inputs) {
    t.said.push_back(n.said_of(x.shape()));
    t.text +=
        fmt::format(" {}{} told {}", name_of(x.dtype()), x.shape().text(), t.said.back().text());
  }
  t.text += " " + t.attrs.text();
  return t;
}

/// Too much for a test: an output of more elements than fit a small machine.
bool is_large(const Graph& g, const Exprs& ys) {
  for (const Expr& y : ys)
    if (g.spec(y.edge()).shape.elements() > 1 << 20) return true;
  return false;
}
bool has_large(const Attrs& attrs) {
  for (const auto& [name, value] : attrs.entries()) {
    if (const auto* i = std::get_if<std::int64_t>(&value); i && std::abs(*i) > 64) return true;
    if (const auto* v = std::get_if<std::vector<std::int64_t>>(&value))
      for (std::int64_t e : *v)
        if (std::abs(e) > 64) return true;
  }
  return false;
}

}  // namespace

BOOST_AUTO_TEST_CASE(nonsense_is_refused_in_one_sentence) {
  const std::uint64_t seed = number_from("TROUPE_SEED", 7), tries = number_from("TROUPE_TRIES", 60);
  int ops = 0, refused = 0, failed = 0, ran = 0;
  for (const OpDef* op : all_ops()) {
    if (!is_plain(*op)) continue;
    ++ops;
    Nonsense nonsense(seed * 1'000'003 + std::hash<std::string>()(op->name));
    for (std::uint64_t i = 0; i < tries; ++i) {
      const Try t = drawn(*op, nonsense);
      BOOST_TEST_CHECKPOINT(fmt::format("seed {}: {}", seed, t.text));
      Graph g;
      Exprs xs, ys;
      Feeds feeds;
      for (std::size_t k = 0; k < t.inputs.size(); ++k) {
        xs.push_back(g.input(fmt::format("x{}", k), t.inputs[k].dtype(), t.said[k]));
        feeds.emplace_back(xs.back(), t.inputs[k]);
      }
      const Site here = Reader::At::current();
      try {
        ys = g.bind(*op, xs, t.attrs, here);
      } catch (const Error& e) {
        const std::string said = e.what();
        const bool is_one = said.rfind(op->name, 0) == 0 &&
                            said.find("refusals_test.cpp:") != std::string::npos &&
                            said.find('\n') == std::string::npos && said.size() < 600;
        BOOST_CHECK_MESSAGE(is_one && e.code() != Code::internal,
                            "seed " << seed << ": " << t.text << " said " << said);
        ++refused;
        continue;
      } catch (const std::exception& e) {
        BOOST_ERROR("seed " << seed << ": " << t.text << " threw, while building, " << e.what());
        continue;
      }
      if (is_large(g, ys) || has_large(t.attrs)) continue;
      try {
        evaluate_eagerly(g, feeds, ys);
        ++ran;
      } catch (const Error& e) {
        const std::string said = e.what();
        const bool names_it = said.find(op->name) != std::string::npos &&
                              said.find("refusals_test.cpp:") != std::string::npos;
        BOOST_CHECK_MESSAGE(names_it && e.code() != Code::internal,
                            "seed " << seed << ": " << t.text << " said, running, " << said);
        ++failed;
      } catch (const std::exception& e) {
        BOOST_ERROR("seed " << seed << ": " << t.text << " threw, running, " << e.what());
      }
    }
  }
  fmt::print("nonsense (seed {}): {} ops, {} refused while building, {} while running, {} ran\n",
             seed, ops, refused, failed, ran);
  BOOST_TEST(refused > 0);
  BOOST_TEST(failed > 0);
  BOOST_TEST(ran > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
