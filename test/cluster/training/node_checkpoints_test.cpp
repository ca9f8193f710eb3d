// Checkpoints on the disks of nodes: a shard and its copies, damage, other nodes, a later driver.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/actors/engine/state_table.hpp>
#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/cluster/node/checkpoint_service.hpp>
#include <troupe/cluster/node/fence_scope.hpp>
#include <troupe/cluster/training/training_runs.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/saved_actor.hpp>
#include <troupe/test/support/cluster/faulty_disk.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/cluster/trained_weights.hpp>
#include <troupe/test/support/refusal.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(node_checkpoints_test)

namespace {

EngineOptions seeded() {
  EngineOptions o;
  o.seed = 5;
  o.workers = 1;
  return o;
}

struct World {
  Folder place;
  std::map<std::string, FaultyDisk> disks;
  std::vector<std::string> lines;
  Nodes nodes;

  explicit World(int count)
      : nodes(count, seeded(), Between::handles, {}, {}, {}, {}, [this](const std::string& node) {
          return Nodes::State{node == "a" ? std::string() : place / node, &disks[node]};
        }) {}
  TrainingOptions options(int copies = 1) {
    return {.replicas = kTrainingReplicas,
            .name = "demo",
            .copies = copies,
            .every = 4,
            .keep = {.newest = 2},
            .log = [this](const std::string& line) { lines.push_back(line); }};
  }
  std::string shards_of(const std::string& node) const { return place / (node + "/demo"); }
  NodeFolders folders(const std::vector<std::string>& of) const {
    std::vector<std::string> all;
    for (const std::string& node : of) all.push_back(shards_of(node));
    return NodeFolders(real_disk(), all);
  }
  bool said(const std::string& part) const {
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
  }
};

std::map<std::string, Tensor> wanted_after(std::int64_t steps) {
  Nodes one(1, seeded());
  return undisturbed_weights(one[0], steps);
}

std::size_t shards_in(const std::string& folder, std::int64_t step) {
  std::size_t count = 0;
  for (const std::string& file : real_disk().names(folder))
    count += file.starts_with(fmt::format("step-{}.", step)) && file.ends_with(".safetensors");
  return count;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_shard_is_on_its_node_and_on_copies) {
  const auto wanted = wanted_after(10);
  for (const int copies : {0, 1, 2}) {
    World world(4);
    Training training(world.nodes[0], world.options(copies), small_network, small_rows);
    training.run(10);
    const std::vector<std::string> keepers{"b", "c", "d"};
    const NodeFolders all = world.folders(keepers);
    const auto ids = all.all();
    BOOST_TEST((ids == std::vector<CheckpointId>{{8, 1}, {10, 1}}));
    const Manifest m = all.manifest({10, 1});
    BOOST_TEST(m.driver == "a");
    std::size_t files = 0;
    for (const std::string& node : keepers) {
      files += shards_in(world.shards_of(node), 10);
      BOOST_TEST(std::filesystem::exists(world.shards_of(node) + "/" + manifest_name({10, 1})));
      BOOST_TEST(shards_in(world.shards_of(node), 4) == 0u);  // kept no longer
    }
    BOOST_TEST(files == m.shards.size() * static_cast<std::size_t>(copies + 1));
    for (const ShardEntry& shard : m.shards)
      BOOST_TEST(shard.holders.size() == static_cast<std::size_t>(copies + 1));
    BOOST_TEST(m.shards.size() >= 2u);  // a variable is beside replica 1, others are on a
    check_same_weights(all.read({10, 1}), wanted);
  }
}

BOOST_AUTO_TEST_CASE(values_are_those_of_their_step_while_steps_go_on) {
  World world(3);
  const auto wanted = wanted_after(8);
  Training training(world.nodes[0], world.options(), small_network, small_rows);
  training.run(9);
  check_same_weights(world.folders({"b", "c"}).read({8, 1}), wanted);
}

BOOST_AUTO_TEST_CASE(another_driver_goes_on_over_other_nodes) {
  const auto wanted = wanted_after(20);
  World world(4);
  TrainingOptions options = world.options();
  {
    Training first(world.nodes[0], options, small_network, small_rows);
    first.run(11);
  }
  // From another node, and over one node alone.
  options.nodes = {"d"};
  Training second(world.nodes[3], options, small_network, small_rows);
  second.run(20);
  BOOST_TEST(second.counters().steps == 9);
  BOOST_TEST(world.said("restored demo/step-11.epoch-1.json"));
  check_same_weights(world.folders({"b", "c", "d"}).read({20, 2}), wanted);
}

BOOST_AUTO_TEST_CASE(restore_replaces_a_damaged_shard_by_a_copy_or_goes_back) {
  const auto wanted = wanted_after(12);
  for (const bool has_copy : {true, false}) {
    World world(3);
    {
      Training training(world.nodes[0], world.options(), small_network, small_rows);
      training.run(8);
    }
    const NodeFolders both = world.folders({"b", "c"});
    const std::string file = both.manifest({8, 1}).shards[0].file;
    for (const char* node : {"b", "c"}) {
      if (has_copy && std::string(node) == "c") continue;
      const std::string path = world.shards_of(node) + "/" + file;
      std::string damaged = read_file(path);
      damaged.back() = static_cast<char>(damaged.back() ^ 1);
      write_file(path, damaged);
    }
    world.lines.clear();
    Training again(world.nodes[0], world.options(), small_network, small_rows);
    again.run(12);
    BOOST_TEST(again.counters().steps == (has_copy ? 4 : 8));
    BOOST_TEST(world.said(has_copy ? "restored demo/step-8." : "skipped demo/step-8."));
    BOOST_TEST((has_copy || (world.said(file) && world.said("chunk 0"))));
    check_same_weights(both.read({12, 2}), wanted);
  }
}

// A variable beside replica 1, which is on c; the driver has the others.
BOOST_AUTO_TEST_CASE(a_node_restores_its_variables_from_its_own_disk) {
  const auto wanted = wanted_after(12);
  for (const bool is_damaged : {false, true}) {
    World world(3);
    Training(world.nodes[0], world.options(), small_network, small_rows).run(8);
    if (is_damaged)
      for (const ShardEntry& shard : world.folders({"b", "c"}).manifest({8, 1}).shards) {
        const std::string path = world.shards_of("c") + "/" + shard.file;
        write_file(path, read_file(path).substr(1));
      }
    world.lines.clear();
    Training again(world.nodes[0], world.options(), small_network, small_rows);
    again.run(12);
    BOOST_TEST(world.said(" values by their nodes") != is_damaged);
    BOOST_TEST(world.said("nodes do not restore demo/step-8.epoch-1.json by themselves") ==
               is_damaged);
    BOOST_TEST(again.counters().steps == 4);
    check_same_weights(world.folders({"b", "c"}).read({12, 2}), wanted);
  }
}

// Another node than the manifest's may have the name of one of its files.
BOOST_AUTO_TEST_CASE(a_node_refuses_a_file_that_its_manifest_does_not_describe) {
  using Kind = CheckpointRequest::Kind;
  World world(3);
  Training(world.nodes[0], world.options(), small_network, small_rows).run(4);
  const Manifest m = world.folders({"b", "c"}).manifest({4, 1});
  const auto put = [&](const std::vector<std::string>& names, std::uint64_t count,
                       std::vector<std::uint64_t> sums, std::uint64_t epoch = 1) {
    CheckpointRequest ask;
    ask.kind = Kind::put;
    ask.fence = {"demo", epoch, "a"};
    ask.text = m.shards[0].file;
    ask.names = names;
    ask.count = count;
    ask.tensors = {packed(WrittenShard{m.shards[0].bytes, std::move(sums), {}, {}})};
    world.nodes[0].checkpoints().ask("b", std::move(ask));
  };
  const std::vector<std::uint64_t> sums = m.shards[0].sums;
  std::uint64_t in_file = 0;
  for (const Manifest::Value& v : m.values) in_file += v.shard == 0;
  put({}, in_file, sums);
  const auto refuses = [&](const auto& ask, Code code, const char* why) {
    const std::string text = refusal(ask, code);
    BOOST_TEST(text.find(why) != std::string::npos, text);
  };
  refuses([&] { put({}, in_file + 1, sums); }, Code::failed_precondition, "its manifest names");
  refuses([&] { put({"none"}, in_file, sums); }, Code::data_loss, "lacks values");
  refuses([&] { put({}, in_file, {}); }, Code::data_loss, "other checksums");
  refuses([&] { put({}, in_file, {sums[0] + 1}); }, Code::data_loss, "damaged in chunk 0");
  refuses([&] { put({}, in_file, sums, 0); }, Code::failed_precondition, "epoch 0");
}

BOOST_AUTO_TEST_CASE(a_missing_shard_is_taken_from_a_copy) {
  const auto wanted = wanted_after(9);
  World world(3);
  {
    Training training(world.nodes[0], world.options(), small_network, small_rows);
    training.run(8);
  }
  std::filesystem::remove_all(world.shards_of("b"));
  Training again(world.nodes[0], world.options(), small_network, small_rows);
  again.run(9);
  BOOST_TEST(again.counters().steps == 1);
  check_same_weights(world.folders({"b", "c"}).read({9, 2}), wanted);
}

BOOST_AUTO_TEST_CASE(a_node_that_has_the_only_copy_is_waited_for) {
  World world(3);
  TrainingOptions options = world.options(0);
  Training(world.nodes[0], options, small_network, small_rows).run(8);
  world.nodes.remove_and_tell(2);
  options.patience = std::chrono::milliseconds(1);
  Training again(world.nodes[0], options, small_network, small_rows);
  const std::string why = refusal([&] { again.run(9); }, Code::unavailable);
  BOOST_TEST(why.find("on node 'c': it is not there") != std::string::npos, why);
  BOOST_TEST(world.said("waits for a checkpoint: "));
  BOOST_TEST(again.counters().steps == 0);
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_passed_over_while_another_node_has_room) {
  World world(3);
  Training training(world.nodes[0], world.options(), small_network, [&](std::int64_t step) {
    if (step == 1) world.disks["c"].room = 0;
    return small_rows(step);
  });
  training.run(8);
  BOOST_TEST(world.said("has no copy on node 'c': the disk is full"));
  check_same_weights(world.folders({"b"}).read({8, 1}), wanted_after(8));
  // On no disk: the run ends, and names the file.
  world.disks["b"].room = 0;
  const std::string why = refusal([&] { training.run(12); }, Code::resource_exhausted);
  BOOST_TEST(why.find("the disk is full") != std::string::npos, why);
  BOOST_TEST((world.folders({"b"}).all().back() == CheckpointId{8, 1}));
}

BOOST_AUTO_TEST_CASE(a_disk_that_is_full_at_the_start_keeps_no_checkpoints) {
  World world(3);
  world.disks["c"].room = 0;
  Training training(world.nodes[0], world.options(), small_network, small_rows);
  training.run(8);
  BOOST_TEST(world.said("no checkpoint is kept there: node 'c': "));
  check_same_weights(world.folders({"b"}).read({8, 1}), wanted_after(8));
}

BOOST_AUTO_TEST_CASE(a_run_after_an_error_restores_and_has_an_epoch_of_its_own) {
  World world(3);
  bool is_failing = true;
  Training training(world.nodes[0], world.options(), small_network, [&](std::int64_t step) {
    if (step == 6 && is_failing) throw Error(Code::invalid_argument, "no rows");
    return small_rows(step);
  });
  refusal([&] { training.run(9); }, Code::invalid_argument);
  is_failing = false;
  training.run(9);
  BOOST_TEST(world.said("restored demo/step-4.epoch-1.json"));
  check_same_weights(world.folders({"b", "c"}).read({9, 2}), wanted_after(9));
}

BOOST_AUTO_TEST_CASE(a_training_whose_restore_failed_does_not_go_on) {
  World world(3);
  Training(world.nodes[0], world.options(), small_network, small_rows).run(4);
  bool is_other = true;
  const auto build = [&](Graph& g, const collective::Group& group) {
    TrainingProgram p = small_network(g, group);
    if (!is_other) return p;
    Variable more = g.variable("more", DType::f32, {1}, Initializer::constant(0));
    p.fetches.push_back(more.assign_add(g.ones(DType::f32, {1})));
    return p;
  };
  Training training(world.nodes[0], world.options(), build, small_rows);
  for (int i = 0; i < 2; ++i) {
    const std::string why = refusal([&] { training.run(8); }, Code::failed_precondition);
    BOOST_TEST(why.find("more is not in it") != std::string::npos, why);
  }
  BOOST_TEST(training.counters().steps == 0);
  is_other = false;
  training.run(8);
  BOOST_TEST(training.counters().steps == 4);
  check_same_weights(world.folders({"b", "c"}).read({8, 4}), wanted_after(8));
}

BOOST_AUTO_TEST_CASE(an_earlier_driver_runs_and_writes_no_more) {
  World world(3);
  Training first(world.nodes[0], world.options(), small_network, small_rows);
  first.run(5);
  {
    Training second(world.nodes[1], world.options(), small_network, small_rows);
    second.run(6);
  }
  const std::string why = refusal([&] { first.run(20); }, Code::failed_precondition);
  BOOST_TEST((why.find("driver 'a' is of epoch 1") != std::string::npos &&
              why.find("driver 'b' of epoch 2") != std::string::npos),
             why);
  BOOST_TEST((world.folders({"b", "c"}).all().back() == CheckpointId{6, 2}));
}

// The driver's own node is not asked here: nodes that take part refuse its plans.
BOOST_AUTO_TEST_CASE(nodes_refuse_plans_of_an_earlier_driver) {
  World world(3);
  Graph g;
  Function f = [&] {
    const FenceScope scope({"demo", 1, "a"});
    const auto there = g.on_device("/node:b/cpu:0");
    return world.nodes.engine().compile(g, {}, {g.ones(DType::f32, {2}) * 2.0});
  }();
  BOOST_TEST(f({})[0].at(0) == 2);
  CheckpointRequest claim;
  claim.kind = CheckpointRequest::Kind::claim;
  claim.fence = {"demo", 2, "c"};
  world.nodes[2].checkpoints().ask("b", claim);
  const FenceScope scope({"demo", 1, "a"});
  std::string why;
  // A call of before the claim may find its plan gone; the next one offers the plan again.
  for (int i = 0; i < 100'000 && why.find("driver 'a'") == std::string::npos; ++i) try {
      f({});
    } catch (const Error& e) { why = e.what(); }
  BOOST_TEST((why.find("driver 'a' is of epoch 1") != std::string::npos &&
              why.find("driver 'c' of epoch 2") != std::string::npos),
             why);
}

// It changes nothing on a node once the node has accepted a later driver.
BOOST_AUTO_TEST_CASE(a_step_under_way_ends_when_a_later_driver_is_accepted) {
  World world(3);
  Graph g;
  const auto there = g.on_device("/node:b/cpu:0");
  Queue begun = g.fifo_queue("begun", {{DType::i32, Shape{}}}, 1),
        go_on = g.fifo_queue("go_on", {{DType::i32, Shape{}}}, 1);
  const Expr has_begun = begun.enqueue({g.constant(1)});
  Expr waits = go_on.dequeue()[0];
  const Function look = world.nodes.engine().compile(g, {}, {begun.dequeue()[0]});
  const Function step = [&] {
    const FenceScope scope({"demo", 1, "a"});
    return world.nodes.engine().compile(g, {}, {has_begun, waits});
  }();
  RunHandle run = step.start({});
  look({});
  CheckpointRequest claim;
  claim.kind = CheckpointRequest::Kind::claim;
  claim.fence = {"demo", 2, "c"};
  world.nodes[2].checkpoints().ask("b", claim);
  const Status status = run.wait();
  BOOST_TEST((status.code() == Code::failed_precondition), status.message());
  BOOST_TEST((status.message().find("driver 'a' is of epoch 1") != std::string::npos &&
              status.message().find("driver 'c' of epoch 2 was accepted while the step ran") !=
                  std::string::npos),
             status.message());
}

BOOST_AUTO_TEST_CASE(a_driver_replaced_while_it_restores_sets_no_variable) {
  const auto w2_on_b = [](World& world, const std::string& container) {
    return variable_value(*world.nodes[1].engine().impl().states_of({container, 0}).store, "w2");
  };
  World world(3);
  world.nodes.container = "shared";  // the two drivers name it
  ClusterNode &first = world.nodes.add("e", seeded()), &second = world.nodes.add("f", seeded());
  for (ClusterNode* const node : {&first, &second})
    node->wait_for({"b", "c"}, std::chrono::seconds(30));
  TrainingOptions options = world.options();
  options.nodes = {"c", "b"};  // replica 1, with w2, is on b
  Training(first, options, small_network, small_rows).run(4);
  first.clear_container("shared", {"b", "c"});
  bool is_replaced = false;
  options.log = [&](const std::string& line) {
    if (is_replaced || line.find(" replicas on ") == std::string::npos) return;
    is_replaced = true;
    CheckpointRequest claim;
    claim.kind = CheckpointRequest::Kind::claim;
    claim.fence = {"demo", 9, "f"};
    for (const char* node : {"b", "c"}) second.checkpoints().ask(node, claim);
  };
  Training again(first, options, small_network, small_rows);
  const std::string why = refusal([&] { again.run(8); }, Code::failed_precondition);
  BOOST_TEST(why.find("driver 'f' of epoch 9") != std::string::npos, why);
  BOOST_TEST(is_replaced);
  const Tensor trained = [&] {
    for (const auto& [name, value] : world.folders({"b", "c", "e", "f"}).read({4, 1}))
      if (name == "w2") return value;
    return Tensor();
  }();
  BOOST_TEST(!identical(w2_on_b(world, "shared"), trained));
}

BOOST_AUTO_TEST_CASE(a_driver_does_not_begin_anew_where_a_checkpoint_is_known) {
  World world(3);
  Training(world.nodes[0], world.options(), small_network, small_rows).run(8);
  for (std::size_t i = 2; i >= 1; --i) world.nodes.remove_and_tell(i);
  world.nodes.add("e", seeded());
  world.nodes[0].wait_for({"e"}, std::chrono::seconds(30));
  TrainingOptions options = world.options();
  options.patience = std::chrono::milliseconds(1);
  Training again(world.nodes[0], options, small_network, small_rows);
  for (int i = 0; i < 2; ++i) {
    const std::string why = refusal([&] { again.run(9); }, Code::unavailable);
    BOOST_TEST(
        why.find("knows of the checkpoint of step 8 of training 'demo'") != std::string::npos, why);
  }
  BOOST_TEST(again.counters().steps == 0);
  // A driver from another node, which has not seen them, is told.
  Training other(world.nodes[1], options, small_network, small_rows);
  refusal([&] { other.run(9); }, Code::unavailable);
}

BOOST_AUTO_TEST_CASE(a_driver_says_that_none_before_it_wrote_a_checkpoint) {
  World world(3);
  CheckpointRequest claim;
  claim.kind = CheckpointRequest::Kind::claim;
  claim.fence = {"demo", 4, "c"};
  world.nodes[2].checkpoints().ask("b", claim);
  Training training(world.nodes[0], world.options(), small_network, small_rows);
  training.run(2);
  BOOST_TEST(world.said("step 0: no driver before this one wrote a checkpoint"));
}

BOOST_AUTO_TEST_CASE(values_that_were_taken_are_their_owners) {
  using Kind = CheckpointRequest::Kind;
  World world(3);
  const auto ask = [&](std::size_t from, Kind kind, const char* training = "demo") {
    CheckpointRequest m;
    m.kind = kind;
    m.fence = {training, 1, "a"};
    m.step = 3;
    if (kind == Kind::take) {
      m.text = "v\n";
      m.tensors = {Tensor::of<float>({1, 2}, {2})};
    }
    return world.nodes[from].checkpoints().ask("b", std::move(m));
  };
  refusal([&] { ask(0, Kind::take); }, Code::failed_precondition);  // no driver was accepted
  refusal([&] { ask(0, Kind::take, "../x"); }, Code::invalid_argument);
  ask(0, Kind::claim);
  ask(0, Kind::take);
  refusal([&] { ask(2, Kind::fetch); }, Code::failed_precondition);
  BOOST_TEST(ask(0, Kind::fetch).value.has_value());
  refusal([&] { ask(0, Kind::fetch); }, Code::failed_precondition);
}

BOOST_AUTO_TEST_CASE(a_training_is_seen_from_any_node) {
  World world(4);
  BOOST_TEST(training_runs(world.nodes[3]).empty());
  Training training(world.nodes[0], world.options(), small_network, small_rows);
  training.run(9);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::vector<TrainingRun> runs = training_runs(world.nodes[i]);
    BOOST_REQUIRE(runs.size() == 1u);
    BOOST_TEST(runs[0].name == "demo");
    BOOST_TEST(runs[0].driver == "a");
    BOOST_TEST(runs[0].checkpoint == 9);
    BOOST_TEST(runs[0].keepers.size() == 3u);
    const std::string metrics = training_metrics(world.nodes[i].checkpoints().report());
    for (const char* sample : {"troupe_training_step", "troupe_training_checkpoint_step"})
      BOOST_TEST(metrics.find(std::string(sample) + "{training=\"demo\",driver=\"a\"} 9\n") !=
                     std::string::npos,
                 metrics);
  }
}

