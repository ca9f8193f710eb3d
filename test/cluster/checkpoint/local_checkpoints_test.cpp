// Checkpoints of objects with a manifest: restored by edges, read as a training's, and damaged.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <fstream>
#include <memory>
#include <thread>

#include <troupe/autodiff/object_checkpoint.hpp>
#include <troupe/cluster/checkpoint/local_checkpoints.hpp>
#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/disk.hpp>
#include <troupe/test/support/eager_scopes.hpp>
#include <troupe/test/support/temp_directory.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(local_checkpoints_test)

namespace {

struct Layer {
  Variable w;
  void objects(ObjectEdges& to) { to.add("w", w); }
};

// Objects of which two edges lead to one, and their optimizer.
struct Model {
  explicit Model(Eager& e, const std::string& name, double value)
      : tied(std::make_shared<Layer>(
            Layer{e.variable(name, Tensor::of<double>({value, value}, {2}))})) {}
  void objects(ObjectEdges& to) {
    to.add("encoder", tied).add("decoder", tied).add("momentum", momentum);
  }
  std::shared_ptr<Layer> tied;
  Momentum momentum{{.learning_rate = 0.5}};
};

}  // namespace

BOOST_AUTO_TEST_CASE(objects_are_restored_from_a_manifest) {
  const Folder place;
  {
    Eager e;
    Model model(e, "model", 1);
    ObjectCheckpoint checkpoint(e);
    checkpoint.add("model", model);
    LocalCheckpoints files(real_disk(), place / "made", "demo");
    BOOST_TEST(files.all().empty());
    BOOST_TEST(files.save(checkpoint.values(), 10).epoch == 1U);
    model.momentum.apply(Exprs{matrix(e, {2, 4}, {2})}, {model.tied->w});
    BOOST_TEST(files.save(checkpoint.values(), 20).epoch == 1U);
  }
  // a reader of checkpoints of nodes reads it
  const NodeFolders folders(real_disk(), {place / "made/demo"});
  BOOST_REQUIRE_EQUAL(folders.all().size(), 2U);
  const Manifest m = folders.manifest(folders.all()[1]);
  BOOST_TEST(m.values.size() == 2U);
  BOOST_TEST(m.metadata.at("troupe.same:model/decoder") == "model/encoder");
  BOOST_TEST(folders.verify(m) == 1U);

  Eager e;
  Model model(e, "renamed", 0);
  ObjectCheckpoint checkpoint(e);
  checkpoint.add("model", model);
  LocalCheckpoints files(real_disk(), place / "made", "demo");
  BOOST_REQUIRE_EQUAL(files.all().size(), 2U);
  const Restoration r = checkpoint.restore(files.read(files.all().back()));
  BOOST_TEST(r.text() == "");
  BOOST_TEST(numbers(model.tied->w.read()) == (Numbers{0, -1}));
  // one from before the first step has no slots
  const Restoration first = checkpoint.restore(files.read(files.all().front()));
  BOOST_TEST(numbers(model.tied->w.read()) == (Numbers{1, 1}));
  BOOST_REQUIRE_EQUAL(first.missing().size(), 1U);
  // a later driver
  BOOST_TEST(files.save(checkpoint.values(), 30).epoch == 2U);
}

BOOST_AUTO_TEST_CASE(a_save_refuses_the_driver_of_an_older_process) {
  const Folder place;
  // Each has read the folder before the other saves, as two processes that start together.
  LocalCheckpoints first(real_disk(), place / "made", "demo"),
      second(real_disk(), place / "made", "demo");
  const TensorFile values{{{"x", Tensor::of<double>({1, 2}, {2})}}, {}};
  BOOST_TEST(first.save(values, 10).epoch == 1U);
  BOOST_TEST(second.save(values, 10).epoch == 2U);
  BOOST_CHECK_EXCEPTION(first.save(values, 20), Error, [](const Error& error) {
    return says(error, Code::failed_precondition, {"'local-1'", "epoch 1", "end this one"});
  });
  BOOST_TEST(second.save(values, 20).epoch == 2U);
  BOOST_TEST(first.all().size() == 3U);
}

BOOST_AUTO_TEST_CASE(a_save_waits_for_the_lock_of_another_one) {
  const Folder place;
  LocalCheckpoints files(real_disk(), place / "made", "demo");
  const TensorFile values{{{"x", Tensor::of<double>({1, 2}, {2})}}, {}};
  files.save(values, 10);
  auto lock = real_disk().lock(place / "made/demo/lock");
  std::atomic<bool> has_saved{false};
  std::thread other([&] {
    files.save(values, 20);
    has_saved = true;
  });
  BOOST_TEST(files.all().size() == 1U);
  BOOST_TEST(!has_saved);
  lock.reset();
  other.join();
  BOOST_TEST(files.all().size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_damaged_shard_restores_nothing) {
  const Folder place;
  Eager e;
  Model model(e, "model", 1);
  ObjectCheckpoint checkpoint(e);
  checkpoint.add("model", model);
  LocalCheckpoints files(real_disk(), place / "made", "demo");
  const CheckpointId id = files.save(checkpoint.values(), 10);
  {
    std::fstream shard(place / ("made/demo/" + shard_name(id, 0)),
                       std::ios::in | std::ios::out | std::ios::binary);
    shard.seekp(-1, std::ios::end);
    shard.put('\x7f');
  }
  model.tied->w.assign(e.constant(Tensor::of<double>({7, 7}, {2})));
  BOOST_CHECK_EXCEPTION(checkpoint.restore(files.read(id)), Error, [](const Error& error) {
    return says(error, Code::data_loss, {"step-10.epoch-1.shard-0.safetensors"});
  });
  BOOST_TEST(numbers(model.tied->w.read()) == (Numbers{7, 7}));
  BOOST_CHECK_THROW(LocalCheckpoints(real_disk(), place / "made", "no/name"), Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
