// Trainings that apply gradients as they arrive. The gradient of batch i of replica r is one at the
// element (r, i) of the weights, and zero elsewhere: the weights show which gradients were applied,
// and how often.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/parallel/data_parallel.hpp>
#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/cluster/training/queued_gradients.hpp>
#include <troupe/cluster/training/training.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/saved_actor.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::collective;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(arrivals_test)

namespace {

constexpr int kReplicas = 3;
constexpr std::int64_t kBatches = 64;

using Apply = std::function<ArrivalStep(const Group&, const Exprs& losses, const Variable& w)>;
/// Changes a replica's weights on the way to its loss.
using Through = std::function<Expr(Graph&, int replica, const Expr&)>;

Training::Build network_of(Apply apply, bool is_sparse, Through through = {}) {
  return [=](Graph& g, const Group& group) {
    const Variable w =
        g.variable("w", DType::f64, {kReplicas * kBatches}, Initializer::constant(0));
    TrainingProgram p;
    Exprs losses;
    for (int r = 0; r < group.size(); ++r) {
      const auto there = g.on_device(group.device(r));
      p.feeds.push_back(g.input(fmt::format("batch-{}", r), DType::i64, {1}));
      Expr id = p.feeds.back() + static_cast<std::int64_t>(r) * kBatches;
      if (through) id = through(g, r, id);
      // Minus the gradient is added.
      losses.push_back(is_sparse
                           ? -sum(gather(w, id))
                           : -sum(w.read() * cast(one_hot(id, kReplicas * kBatches), DType::f64)));
    }
    p.arrivals = apply(group, losses, w);
    p.fetches = {p.arrivals->loss};
    return p;
  };
}

std::vector<Tensor> batches_of(std::int64_t step) {
  return std::vector<Tensor>(kReplicas, Tensor::of<std::int64_t>({step}, {1}));
}

const Sgd kSum({.learning_rate = 1});
const Apply kAsynchronous = [](const Group& group, const Exprs& losses, const Variable& w) {
  return data_parallel::asynchronous(group, losses, {w}, kSum);
};
Apply with_backups(int backups) {
  return [=](const Group& group, const Exprs& losses, const Variable& w) {
    return data_parallel::with_backups(group, losses, {w}, kSum, backups);
  };
}

struct Result {
  std::vector<double> w;
  std::vector<std::int64_t> counts;
};
Result result_of(Engine& engine) {
  return {engine.get("w").to_vector<double>(),
          engine.get("replicas/arrivals/counts").to_vector<std::int64_t>()};
}

// Each replica's first batches were applied once, and no others.
void check_each_once(const Result& result, std::int64_t steps) {
  std::int64_t all = 0;
  for (std::size_t r = 0; r < kReplicas; ++r) {
    all += result.counts[r];
    for (std::int64_t i = 0; i < kBatches; ++i)
      BOOST_TEST(result.w[r * kBatches + static_cast<std::size_t>(i)] ==
                     (i < result.counts[r] ? 1.0 : 0.0),
                 "batch " << i << " of replica " << r);
  }
  BOOST_TEST(all == steps);
}

// Node c leaves when the batch of a step is first made, while replicas run.
class LeavingNode {
 public:
  LeavingNode(Nodes& nodes, std::int64_t at) : nodes_(nodes), at_(at) {}
  /// Threads: one at a time, as the data of a training.
  auto batches(std::int64_t step) {
    if (step == at_ && !thread_.joinable()) thread_ = std::thread([this] { nodes_.remove(2); });
    return batches_of(step);
  }
  void wait() {
    BOOST_REQUIRE(thread_.joinable());
    thread_.join();
  }

 private:
  Nodes& nodes_;
  const std::int64_t at_;
  std::thread thread_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(asynchronous_training_applies_each_gradient_once) {
  for (const bool is_sparse : {false, true})
    for (const int count : {1, 3}) {
      Nodes nodes(count);
      Folder folder;
      std::vector<std::string> lines;
      Training training(nodes[0],
                        {.replicas = kReplicas,
                         .folder = folder / "checkpoints",
                         .log = [&](const std::string& line) { lines.push_back(line); }},
                        network_of(kAsynchronous, is_sparse), batches_of);
      training.run(25);
      check_each_once(result_of(nodes.engine()), 25);
      training.run(40);
      check_each_once(result_of(nodes.engine()), 40);
      BOOST_TEST(std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
                   return line.find("the results are not reproducible") != std::string::npos;
                 }) == 1);
    }
}

