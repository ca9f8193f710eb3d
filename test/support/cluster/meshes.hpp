// Programs with named dimensions under layouts, for tests: run as they are, and cut over meshes of
// one process, of simulated devices and of nodes.
//
//   const std::vector<Tensor> got = check(build, {{"r:2", "m:r", kNone}});
//
// Not thread-safe.
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/mesh/functions.hpp>
#include <troupe/ops/mesh/mesh.hpp>
#include <troupe/ops/mesh/spmd.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/gpu.hpp>

namespace troupe::test::meshes {

using mesh::Dim;
using mesh::Dims;
using mesh::Layout;
using mesh::Mesh;
using mesh::Partitioning;

// A program: what is fed, with its values, and what is fetched.
struct MeshCase {
  Feeds feeds;
  Exprs fetches;
};
using BuildMesh = std::function<MeshCase(Graph&)>;

// How often each kind of collective stands in the SPMD program, in its sub-graphs too.
using Counts = std::map<std::string, int>;

struct Cut {
  const char* axes;
  const char* layout;
  Counts counts;
};

struct Place {
  std::string name;
  std::vector<std::string> devices;  // four
  int nodes = 1;
};

inline std::vector<Place> places() {
  std::vector<Place> all{
      {"one process", {"cpu:0", "cpu:1", "cpu:2", "cpu:3"}},
      {"simulated devices", {"sim:0", "sim:1", "cpu:0", "cpu:1"}},
      {"two nodes", {"/node:a/cpu:0", "/node:a/cpu:1", "/node:b/cpu:0", "/node:b/cpu:1"}, 2},
      {"four nodes", {"/node:a/cpu:0", "/node:b/cpu:0", "/node:c/cpu:0", "/node:d/cpu:0"}, 4}};
  if (has_gpu()) all.push_back({"a GPU and CPUs", {"gpu:0", "cpu:0", "cpu:1", "cpu:2"}});
  return all;
}

inline Mesh mesh_of(const char* axes, const Place& place) {
  std::int64_t size = 1;
  for (const Dim& d : mesh::parse_dims(axes)) size *= d.size;
  return {axes, {place.devices.begin(), place.devices.begin() + size}};
}

inline std::vector<detail::Edge> edges(const Exprs& xs) {
  std::vector<detail::Edge> all;
  for (const Expr& x : xs) all.push_back(x.edge());
  return all;
}

inline mesh::detail::SpmdProgram spmd_of(Graph& g, const Exprs& feeds, const Exprs& fetches,
                                         const Partitioning& p) {
  Program program = prune(g, edges(feeds), edges(fetches));
  program.graph.reserve_origins(g.origins());
  return mesh::detail::to_spmd(program, p);
}

inline Counts counts_of(const mesh::detail::SpmdProgram& spmd) {
  Counts counts;
  for (const auto& node : spmd.program.graph.nodes())
    if (node.op->name.starts_with("MeshAll") || node.op->name == "MeshReduceScatter" ||
        node.op->name == "MeshShift")
      ++counts[node.op->name];
  for (const auto& [id, flow] : spmd.flows)
    for (const auto& sub : flow.subs)
      for (const auto& [op, n] : counts_of(*sub)) counts[op] += n;
  return counts;
}

inline Exprs fed(const MeshCase& c) {
  Exprs xs;
  for (const auto& [x, value] : c.feeds) xs.push_back(x);
  return xs;
}

inline std::vector<Tensor> run(Engine& engine, Graph& g, const MeshCase& c,
                               const std::optional<Partitioning>& p,
                               std::vector<std::string> skip_passes = {}) {
  CompileOptions options;
  options.mesh = p;
  options.skip_passes = std::move(skip_passes);
  std::vector<Tensor> values;
  for (const auto& [x, value] : c.feeds) values.push_back(value);
  return engine.compile(g, fed(c), c.fetches, options)(values);
}

inline void check_close(const Tensor& got, const Tensor& wanted, double tolerance,
                        const std::string& what) {
  BOOST_REQUIRE_MESSAGE(got.shape() == wanted.shape(), what);
  for (std::int64_t i = 0; i < wanted.elements(); ++i) {
    const double w = wanted.at(i), g = got.at(i);
    BOOST_TEST(std::abs(g - w) <= tolerance * std::max(1.0, std::abs(w)),
               what << ": element " << i << " is " << g << " in place of " << w);
  }
}

// Requires equal bits of a program whose devices run instances of one program, and of the one whose
// nodes are copied to the devices.
inline void check_bits(const std::vector<Tensor>& instances, const std::vector<Tensor>& copies,
                       const std::string& what) {
  BOOST_REQUIRE(instances.size() == copies.size());
  for (std::size_t i = 0; i < copies.size(); ++i)
    BOOST_TEST(identical(instances[i], copies[i]),
               what << ": fetch " << i << " has other bits than with nodes copied to devices");
}
inline const std::vector<std::string> kCopies{"instances"};

// Runs the program as it is, and under each cut at each place, where its values are the same within
// `tolerance_of(wanted)`; by instances and by copies, with equal bits.
// `look(graph, case, cut, partitioning, text)` comes before each run.
template <class Look, class Tolerance>
std::vector<Tensor> run_everywhere(const BuildMesh& build, const std::vector<Cut>& cuts, Look look,
                                   Tolerance tolerance_of) {
  std::vector<Tensor> wanted;
  {
    Graph g;
    const MeshCase c = build(g);
    Engine engine;
    wanted = run(engine, g, c, std::nullopt);
  }
  for (const Place& place : places()) {
    std::unique_ptr<Nodes> nodes;
    std::unique_ptr<Engine> alone;
    if (place.nodes > 1) nodes = std::make_unique<Nodes>(place.nodes);
    else alone = std::make_unique<Engine>();
    for (const Cut& cut : cuts) {
      Graph g;
      const MeshCase c = build(g);
      const Partitioning p{mesh_of(cut.axes, place), Layout(cut.layout)};
      const std::string what = place.name + ", mesh " + cut.axes + ", layout '" + cut.layout + "'";
      look(g, c, cut, p, what);
      const std::vector<Tensor> got = run(nodes ? nodes->engine() : *alone, g, c, p);
      BOOST_REQUIRE(got.size() == wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        check_close(got[i], wanted[i], tolerance_of(wanted[i]), what);
      Graph again;
      std::unique_ptr<Nodes> other_nodes;
      std::unique_ptr<Engine> other;
      if (place.nodes > 1) other_nodes = std::make_unique<Nodes>(place.nodes);
      else other = std::make_unique<Engine>();
      const MeshCase same = build(again);
      check_bits(got, run(other_nodes ? other_nodes->engine() : *other, again, same, p, kCopies),
                 what);
    }
  }
  return wanted;
}

// Runs it so, and compares the number of collectives of each cut, too.
inline std::vector<Tensor> check(const BuildMesh& build, const std::vector<Cut>& cuts) {
  return run_everywhere(
      build, cuts,
      [](Graph& g, const MeshCase& c, const Cut& cut, const Partitioning& p,
         const std::string& what) {
        const auto spmd = spmd_of(g, fed(c), c.fetches, p);
        if (counts_of(spmd) == cut.counts) return;
        for (const std::string& line : spmd.told) BOOST_TEST_MESSAGE(line);
        for (const std::string& line : spmd.layouts) BOOST_TEST_MESSAGE(line);
        std::string counted;
        for (const auto& [op, n] : counts_of(spmd)) counted += " " + op + " " + std::to_string(n);
        BOOST_TEST(false, what << ": collectives are" << counted);
      },
      [](const Tensor& wanted) { return wanted.dtype() == DType::f64 ? 1e-12 : 1e-5; });
}

inline void check_values(const Tensor& t, const std::vector<double>& wanted,
                         double tolerance = 1e-6) {
  BOOST_REQUIRE(t.elements() == static_cast<std::int64_t>(wanted.size()));
  for (std::size_t i = 0; i < wanted.size(); ++i)
    BOOST_TEST(std::abs(t.at(static_cast<std::int64_t>(i)) - wanted[i]) <= tolerance);
}

// 0, 1, 2, ... times `step` plus `start`.
inline Tensor counted(const Shape& shape, double step = 1, double start = 0) {
  Tensor t = Tensor::zeros(DType::f64, shape);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.mutable_data<double>()[i] = start + step * static_cast<double>(i);
  return t;
}

inline Expr input(MeshCase& c, Graph& g, const std::string& name, const Tensor& value,
                  const Dims& dims, std::source_location at = std::source_location::current()) {
  const Expr x = g.input(name, value.dtype(), value.shape());
  c.feeds.emplace_back(x, value);
  return mesh::named(x, dims, at);
}

template <class F>
void check_refused(const F& f, std::initializer_list<const char*> parts) {
  BOOST_CHECK_EXCEPTION(f(), Error, [&](const Error& e) {
    bool says = e.code() == Code::invalid_argument;
    for (const char* part : parts)
      says = says && std::string(e.what()).find(part) != std::string::npos;
    if (!says) BOOST_TEST_MESSAGE(e.what());
    return says;
  });
}

inline const Counts kNone{};
inline Counts all_reduces(int n) { return {{"MeshAllReduce", n}}; }

}  // namespace troupe::test::meshes
