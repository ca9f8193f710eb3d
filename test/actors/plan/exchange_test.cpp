// Exchanges: members of a meeting on several nodes get the bits that those of one node get; values
// that make no sense are refused; a cancelled run releases all that wait.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/plan/exchange.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;
using namespace troupe::test;
using mesh::detail::Exchange;

BOOST_AUTO_TEST_SUITE(exchange_test)

namespace {

const ValueSpec kNumber{DType::f32, Shape{1}};

std::shared_ptr<const Exchange::Rule> sums() {
  return std::make_shared<const Exchange::Rule>(Exchange::Rule{
      .result = kNumber, .add = [](const Tensor& a, const Tensor& b) {
        return Tensor::of<float>({static_cast<float>(a.at(0)) + static_cast<float>(b.at(0))}, {1});
      }});
}

// Devices that all give and take, on the nodes of `on`.
class Members final : public CompletionSink {
 public:
  explicit Members(std::vector<int> on, std::shared_ptr<const Exchange::Rule> rule = sums())
      : on_(std::move(on)), device_(make_cpu_device()), results_(on_.size()) {
    for (int node = 0; node < 3; ++node) {
      exchanges_[at(node)].meet(kKey, 0) =
          std::make_shared<const Exchange::Meet>(rule, on_, on_, node);
      exchanges_[at(node)].connect([this, node](std::uint64_t, int to, const MeetingPlace& place,
                                                std::vector<Tensor> values) {
        ++sent;
        if (auto rest = exchanges_[at(to)].take(run, node, place, std::move(values))) rest();
      });
    }
  }

  void arrive(std::size_t member, float value) {
    Exchange& exchange = exchanges_[at(on_[member])];
    exchange.arrive(run, {kKey, 0, 0},
                    {.meet = exchange.meet(kKey, 0),
                     .giver = static_cast<int>(member),
                     .value = Tensor::of<float>({value}, {1}),
                     .taker = static_cast<int>(member),
                     .completion = Completion(this, &results_[member]),
                     .device = device_.get()});
  }
  Exchange& on(int node) { return exchanges_[at(node)]; }
  std::vector<float> results() const {
    std::vector<float> all;
    for (const Result& r : results_)
      all.push_back(r.value.has_value() ? static_cast<float>(r.value.at(0)) : -1);
    return all;
  }
  Status status(std::size_t member) const { return results_[member].status; }

  static constexpr std::int64_t kKey = 3;
  RunInfo run;
  int sent = 0;

 private:
  struct Result {
    Tensor value;
    Status status;
  };
  static std::size_t at(int node) { return static_cast<std::size_t>(node); }
  void complete(void* ticket, Status status, std::span<Value> outputs) override {
    auto& result = *static_cast<Result*>(ticket);
    result.status = std::move(status);
    if (!outputs.empty()) result.value = outputs[0].tensor();
  }

  const std::vector<int> on_;
  const std::unique_ptr<Device> device_;
  std::vector<Result> results_;
  std::array<Exchange, 3> exchanges_;
};

// Their sum depends on the order.
const std::vector<float> kValues{1e8f, 3.25f, -1e8f, 0.75f, 5e7f, -2.5f, -5e7f};

}  // namespace

BOOST_AUTO_TEST_CASE(sums_over_nodes_have_the_bits_of_one_node) {
  std::vector<float> wanted;
  for (const std::vector<int>& on :
       {std::vector{0, 0, 0, 0, 0, 0, 0}, std::vector{0, 0, 0, 0, 1, 1, 1},
        std::vector{0, 0, 0, 1, 1, 1, 2}, std::vector{0, 1, 2, 0, 1, 2, 0},
        std::vector{1, 0, 0, 1, 2, 2, 2}}) {
    Members members(on);
    // in another order than that of the sum
    for (const std::size_t m : {3u, 0u, 6u, 5u, 1u, 2u, 4u}) members.arrive(m, kValues[m]);
    const std::vector<float> got = members.results();
    if (wanted.empty()) wanted.assign(got.size(), got[0]);
    BOOST_TEST(got == wanted, boost::test_tools::per_element());
    const int nodes = 1 + *std::max_element(on.begin(), on.end());
    BOOST_TEST(members.sent == nodes * (nodes - 1));  // a message for each pair, in each direction
  }
  BOOST_TEST(wanted[0] != -1);
}

