#include <troupe/cluster/checkpoint/local_checkpoints.hpp>

#include <ctime>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {
namespace {

constexpr const char* kNode = "local";

}  // namespace

LocalCheckpoints::LocalCheckpoints(Disk& disk, std::string folder, std::string training)
    : disk_(disk), folder_(std::move(folder)), training_(std::move(training)) {
  if (!is_training_name(training_))
    throw Error(Code::invalid_argument,
                fmt::format("'{}' cannot be the name of a training, which is that of a folder, too",
                            training_));
  disk_.make_folder(folder_);
}

CheckpointId LocalCheckpoints::save(const TensorFile& values, std::int64_t step) {
  const std::string place = fmt::format("{}/{}", folder_, training_);
  disk_.make_folder(place);
  const std::unique_ptr<DiskLock> lock = disk_.lock(place + "/lock");
  CheckpointStore store(disk_, folder_, kNode);  // after the lock: it reads the epochs
  if (driver_.training.empty()) {
    const std::map<std::string, Fence> known = store.fences();
    const auto last = known.find(training_);
    const std::uint64_t epoch = last == known.end() ? 1 : last->second.epoch + 1;
    Fence mine{training_, epoch, fmt::format("local-{}", epoch)};
    store.claim(mine);
    driver_ = std::move(mine);
  }
  Manifest m;
  m.training = training_;
  m.driver = driver_.driver;
  m.id = {step, driver_.epoch};
  m.time = std::time(nullptr);
  m.metadata = values.metadata;
  const std::string shard = shard_name(m.id, 0);
  ShardSums sums = store.write(driver_, shard, values.tensors);
  m.shards.push_back({shard, sums.bytes, std::move(sums.sums), {kNode}});
  for (const auto& [name, value] : values.tensors)
    m.values.push_back({name, value.dtype(), value.shape(), 0});
  store.commit(driver_, m.id, text_of(m));
  return m.id;
}

std::vector<CheckpointId> LocalCheckpoints::all() const {
  return CheckpointStore(disk_, folder_, kNode).checkpoints(training_);
}

TensorFile LocalCheckpoints::read(const CheckpointId& id) const {
  const NodeFolders folders(disk_, {fmt::format("{}/{}", folder_, training_)});
  TensorFile file;
  file.metadata = folders.manifest(id).metadata;
  file.tensors = folders.read(id);
  file.is_checked = true;
  return file;
}

}  // namespace troupe