namespace {

// Brings rows that follow from how many it has brought before.
struct Rows final : SavedActor {
  std::int64_t next = 0;
  void receive(std::span<const Tensor>, std::span<Tensor> out) override {
    out[0] = small_rows(next++)[0];
  }
  SavedValues save() const override { return {{"next", Tensor::scalar(next)}}; }
  void load(const SavedValues& values) override { next = values.at("next").item<std::int64_t>(); }
};
struct Lossy final : NodeActor {
  Rows rows;
  void receive(std::span<const Tensor> in, std::span<Tensor> out) override {
    rows.receive(in, out);
  }
};

// An actor beside the first replica brings rows, which a variable adds up. Its node makes it by its
// name.
template <class Actor>
TrainingProgram fed_by_actor(Graph& g, const collective::Group& group) {
  TrainingProgram p = small_network(g, group);
  const auto there = g.on_device(group.device(0));
  Variable seen = g.variable("seen", DType::f32, {4, 6}, Initializer::constant(0));
  const char* const name = std::is_same_v<Actor, Rows> ? "rows" : "lossy rows";
  static const bool is_registered =
      (register_actor(name, [] { return std::make_unique<Actor>(); }), true);
  BOOST_TEST(is_registered);
  const Expr rows = actor_node<Actor>(g, name, {}, {{DType::f32, Shape{4, 6}}})[0];
  p.fetches.push_back(seen.assign_add(rows * 0.5));
  return p;
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_actor_goes_on_where_its_checkpoint_was) {
  const auto trained = [](World& world, const std::vector<std::int64_t>& ends) {
    for (const std::int64_t end : ends) {
      Training training(world.nodes[0], world.options(), fed_by_actor<Rows>, small_rows);
      training.run(end);
      if (end == 20) break;
      // steps that are lost
      Training lost(world.nodes[0], world.options(), fed_by_actor<Rows>, [&](std::int64_t step) {
        if (step == end + 3) throw Error(Code::cancelled, "lost");
        return small_rows(step);
      });
      BOOST_CHECK_THROW(lost.run(20), Error);
    }
    const NodeFolders all = world.folders({"b", "c"});
    for (const CheckpointId& id : all.all())
      if (id.step == 20) return all.read(id);
    return NamedTensors();
  };
  World undisturbed(3), disturbed(3);
  const NamedTensors wanted = trained(undisturbed, {20}), got = trained(disturbed, {6, 13, 20});
  BOOST_TEST(std::any_of(wanted.begin(), wanted.end(),
                         [](const auto& value) { return value.first == "rows#next"; }));
  check_same_weights(got, {wanted.begin(), wanted.end()});
}

BOOST_AUTO_TEST_CASE(an_actor_that_cannot_be_saved_is_refused_by_name) {
  World world(3);
  Folder one;
  TrainingOptions in_folder = world.options();
  in_folder.folder = one / "c";
  for (const TrainingOptions& options : {world.options(), in_folder}) {
    Training training(world.nodes[0], options, fed_by_actor<Lossy>, small_rows);
    const std::string why = refusal([&] { training.run(1); }, Code::failed_precondition);
    BOOST_TEST(why.find("actor 'lossy rows' cannot be in a checkpoint") != std::string::npos, why);
    BOOST_TEST(training.counters().steps == 0);
  }
}

namespace {

// A table whose rows of a step grow, in so many shards.
template <int shards>
TrainingProgram with_table(Graph& g, const collective::Group& group) {
  const Partitioner by = Partitioner::modulo(shards);
  ShardedVariable table(g, "table", DType::f32, {11, 3}, Initializer::constant(0.5), group, by);
  TrainingProgram p;
  p.feeds = {g.input("ids", DType::i64, {2})};
  p.fetches = {table.scatter_add(p.feeds[0], g.ones(DType::f32, {2, 3}))};
  p.sharded = {{table, by}};
  return p;
}

std::vector<Tensor> ids_of(std::int64_t step) {
  return {Tensor::of<std::int64_t>({step % 11, (step * 3 + 1) % 11}, {2})};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_table_is_restored_onto_another_number_of_shards) {
  World world(3), undisturbed(3);
  Training(world.nodes[0], world.options(), with_table<2>, ids_of).run(7);
  // Other drivers: a name stands for one shape in an engine.
  Training(world.nodes[1], world.options(), with_table<5>, ids_of).run(13);
  Training(world.nodes[2], world.options(), with_table<3>, ids_of).run(20);
  Training(undisturbed.nodes[0], undisturbed.options(), with_table<3>, ids_of).run(20);
  const NamedTensors wanted = undisturbed.folders({"b", "c"}).read({20, 1});
  BOOST_TEST(wanted.size() == 3u);
  check_same_weights(world.folders({"b", "c"}).read({20, 3}), {wanted.begin(), wanted.end()});
}

BOOST_AUTO_TEST_CASE(a_training_without_a_place_for_checkpoints_is_refused) {
  Nodes nodes(2, seeded());
  Training training(nodes[0], {.replicas = kTrainingReplicas, .name = "demo"}, small_network,
                    small_rows);
  const std::string why = refusal([&] { training.run(1); }, Code::failed_precondition);
  BOOST_TEST(why.find("--state DIR") != std::string::npos, why);
  refusal([&] { Training(nodes[0], {.name = "a/b"}, small_network, small_rows); },
          Code::invalid_argument);
  refusal([&] { Training(nodes[0], {}, small_network, small_rows); }, Code::invalid_argument);
  refusal([&] { Training(nodes[0], {.name = "x", .copies = -1}, small_network, small_rows); },
          Code::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
