// Not under tsan: mesh_test and mesh_loops_test run the same threads.
// Random programs with named dimensions under random layouts: values equal those of the program as
// it is.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/cluster/meshes.hpp>

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::meshes;

BOOST_AUTO_TEST_SUITE(mesh_random_test)

namespace {

// A program of named tensors, drawn from a seed: products, sums, softmax, renamed, joined and
// parted dimensions, and the gradients of it all.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint32_t seed) : seed_(seed) {}

  MeshCase build(Graph& g) {
    random_.seed(seed_);
    MeshCase c;
    const Dims all = dims();
    const std::vector<Dims> shapes{
        {all[0], all[1]}, {all[1], all[2]}, {all[0], all[2], all[3]}, {all[3], all[1]}};
    Exprs fed;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      Shape shape;
      for (const Dim& d : shapes[i]) shape.push_back(d.size);
      Tensor value = Tensor::zeros(DType::f64, shape);
      for (std::int64_t k = 0; k < value.elements(); ++k)
        value.mutable_data<double>()[k] = 0.01 * static_cast<double>(draw(200)) - 1;
      pool_.push_back(input(c, g, "x" + std::to_string(i), value, shapes[i]));
      fed.push_back(c.feeds.back().first);
    }
    for (int i = 0; i < 12; ++i) pool_.push_back(step());
    const Expr last = tanh(pool_.back());
    Expr loss = sum(last);
    for (std::size_t i = pool_.size() - 4; i < pool_.size(); ++i) loss = loss + sum(tanh(pool_[i]));
    GradientOptions zeros;
    zeros.unconnected = Unconnected::zeros;
    c.fetches = gradients(loss, fed, zeros);
    c.fetches.push_back(last);
    pool_.clear();
    return c;
  }
  // Rules for a random choice of dimensions.
  Layout layout(const Mesh& mesh) {
    std::vector<Layout::Rule> rules;
    for (const Dim& d : dims())
      if (draw(5) < 2) rules.emplace_back(d.name, mesh.axes()[draw(mesh.axes().size())].name);
    return Layout(rules);
  }

 private:
  static Dims dims() { return {{"a", 4}, {"b", 4}, {"c", 8}, {"d", 12}, {"e", 4}}; }
  std::size_t draw(std::size_t below) { return random_() % below; }
  Expr any() { return pool_[draw(pool_.size())]; }
  static bool is_named(const Expr& x) {
    for (const Dim& d : mesh::dims_of(x))
      if (d.name.empty() || d.name.find('*') != std::string::npos) return false;
    return true;
  }

  Expr step() {
    const Expr x = any();
    const Dims own = mesh::dims_of(x);
    switch (draw(9)) {
      case 0: return tanh(x) * 0.7 - 0.1;
      case 1: return relu(x) + square(x) * 0.2;
      case 2: return tanh(product_of(x, any()));
      case 3: return tanh(product_of(x, any()));
      case 4: return sum_of(x, any());
      case 5:
        if (own.size() < 2) return sigmoid(x);
        return draw(2) ? mesh::mean(x, {own[draw(own.size())]})
                       : mesh::reduce_max(x, {own[draw(own.size())]});
      case 6: return own.empty() ? x * 2.0 : mesh::softmax(x, own[draw(own.size())]);
      case 7: return renamed(x, own);
      default: return joined(x, own);
    }
  }
  // Over a random choice of the dimensions of both.
  Expr product_of(const Expr& x, const Expr& y) {
    Dims result;
    for (const Expr& e : {x, y})
      for (const Dim& d : mesh::dims_of(e))
        if (std::find(result.begin(), result.end(), d) == result.end()) result.push_back(d);
    while (result.size() > 3 || (!result.empty() && draw(3) == 0))
      result.erase(result.begin() + static_cast<std::ptrdiff_t>(draw(result.size())));
    return mesh::einsum({x, y}, result);
  }
  Expr sum_of(const Expr& x, const Expr& y) {
    const Dims own = mesh::dims_of(x);
    for (const Dim& d : mesh::dims_of(y))
      if (std::find(own.begin(), own.end(), d) == own.end()) return x - square(x);
    return x + mesh::aligned(y, own);
  }
  // `a` becomes `e` or the reverse, unless x has both.
  Expr renamed(const Expr& x, Dims own) {
    const auto has = [&](const char* name) {
      return std::find(own.begin(), own.end(), Dim{name, 4}) != own.end();
    };
    if (has("a") == has("e")) return -x;
    for (Dim& d : own) {
      if (d.name == "a") d.name = "e";
      else if (d.name == "e") d.name = "a";
    }
    return mesh::named(x, own);
  }
  Expr joined(const Expr& x, const Dims& own) {
    if (own.size() < 2) return x * 1.5;
    Shape flat, parted;
    for (const Dim& d : own) parted.push_back(d.size);
    flat = Shape{own[0].size * own[1].size};
    for (std::size_t i = 2; i < own.size(); ++i) flat.push_back(own[i].size);
    return reshape(tanh(reshape(x, flat)), parted);
  }

  const std::uint32_t seed_;
  std::mt19937 random_;
  Exprs pool_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(random_programs_under_random_layouts_equal_the_whole_program) {
  const std::vector<Place> all = places();
  int legal = 0, refused = 0, by_instances = 0;
  for (std::uint32_t seed = 1; seed <= 100; ++seed) {
    const Place& place = all[seed % 8 == 0 ? 1 : 0];
    RandomProgram program(seed);
    Engine engine;
    Graph whole, cut;
    const std::vector<Tensor> wanted = run(engine, whole, program.build(whole), std::nullopt);
    const MeshCase c = program.build(cut);
    const Mesh mesh = mesh_of(seed % 3 == 0 ? "p:4" : "r:2;s:2", place);
    const Partitioning p{mesh, program.layout(mesh)};
    std::vector<Tensor> got;
    try {
      got = run(engine, cut, c, p);
    } catch (const Error& e) {
      BOOST_REQUIRE_MESSAGE(
          std::string(e.what()).find("are both split along mesh axis") != std::string::npos,
          "seed " << seed << ": " << e.what());
      ++refused;
      continue;
    }
    ++legal;
    CompileOptions options;
    options.mesh = p;
    const std::string form = engine.compile(cut, fed(c), c.fetches, options).explain();
    by_instances += form.find("devices run instances of one program") != std::string::npos;
    Graph again;
    const MeshCase same = program.build(again);
    check_bits(got, run(engine, again, same, p, kCopies), "seed " + std::to_string(seed));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      check_close(got[i], wanted[i], 1e-9,
                  "seed " + std::to_string(seed) + ", layout '" + p.layout.text() + "', fetch " +
                      std::to_string(i));
  }
  BOOST_TEST(legal >= 50);
  BOOST_TEST(by_instances >= 25);  // else copies would be compared with copies
  BOOST_TEST(refused >= 5);
}

BOOST_AUTO_TEST_SUITE_END()
