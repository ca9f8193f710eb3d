// Not under tsan: it has one thread.
// One node's checkpoints on its disk: damage at each byte, faulty disks, and drivers' epochs.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/cluster/checkpoint/checkpoint_store.hpp>
#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/crc64.hpp>
#include <troupe/test/support/cluster/faulty_disk.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(checkpoint_store_test)

namespace {

const Fence kFirst{"demo", 1, "a"}, kSecond{"demo", 2, "b"};

NamedTensors values_of(float first, std::int64_t more = 0) {
  NamedTensors all{{"b", Tensor::of<float>({first, 2}, {2})}};
  if (more > 0) all.emplace_back("w", Tensor::zeros(DType::f32, Shape{more}));
  return all;
}

// A checkpoint of one shard, with its manifest.
Manifest write(CheckpointStore& store, const Fence& fence, std::int64_t step,
               const NamedTensors& values) {
  Manifest m;
  m.training = fence.training;
  m.driver = fence.driver;
  m.id = {step, fence.epoch};
  m.time = 1'700'000'000;
  m.metric = 0.25;
  ShardSums sums = store.write(fence, shard_name(m.id, 0), values);
  m.shards.push_back({shard_name(m.id, 0), sums.bytes, std::move(sums.sums), {"a"}});
  for (const auto& [name, value] : values)
    m.values.push_back({name, value.dtype(), value.shape(), 0});
  store.commit(fence, m.id, text_of(m));
  return m;
}

bool names(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_checkpoint_is_read_as_it_was_written) {
  Folder place;
  CheckpointStore store(real_disk(), place / "made", "a");
  store.claim(kFirst);
  const Manifest m = write(store, kFirst, 40, values_of(3));
  const NodeFolders folders(real_disk(), {place / "made/demo"});
  BOOST_TEST((folders.all() == std::vector<CheckpointId>{{40, 1}}));
  const Manifest read = folders.manifest({40, 1});
  BOOST_TEST(text_of(read) == text_of(m));
  BOOST_TEST(*read.metric == 0.25);
  BOOST_TEST(folders.read({40, 1})[0].second.at(0) == 3);
  // any tool reads a shard
  BOOST_TEST(load_safetensors(place / ("made/demo/" + shard_name({40, 1}, 0))).at("b").at(0) == 3);
}

BOOST_AUTO_TEST_CASE(damage_at_any_byte_is_refused_by_file_and_chunk) {
  Folder place;
  CheckpointStore store(real_disk(), place.path(), "a");
  store.claim(kFirst);
  write(store, kFirst, 40, values_of(3));
  const NodeFolders folders(real_disk(), {place / "demo"});
  for (const std::string& file : {manifest_name({40, 1}), shard_name({40, 1}, 0)}) {
    const std::string path = place / ("demo/" + file), whole = read_file(path);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 ? 0x01 : 0x80));
      write_file(path, damaged);
      const std::string why = refusal([&] { folders.read({40, 1}); }, Code::data_loss);
      BOOST_TEST((names(why, file) && names(why, "chunk 0")), i << ": " << why);
    }
    for (const std::size_t length : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
      write_file(path, whole.substr(0, length));
      const std::string why = refusal([&] { folders.read({40, 1}); }, Code::data_loss);
      BOOST_TEST(names(why, file), why);
    }
    write_file(path, whole + "x");
    refusal([&] { folders.read({40, 1}); }, Code::data_loss);
    write_file(path, whole);
    BOOST_TEST(folders.read({40, 1}).size() == 1u);
  }
}

