// The weights of the small training, undisturbed, and how others compare with them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <boost/test/unit_test.hpp>

#include <troupe/cluster/training/checkpoint_folder.hpp>
#include <troupe/test/support/cluster/small_training.hpp>
#include <troupe/test/support/temp_directory.hpp>

namespace troupe::test {

/// The weights after `steps` steps of one process alone, by an engine of this seed.
inline std::map<std::string, Tensor> undisturbed_weights(ClusterNode& node, std::int64_t steps) {
  Folder folder;
  Training training(node, {.replicas = kTrainingReplicas, .folder = folder / "c"}, small_network,
                    small_rows);
  training.run(steps);
  const TensorFile file = CheckpointFolder(folder / "c").read(steps);
  return {file.tensors.begin(), file.tensors.end()};
}

inline void check_same_weights(const NamedTensors& got,
                               const std::map<std::string, Tensor>& wanted) {
  BOOST_REQUIRE(got.size() == wanted.size());
  for (const auto& [name, value] : got)
    BOOST_TEST(identical(value, wanted.at(name)), name << " differs");
}

}  // namespace troupe::test