BOOST_AUTO_TEST_CASE(asynchronous_training_goes_on_from_its_folder) {
  Folder folder;
  for (const std::int64_t steps : {12, 31}) {
    Nodes nodes(1);
    Training training(nodes[0],
                      {.replicas = kReplicas, .folder = folder / "checkpoints", .every = 5},
                      network_of(kAsynchronous, false), batches_of);
    training.run(steps);
    check_each_once(result_of(nodes.engine()), steps);
  }
}

// The node leaves while gradients of its replicas are computed, in the queue, or applied.
BOOST_AUTO_TEST_CASE(a_lost_node_loses_no_gradient_and_repeats_none) {
  for (const bool is_asynchronous : {true, false})
    for (const std::int64_t lost_at : {1, 7, 18}) {
      Nodes nodes(3);
      Folder folder;
      LeavingNode leaving(nodes, lost_at);
      const auto data = [&](std::int64_t step) { return leaving.batches(step); };
      Training training(nodes[0],
                        {.replicas = kReplicas,
                         .folder = folder / "checkpoints",
                         .every = 4,
                         .nodes = {"b", "c"}},
                        network_of(is_asynchronous ? kAsynchronous : with_backups(1), false), data);
      training.run(60);
      leaving.wait();
      const Result result = result_of(nodes.engine());
      if (is_asynchronous) {
        check_each_once(result, 60);
        continue;
      }
      for (std::int64_t step = 0; step < 60; ++step) {
        double all = 0;
        for (std::size_t r = 0; r < kReplicas; ++r) {
          const double w = result.w[r * kBatches + static_cast<std::size_t>(step)];
          BOOST_TEST((w == 0 || w == 0.5));
          all += w;
        }
        BOOST_TEST(all == 1, "step " << step);
      }
    }
}

// Variables of three shapes on two devices, with an optimizer that has slots, which one update
// changes; the loss falls.
BOOST_AUTO_TEST_CASE(variables_may_be_on_several_devices) {
  for (const int count : {1, 2})
    for (const bool is_asynchronous : {true, false}) {
      Nodes nodes(count);
      Folder folder;
      const auto build = [=](Graph& g, const Group& group) {
        std::vector<Variable> all;
        for (int i = 0; i < 3; ++i) {
          const auto there = g.on_device(group.device(i % 2));
          all.push_back(
              g.variable(fmt::format("v{}", i), DType::f32, {i + 1, 2}, Initializer::constant(1)));
        }
        TrainingProgram p;
        Exprs losses;
        for (int r = 0; r < group.size(); ++r) {
          const auto there = g.on_device(group.device(r));
          p.feeds.push_back(g.input(fmt::format("batch-{}", r), DType::i64, {1}));
          losses.push_back(sum(square(all[0].read())) + sum(square(all[1].read())) +
                           sum(square(gather(all[2], minimum(p.feeds.back(), 2)))));
        }
        const Adam adam({.learning_rate = 0.05});
        const data_parallel::Options options{.clip_norm = 2};
        p.arrivals = is_asynchronous
                         ? data_parallel::asynchronous(group, losses, all, adam, options)
                         : data_parallel::with_backups(group, losses, all, adam, 1, options);
        p.fetches = {p.arrivals->loss};
        return p;
      };
      Training training(nodes[0], {.replicas = kReplicas, .folder = folder / "checkpoints"}, build,
                        batches_of);
      const float before = training.run(1)[0].item<float>();
      const float after = training.run(30)[0].item<float>();
      BOOST_TEST(after < 0.5f * before);
    }
}

// Replica 2 waits inside its step until the training has ended: no step waits for it.
BOOST_AUTO_TEST_CASE(a_step_does_not_wait_for_more_gradients_than_it_needs) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  Nodes nodes(1);
  Folder folder;
  const Through slow = [released](Graph& g, int replica, const Expr& id) {
    if (replica != 2) return id;
    return actor_node(g, "slow", {id}, {{DType::i64, Shape{1}}},
                      [released](std::span<const Tensor> in, std::span<Tensor> out) {
                        released.wait();
                        out[0] = in[0];
                      },
                      {.blocks = true})[0];
  };
  Training training(nodes[0], {.replicas = kReplicas, .folder = folder / "checkpoints"},
                    network_of(with_backups(1), false, slow), batches_of);
  training.run(20);
  release.set_value();
  const Result result = result_of(nodes.engine());
  BOOST_TEST(result.counts == (std::vector<std::int64_t>{20, 20, 0}),
             boost::test_tools::per_element());
  for (std::size_t step = 0; step < 20; ++step)
    for (std::size_t r = 0; r < kReplicas; ++r)
      BOOST_TEST(result.w[r * kBatches + step] == (r < 2 ? 0.5 : 0.0));
}