BOOST_AUTO_TEST_CASE(the_damaged_chunk_of_a_large_shard_is_named) {
  Folder place;
  FaultyDisk disk;
  CheckpointStore store(disk, place.path(), "a");
  store.claim(kFirst);
  const Manifest m = write(store, kFirst, 1, values_of(1, 700'000));  // 2.8 MB
  BOOST_TEST(m.shards[0].sums.size() == 3u);
  const auto open = [&](const std::string&, const ShardEntry& shard) {
    return store.open("demo", shard.file);
  };
  BOOST_TEST(read_checkpoint(m, open, {}).size() == 2u);
  for (const std::uint64_t at : {std::uint64_t{7}, kCheckpointChunk - 1, kCheckpointChunk,
                                 2 * kCheckpointChunk + 5, m.shards[0].bytes - 1}) {
    disk.flipped = static_cast<std::int64_t>(at);
    std::vector<std::string> lines;
    const std::string why = refusal(
        [&] { read_checkpoint(m, open, [&](const std::string& line) { lines.push_back(line); }); },
        Code::data_loss);
    BOOST_TEST(names(why, "chunk " + std::to_string(at / kCheckpointChunk)), why);
    BOOST_TEST(lines.size() == 1u);
  }
}

BOOST_AUTO_TEST_CASE(a_copy_takes_the_place_of_a_damaged_shard) {
  Folder place;
  CheckpointStore store(real_disk(), place / "x", "a"), copy(real_disk(), place / "y", "b");
  store.claim(kFirst);
  copy.claim(kFirst);
  write(store, kFirst, 40, values_of(3));
  write(copy, kFirst, 40, values_of(3));
  const std::string path = place / ("x/demo/" + shard_name({40, 1}, 0));
  std::string damaged = read_file(path);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write_file(path, damaged);
  refusal([&] { NodeFolders(real_disk(), {place / "x/demo"}).read({40, 1}); }, Code::data_loss);
  const NodeFolders both(real_disk(), {place / "x/demo", place / "y/demo"});
  BOOST_TEST(both.read({40, 1})[0].second.at(0) == 3);
  refusal([&] { static_cast<void>(both.verify(both.manifest({40, 1}))); }, Code::data_loss);
  std::filesystem::remove(path);
  BOOST_TEST(both.read({40, 1})[0].second.at(0) == 3);
  BOOST_TEST(both.verify(both.manifest({40, 1})) == 1u);
}

BOOST_AUTO_TEST_CASE(a_faulty_disk_leaves_the_checkpoint_before) {
  Folder place;
  FaultyDisk disk;
  CheckpointStore store(disk, place.path(), "a");
  store.claim(kFirst);
  write(store, kFirst, 1, values_of(1));
  const NodeFolders folders(disk, {place / "demo"});
  const auto is_as_before = [&] {
    BOOST_TEST((folders.all() == std::vector<CheckpointId>{{1, 1}}));
    BOOST_TEST(folders.read({1, 1})[0].second.at(0) == 1);
  };
  // The disk is full after each number of bytes that a checkpoint takes.
  bool is_written = false;
  for (std::int64_t room = 0; !is_written && room < 4000; room += 50) {
    disk.room = room;
    try {
      write(store, kFirst, 2, values_of(2));
      is_written = true;
    } catch (const Error& e) {
      BOOST_TEST((e.code() == Code::resource_exhausted), e.what());
      is_as_before();
    }
  }
  BOOST_TEST(is_written);
  disk.room = INT64_MAX;
  store.keep_only(kFirst, {{1, 1}, {2, 1}});
  disk.is_read_only = true;
  refusal([&] { write(store, kFirst, 3, values_of(3)); }, Code::failed_precondition);
  refusal([&] { store.keep_only(kFirst, {{2, 1}}); }, Code::failed_precondition);
  disk.is_read_only = false;
  // A torn file is refused when it is read, wherever it was torn.
  for (std::int64_t bytes = 0; bytes < 200; bytes += 7) {
    disk.torn_after = bytes;
    write(store, kFirst, 4, values_of(4));
    disk.torn_after = -1;
    refusal([&] { folders.read({4, 1}); }, Code::data_loss);
  }
  BOOST_TEST(folders.read({1, 1})[0].second.at(0) == 1);
}

BOOST_AUTO_TEST_CASE(an_earlier_driver_is_refused_naming_both) {
  Folder place;
  {
    CheckpointStore store(real_disk(), place.path(), "n");
    store.claim(kFirst);
    store.claim(kFirst);  // again, as when the program is placed anew
    write(store, kFirst, 1, values_of(1));
    store.claim(kSecond);
    for (const auto& act : std::vector<std::function<void()>>{
             [&] { store.claim(kFirst); }, [&] { store.check(kFirst); },
             [&] { write(store, kFirst, 2, values_of(2)); },
             [&] {
               store.commit(kFirst, {2, 1}, "{}");
             },
             [&] { store.keep_only(kFirst, {}); },
             [&] {
               store.claim({"demo", 2, "c"});
             }}) {
      const std::string why = refusal(act, Code::failed_precondition);
      BOOST_TEST((names(why, "'b'") && names(why, "epoch 2") && names(why, "node 'n'")), why);
    }
    write(store, kSecond, 2, values_of(2));
    store.check({"other", 1, "c"});
  }
  // The epoch outlives the node, and so does it if its file is damaged or lost.
  CheckpointStore again(real_disk(), place.path(), "n");
  BOOST_TEST(again.fences().at("demo").driver == "b");
  refusal([&] { again.check(kFirst); }, Code::failed_precondition);
  for (const char* text : {"", "2 b\n", "1 a\n0000000000000000\n"}) {
    write_file(place / "demo/epoch", text);
    CheckpointStore damaged(real_disk(), place.path(), "n");
    BOOST_TEST(damaged.fences().at("demo").epoch == 2u);
    refusal([&] { damaged.check(kFirst); }, Code::failed_precondition);
  }
}

BOOST_AUTO_TEST_CASE(store_removes_checkpoints_that_no_rule_keeps) {
  Folder place;
  CheckpointStore store(real_disk(), place.path(), "a");
  store.claim(kFirst);
  for (const std::int64_t step : {1, 2, 3, 4}) write(store, kFirst, step, values_of(1));
  store.write(kFirst, shard_name({2, 1}, 1), values_of(1));  // without a manifest
  store.write(kFirst, shard_name({5, 1}, 0), values_of(1));  // a checkpoint that is being written
  write_file(place / "demo/notes.txt", "of a user");
  BOOST_TEST(store.keep_only(kFirst, {{1, 1}, {4, 1}}) == 5u);
  BOOST_TEST((store.checkpoints("demo") == std::vector<CheckpointId>{{1, 1}, {4, 1}}));
  BOOST_TEST(std::filesystem::exists(place / ("demo/" + shard_name({5, 1}, 0))));
  BOOST_TEST(std::filesystem::exists(place / "demo/notes.txt"));
  BOOST_TEST(store.keep_only(kFirst, {}) == 0u);
}

BOOST_AUTO_TEST_CASE(names_that_are_no_files_of_it_are_refused) {
  Folder place;
  CheckpointStore store(real_disk(), place.path(), "a");
  for (const char* name : {"", ".", "..", "a/b", "x y", ".hidden"})
    refusal([&] { store.claim({name, 1, "a"}); }, Code::invalid_argument);
  store.claim(kFirst);
  for (const char* name : {"", "epoch", "../x", "step-1.epoch-1.json", "step-01.epoch-1.shard-0",
                           "step-1.epoch-1.shard-0.safetensors/../../../x"}) {
    refusal([&] { store.write(kFirst, name, values_of(1)); }, Code::invalid_argument);
    refusal([&] { store.open("demo", name); }, Code::invalid_argument);
  }
  refusal([&] { store.open("../demo", shard_name({1, 1}, 0)); }, Code::invalid_argument);
  refusal([&] { store.open("demo", shard_name({1, 1}, 0)); }, Code::not_found);
  CheckpointStore none(real_disk(), "", "b");
  none.claim(kFirst);
  BOOST_TEST(names(refusal(
                       [&] {
                         none.write(kFirst, shard_name({1, 1}, 0), values_of(1));
                       },
                       Code::failed_precondition),
                   "--state DIR"));
}

BOOST_AUTO_TEST_CASE(a_driver_that_no_node_accepted_writes_nothing) {
  Folder place;
  CheckpointStore store(real_disk(), place / "made", "a");
  store.claim(kFirst);
  for (const char* training : {"", ".", "..", "../../x", "demo/"}) {
    const Fence fence{training, 1, "a"};
    refusal([&] { write(store, fence, 1, values_of(1)); }, Code::invalid_argument);
    refusal([&] { store.commit(fence, {1, 1}, "{}"); }, Code::invalid_argument);
    refusal([&] { store.keep_only(fence, {{1, 1}}); }, Code::invalid_argument);
  }
  const std::string why = refusal(
      [&] {
        write(store, {"other", 1, "a"}, 1, values_of(1));
      },
      Code::failed_precondition);
  BOOST_TEST(names(why, "claim it first"), why);
  BOOST_TEST(!std::filesystem::exists(place / "made/other"));
  // Files of an epoch that is still to come.
  refusal(
      [&] {
        store.write(kFirst, shard_name({1, 2}, 0), values_of(1));
      },
      Code::invalid_argument);
  refusal([&] { store.commit(kFirst, {1, 2}, "{}"); }, Code::invalid_argument);
  for (const Fence& fence : std::vector<Fence>{{"demo", 0, "a"},
                                               {"demo", UINT64_MAX, "a"},
                                               {"demo", 2, "a\nb"},
                                               {"demo", 2, std::string(300, 'a')}})
    refusal([&] { store.claim(fence); }, Code::invalid_argument);
  BOOST_TEST(store.fences().at("demo").epoch == 1u);
}

BOOST_AUTO_TEST_CASE(a_node_with_a_full_disk_obeys_the_later_driver) {
  Folder place;
  FaultyDisk disk;
  CheckpointStore store(disk, place.path(), "a");
  store.claim(kFirst);
  disk.room = 0;
  refusal([&] { store.claim(kSecond); }, Code::resource_exhausted);
  refusal([&] { store.check(kFirst); }, Code::failed_precondition);
  store.check(kSecond);
}

BOOST_AUTO_TEST_CASE(a_manifest_has_a_checksum_for_each_chunk) {
  Manifest m;
  m.id = {1, 1};
  for (const std::uint64_t bytes : {std::uint64_t{1}, kCheckpointChunk + 1, UINT64_MAX}) {
    m.shards = {{shard_name(m.id, 0), bytes, {}, {"a"}}};
    BOOST_TEST(
        names(refusal([&] { manifest_of(text_of(m), "x"); }, Code::data_loss), "0 checksums"));
  }
}

BOOST_AUTO_TEST_CASE(a_manifest_of_a_newer_version_is_refused) {
  std::string newer = text_of(Manifest{});
  static_cast<void>(manifest_of(newer, "x"));
  const std::size_t at = newer.find("\"format\":1"), sum = newer.find(",\"crc64\":\"");
  BOOST_REQUIRE((at != std::string::npos && sum != std::string::npos));
  newer[at + 9] = '2';
  refusal([&] { manifest_of(newer, "x"); }, Code::data_loss);
  newer.replace(sum + 10, 16, fmt::format("{:016x}", crc64(newer.data(), sum)));
  BOOST_TEST(names(refusal([&] { manifest_of(newer, "x"); }, Code::unimplemented), "format 2"));
}

BOOST_AUTO_TEST_SUITE_END()