BOOST_AUTO_TEST_CASE(a_member_gets_its_part_alone) {
  // Member m gives [10 m, 10 m + 1, 10 m + 2]; each takes its column of all.
  auto rule = std::make_shared<Exchange::Rule>();
  rule->result = {DType::f32, Shape{1}};
  rule->cut = [](const Tensor& x, int, int taker) {
    return Tensor::of<float>({static_cast<float>(x.at(0)) + static_cast<float>(taker)}, {1});
  };
  rule->join = [](const std::vector<Tensor>& all) {
    float sum = 0;
    for (const Tensor& x : all) sum = 100 * sum + static_cast<float>(x.at(0));
    return Tensor::of<float>({sum}, {1});
  };
  Members members({0, 1, 0}, rule);
  for (std::size_t m = 0; m < 3; ++m) members.arrive(m, static_cast<float>(10 * m));
  BOOST_TEST(members.results() == (std::vector<float>{1020, 11121, 21222}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(values_that_make_no_sense_are_refused) {
  Members members({0, 0, 1});
  const Tensor x = Tensor::of<float>({1}, {1});
  const auto refuses = [&](int node, const MeetingPlace& place, std::vector<Tensor> values,
                           const char* why) {
    BOOST_CHECK_EXCEPTION(members.on(0).take(members.run, node, place, std::move(values)), Error,
                          [&](const Error& e) {
                            return e.code() == Code::data_loss &&
                                   std::string(e.what()).find(why) != std::string::npos;
                          });
  };
  refuses(1, {4, 0, 0}, {x}, "of no mesh");
  refuses(1, {Members::kKey, 0, 1}, {x}, "of no mesh");
  refuses(0, {Members::kKey, 0, 0}, {x}, "that give none");
  refuses(2, {Members::kKey, 0, 0}, {x}, "that give none");
  refuses(1, {Members::kKey, 0, 0}, {x, x}, "of other devices");
  refuses(1, {Members::kKey, 0, 0}, {Tensor()}, "no value");
  members.arrive(0, 1);
  members.arrive(2, 4);
  refuses(1, {Members::kKey, 0, 0}, {x}, "that has given its own");
  members.arrive(1, 2);
  BOOST_TEST(members.results() == (std::vector<float>{7, 7, 7}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(attributes_that_no_pass_has_made_are_refused) {
  using Integers = std::vector<std::int64_t>;
  const mesh::Mesh p("p:2", {"cpu:0", "cpu:1"});
  const mesh::detail::InstanceNodes nodes{{0, 0}, {}, 0};
  const std::unique_ptr<Device> device = make_cpu_device();
  Graph g;
  const Expr x = g.input("x", DType::f32, {4});
  const auto code_of = [&](const char* op, const Shape& result, Attrs attrs) {
    Node n;
    n.op = &find_op(op);
    n.attrs = std::move(attrs);
    n.attrs.set("key", std::int64_t{1});
    n.inputs = {x.edge()};
    n.outputs = {{DType::f32, result}};
    try {
      make_exchange_kernel(p, nodes, g, n, std::make_shared<Exchange>(), 0, *device);
    } catch (const Error& e) { return e.code(); }
    return Code::ok;
  };
  const auto on = [](std::int64_t mesh_axis, std::int64_t axis, std::int64_t parts) {
    return Attrs{{"mesh_axis", mesh_axis}, {"axis", axis}, {"parts", parts}};
  };
  BOOST_TEST((code_of("MeshReduceScatter", {2}, on(0, 0, 2)) == Code::ok));
  for (const auto& wrong : {on(1, 0, 2), on(-1, 0, 2), on(0, 1, 2), on(0, 0, 3)})
    BOOST_TEST((code_of("MeshReduceScatter", {2}, wrong) == Code::data_loss));
  const auto by = [](std::int64_t places) {
    return Attrs{{"mesh_axis", std::int64_t{0}}, {"by", places}, {"wrap", true}};
  };
  BOOST_TEST((code_of("MeshShift", {4}, by(1)) == Code::ok));
  BOOST_TEST((code_of("MeshShift", {4}, by(INT64_MIN)) == Code::data_loss));
  const auto slice = [](std::int64_t axis, std::int64_t mesh_axis, std::int64_t parts) {
    return Attrs{
        {"axes", Integers{axis}}, {"mesh_axes", Integers{mesh_axis}}, {"parts", Integers{parts}}};
  };
  BOOST_TEST((code_of("MeshSlice", {2}, slice(0, 0, 2)) == Code::ok));
  for (const auto& wrong : {slice(1, 0, 2), slice(0, 1, 2), slice(0, 0, 1)})
    BOOST_TEST((code_of("MeshSlice", {2}, wrong) == Code::data_loss));
  BOOST_TEST((code_of("MeshExport", {4}, {{"mesh_axes", Integers{7}}}) == Code::data_loss));
}

BOOST_AUTO_TEST_CASE(values_of_another_kind_fail_their_takers) {
  auto rule = std::make_shared<Exchange::Rule>();
  rule->result = kNumber;
  rule->join = [](std::vector<Tensor> all) { return std::move(all[1]); };
  Members members({0, 1}, rule);
  members.arrive(0, 1);
  auto rest =
      members.on(0).take(members.run, 1, {Members::kKey, 0, 0}, {Tensor::of<float>({1, 2}, {2})});
  BOOST_REQUIRE(rest);
  rest();
  BOOST_TEST((members.status(0).code() == Code::data_loss));
}

BOOST_AUTO_TEST_CASE(a_cancelled_run_releases_members_on_each_node) {
  Members members({0, 0, 1});
  members.arrive(0, 1);
  members.arrive(2, 4);
  members.run.cancelled = true;
  for (const int node : {0, 1}) members.on(node).cancel(members.run.id);
  members.arrive(1, 2);
  for (std::size_t m = 0; m < 3; ++m)
    BOOST_TEST((members.status(m).code() == Code::aborted), members.status(m).message());
  BOOST_TEST(
      !members.on(0).take(members.run, 1, {Members::kKey, 0, 0}, {Tensor::of<float>({1}, {1})}));
}

BOOST_AUTO_TEST_SUITE_END()
