// Devices of other nodes, as eager scopes use them. A tensor of such a device is a handle: the
// elements stay on the node until they are read.
//
//   auto there = e.on_device("/node:w1/cpu:0");
//   Expr y = matmul(x, w);       // sends a step, and returns a handle
//   Tensor t = e.on_host(y);     // waits, and brings the elements here
//
// Work runs there in the order of its stream, behind the caller. An op that fails fails its
// outputs: reading one of them, or a value computed from it, throws an error that names the op and
// its line. The outputs of a lost node throw errors that name the node.
// Threads: any; a stream belongs to one scope. Ownership: the host of eager scopes owns the device.
// Interface alone: cluster/node/remote_device.hpp implements it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <troupe/devices/device/kernel.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe::detail {

class RemoteDevice : public Device {
 public:
  bool is_synchronous() const final { return false; }

  /// Returns a kernel that runs the program there, on a stream of this device. Its inputs may be in
  /// the memory of this device or of the host, and may be lists. Runs have the step and the seed of
  /// the kernel's context.
  virtual std::unique_ptr<Kernel> make_kernel(Program program) = 0;
  /// As `make_kernel`, of a traced function, after passes. Runs have steps of the host's engine.
  /// Null: a part of it belongs on another node, so that the host runs it.
  virtual std::unique_ptr<Kernel> stage(const Graph& graph, const std::vector<Edge>& feeds,
                                        const std::vector<Edge>& fetches, Keep keep) = 0;
  /// Names the work that is enqueued on the stream next, for errors. The failure of work with
  /// effects is thrown by the next read on the stream, whatever is read.
  virtual void attribute(Stream& stream, const std::string& what, const Site& site) = 0;
  /// Returns the value on the host. Blocks. Throws the error of the op that yields it, and
  /// unavailable if its node was lost.
  virtual Tensor read(Stream& stream, const Tensor& there) = 0;
  /// Stands for a state that lives there: the same object for the same name.
  virtual Ref<State> state(const StateSpec& spec) = 0;
};

}  // namespace troupe::detail
