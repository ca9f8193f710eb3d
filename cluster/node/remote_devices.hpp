// Devices of other nodes, for the eager scopes of this one (ops/eager/remote_device.hpp). Memory of
// such a device is numbers: the address of a tensor is the number of its value on the other node,
// and freeing it releases that value.
//
//   RemoteDevice& d = devices.device("/node:w1/cpu:0");
//
// Threads: any. Ownership: devices live as long as the node. Tensors and programs may outlive it:
// they share what frees them. Invariant: a full name has one device.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <troupe/cluster/node/eager_calls.hpp>
#include <troupe/ops/eager/remote_device.hpp>

namespace troupe {

class RemoteDevices {
 public:
  explicit RemoteDevices(const NodeParts& node);
  ~RemoteDevices();

  /// Made on first use. Throws not_found for a node that is not there.
  RemoteDevice& device(const std::string& full_name);
  EagerCalls& calls() { return *calls_; }

 private:
  class HandleAllocator;
  class Stream;
  class Program;
  class OfNode;

  const NodeParts node_;
  const std::shared_ptr<EagerCalls> calls_;
  std::mutex mutex_;  // guards devices_
  std::map<std::string, std::unique_ptr<OfNode>> devices_;
};

}  // namespace troupe