BOOST_AUTO_TEST_CASE(an_error_of_a_replica_ends_the_training) {
  for (const Apply& apply : {kAsynchronous, with_backups(0)}) {
    Nodes nodes(1);
    Folder folder;
    const Through failing = [](Graph& g, int replica, const Expr& id) {
      if (replica != 1) return id;
      return actor_node(g, "failing", {id}, {{DType::i64, Shape{1}}},
                        [](std::span<const Tensor> in, std::span<Tensor> out) {
                          if (in[0].at(0) == kBatches + 3)
                            throw Error(Code::invalid_argument, "this batch cannot be used");
                          out[0] = in[0];
                        })[0];
    };
    Training training(nodes[0], {.replicas = kReplicas, .folder = folder / "checkpoints"},
                      network_of(apply, false, failing), batches_of);
    BOOST_TEST(refusal([&] { training.run(1000); }, Code::invalid_argument)
                   .find("this batch cannot be used") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(feeds_that_replicas_do_not_divide_are_refused) {
  Nodes nodes(1);
  Folder folder;
  const auto build = [](Graph& g, const Group& group) {
    TrainingProgram p = network_of(kAsynchronous, false)(g, group);
    p.feeds.push_back(g.input("more", DType::f32, Shape()));
    return p;
  };
  Training training(nodes[0], {.replicas = kReplicas, .folder = folder / "checkpoints"}, build,
                    batches_of);
  BOOST_TEST(refusal([&] { training.run(1); }, Code::invalid_argument) ==
             "Training: a step has 4 feeds for 3 replicas; give as many of each replica, replica "
             "by replica");
}

BOOST_AUTO_TEST_CASE(the_programs_of_a_step_by_arrival_give_no_warning) {
  for (const Apply& apply : {kAsynchronous, with_backups(1)}) {
    std::vector<std::string> warnings;
    Engine engine({.log = [&](const LogRecord& r) {
      if (r.level == LogRecord::Level::warning) warnings.push_back(r.text);
    }});
    Graph g;
    const TrainingProgram p =
        network_of(apply, false)(g, Group("replicas", {"cpu:0", "cpu:1", "cpu:2"}));
    const ArrivalStep& a = *p.arrivals;
    engine.compile(g, {a.ticket}, {a.loss, a.train, a.applied});
    for (std::size_t r = 0; r < kReplicas; ++r)
      engine.compile(g, {p.feeds[r], a.ticket}, {a.sent[r]});
    BOOST_TEST(warnings.empty(), fmt::format("{}", fmt::join(warnings, "\n")));
  }
}

// ---- queues of the program

namespace {

constexpr std::int64_t kItems = 128;

// Gives items one after the other.
struct Items final : SavedActor {
  std::int64_t next = 0;
  void receive(std::span<const Tensor>, std::span<Tensor> out) override {
    out[0] = Tensor::of<std::int64_t>({next++}, {1});
  }
  SavedValues save() const override { return {{"next", Tensor::scalar(next)}}; }
  void load(const SavedValues& values) override { next = values.at("next").item<std::int64_t>(); }
};

enum class From { queue, actor };

// As `network_of`. Each gradient also takes an item from a queue, which `start` fills, or from an
// actor, and is one at the item's element of a second variable.
Training::Build network_with_items(bool is_asynchronous, From from = From::queue,
                                   Through through = {}) {
  static const bool is_registered =
      (register_actor("numbers", [] { return std::make_unique<Items>(); }), true);
  BOOST_REQUIRE(is_registered);
  return [=](Graph& g, const Group& group) {
    const Variable w =
        g.variable("w", DType::f64, {kReplicas * kBatches}, Initializer::constant(0));
    const Variable items = g.variable("items", DType::f64, {kItems}, Initializer::constant(0));
    const Queue left = [&] {
      const auto there = g.on_device(group.device(1));
      return g.fifo_queue("left", {{DType::i64, Shape{1}}}, kItems);
    }();
    const auto next_item = [&] {
      const auto there = g.on_device(group.device(1));
      return from == From::queue ? left.dequeue()[0]
                                 : actor_node<Items>(g, "numbers", {}, {{DType::i64, Shape{1}}})[0];
    };
    TrainingProgram p;
    Exprs losses;
    for (int r = 0; r < group.size(); ++r) {
      const auto there = g.on_device(group.device(r));
      p.feeds.push_back(g.input(fmt::format("batch-{}", r), DType::i64, {1}));
      Expr id = p.feeds.back() + static_cast<std::int64_t>(r) * kBatches;
      if (through) id = through(g, r, id);
      losses.push_back(-sum(gather(w, id)) - sum(gather(items, next_item())));
    }
    p.arrivals = is_asynchronous ? data_parallel::asynchronous(group, losses, {w, items}, kSum)
                                 : data_parallel::with_backups(group, losses, {w, items}, kSum, 1);
    p.fetches = {p.arrivals->loss};
    for (std::int64_t i = 0; from == From::queue && i < kItems; ++i)
      p.start.push_back(left.enqueue({g.constant(Tensor::of<std::int64_t>({i}, {1}))}));
    return p;
  };
}

// Each item of a checkpoint is in one place: a variable, a gradient that waits, or its source.
void check_each_item_once(const NamedTensors& checkpoint) {
  std::vector<int> places(kItems);
  const auto add = [&](const Tensor& item) { ++places.at(static_cast<std::size_t>(item.at(0))); };
  for (const auto& [name, value] : checkpoint) {
    if (name == "items")
      for (std::int64_t i = 0; i < kItems; ++i)
        if (value.at(i) != 0) add(Tensor::scalar(i));
    if (name.starts_with("left#") && name.ends_with(".0")) add(value);
    if (name == "numbers#next")
      for (auto i = value.item<std::int64_t>(); i < kItems; ++i) add(Tensor::scalar(i));
    // ticket, replica, loss, indices and values of w's rows, indices of items' rows
    if (name.starts_with("replicas/arrivals#") && name.ends_with(".5")) add(value);
  }
  for (std::size_t i = 0; i < kItems; ++i)
    BOOST_TEST(places[i] == 1, "item " << i << " is in " << places[i] << " places");
}

}  // namespace

// Each driver begins on new nodes.
BOOST_AUTO_TEST_CASE(queues_and_actors_go_on_where_their_checkpoint_was) {
  for (const int way : {0, 1, 2, 3}) {
    const bool is_in_folder = way % 2 == 0;
    const From from = way < 2 ? From::queue : From::actor;
    Folder folder;
    for (const std::int64_t steps : {7, 19, 31}) {
      Nodes nodes(3, {}, Between::handles, {}, {}, {}, {}, [&](const std::string& node) {
        return Nodes::State{node == "a" ? std::string() : folder / node};
      });
      TrainingOptions options{.replicas = kReplicas, .every = 5};
      (is_in_folder ? options.folder : options.name) = is_in_folder ? folder / "one" : "demo";
      Training training(nodes[0], options, network_with_items(true, from), batches_of);
      training.run(steps);
      check_each_once(result_of(nodes.engine()), steps);
      if (is_in_folder) {
        check_each_item_once(CheckpointFolder(options.folder).read(steps).tensors);
        continue;
      }
      const NodeFolders all(real_disk(), {folder / "b/demo", folder / "c/demo"});
      BOOST_REQUIRE(all.all().back().step == steps);
      check_each_item_once(all.read(all.all().back()));
    }
  }
}

// Replicas are paused between two calls of `run`, and go on with the same queues.
BOOST_AUTO_TEST_CASE(a_later_run_goes_on_with_the_same_queues) {
  Nodes nodes(1);
  Folder folder;
  Training training(nodes[0], {.replicas = kReplicas, .folder = folder / "checkpoints"},
                    network_with_items(true), batches_of);
  for (const std::int64_t steps : {3, 8, 24}) {
    training.run(steps);
    check_each_once(result_of(nodes.engine()), steps);
    check_each_item_once(CheckpointFolder(folder / "checkpoints").read(steps).tensors);
  }
  BOOST_TEST(training.counters().recoveries == 0);
}

// The node that leaves has the queue.
BOOST_AUTO_TEST_CASE(a_lost_node_loses_no_element_of_a_queue) {
  for (const bool is_asynchronous : {true, false})
    for (const std::int64_t lost_at : {1, 9}) {
      Nodes nodes(3);
      Folder folder;
      LeavingNode leaving(nodes, lost_at);
      const auto data = [&](std::int64_t step) { return leaving.batches(step); };
      Training training(nodes[0],
                        {.replicas = kReplicas,
                         .folder = folder / "checkpoints",
                         .every = 4,
                         .nodes = {"b", "c"}},
                        network_with_items(is_asynchronous), data);
      training.run(30);
      leaving.wait();
      const NamedTensors last = CheckpointFolder(folder / "checkpoints").read(30).tensors;
      if (is_asynchronous) {
        check_each_once(result_of(nodes.engine()), 30);
        check_each_item_once(last);
        continue;
      }
      // A gradient that came too late is dropped with its item.
      double all = 0;
      for (const double item : nodes.engine().get("items").to_vector<double>()) {
        BOOST_TEST((item == 0 || item == 0.5));
        all += item;
      }
      BOOST_TEST(all == 30);
    }
}

// Replica 2 waits inside its batch until the training has ended.
BOOST_AUTO_TEST_CASE(a_checkpoint_with_queues_names_a_batch_that_lasts) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  Nodes nodes(1);
  Folder folder;
  const Through slow = [released](Graph& g, int replica, const Expr& id) {
    if (replica != 2) return id;
    return actor_node(g, "slow", {id}, {{DType::i64, Shape{1}}},
                      [released](std::span<const Tensor> in, std::span<Tensor> out) {
                        released.wait();
                        out[0] = in[0];
                      },
                      {.blocks = true})[0];
  };
  std::string log;
  Training training(nodes[0],
                    {.replicas = kReplicas,
                     .folder = folder / "checkpoints",
                     .patience = std::chrono::seconds(0),
                     .log = [&](const std::string& line) { log += line; }},
                    network_with_items(false, From::queue, slow), batches_of);
  const std::string why = refusal([&] { training.run(20); }, Code::deadline_exceeded);
  release.set_value();
  BOOST_TEST(why.find("2 did not end theirs within 0 s") != std::string::npos, why);
  BOOST_TEST(log.find("actor 'slow' cannot be in a checkpoint") != std::string::npos, log);
}

// ---- gradients of a checkpoint

namespace {

using Values = std::map<std::string, Tensor>;

void add_gradient(Values& values, int element, std::int64_t life, std::int64_t batch,
                  std::int64_t replica, float gradient) {
  const auto name_of = [&](int c) { return fmt::format("q#{}.{}", element, c); };
  values[name_of(0)] = Tensor::of<std::int64_t>({life, batch}, {2});
  values[name_of(1)] = Tensor::scalar(replica);
  values[name_of(2)] = Tensor::scalar(gradient);
}

}  // namespace

// Elements 1 and 3 were sent before an earlier recovery.
BOOST_AUTO_TEST_CASE(gradients_of_the_checkpoint_get_the_new_life) {
  Values values;
  values["q#"] = Tensor::scalar<std::uint8_t>(1);
  values["w"] = Tensor::scalar(8.f);
  values[detail::name_of_life("q")] = Tensor::scalar<std::int64_t>(5);
  add_gradient(values, 0, 5, 10, 2, 0.5f);
  add_gradient(values, 1, 4, 10, 2, 1.5f);
  add_gradient(values, 2, 5, 11, 2, 2.5f);
  add_gradient(values, 3, 6, 7, 0, 3.5f);
  add_gradient(values, 4, 5, 3, 1, 4.5f);
  BOOST_TEST(detail::adopt_gradients(values, "q", 3, 9) == (std::vector<std::int64_t>{0, 1, 2}),
             boost::test_tools::per_element());
  const std::int64_t batches[] = {10, 11, 3}, replicas[] = {2, 2, 1};
  const float gradients[] = {0.5f, 2.5f, 4.5f};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto value = [&](int c) { return values.at(fmt::format("q#{}.{}", i, c)); };
    BOOST_TEST(value(0).to_vector<std::int64_t>() == (std::vector<std::int64_t>{9, batches[i]}),
               boost::test_tools::per_element());
    BOOST_TEST(value(1).item<std::int64_t>() == replicas[i]);
    BOOST_TEST(value(2).item<float>() == gradients[i]);
  }
  BOOST_TEST(values.size() == 2u + 3u * 3u);  // and `q#`, `w`
}

BOOST_AUTO_TEST_CASE(a_checkpoint_without_a_life_is_unchanged) {
  Values values;
  add_gradient(values, 0, 5, 10, 2, 0.5f);
  BOOST_TEST(detail::adopt_gradients(values, "q", 3, 9) == (std::vector<std::int64_t>(3)),
             boost::test_tools::per_element());
  BOOST_TEST(values.at("q#0.0").at(0) == 5);
}

BOOST_AUTO_TEST_CASE(an_element_that_is_no_gradient_is_refused) {
  const auto why = [](std::int64_t replica, DType ticket) {
    Values values;
    values[detail::name_of_life("q")] = Tensor::scalar<std::int64_t>(5);
    add_gradient(values, 0, 5, 10, replica, 0.5f);
    values["q#0.0"] = Tensor::zeros(ticket, Shape{2});
    return refusal([&] { detail::adopt_gradients(values, "q", 3, 9); }, Code::data_loss);
  };
  BOOST_TEST(why(3, DType::i64) == "'q#0.0' is of replica 3 of 3");
  BOOST_TEST(why(1, DType::f32) == "'q#0.0' is no gradient");
}

BOOST_AUTO_TEST_SUITE_END()
