// Messages between a running query and the operators of a partition on another node, and their
// bytes, which travel as a tensor of u8. Internal to the placed run.
//
//   caller ──PartitionCall──► PartitionHost ──PartitionAnswer──► caller      one at a time
//
//   const Tensor token = tensor_of(call);          // here
//   const auto call = read_call(token);            // there; throws Error (data_loss) for others
//
// Numbers are in the order of bytes of the processor, which is x86-64 on all nodes. Both nodes make
// the plan of the query from its text, and compare it (`plan`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <troupe/actors/events/batch.hpp>
#include <troupe/actors/events/consistency.hpp>
#include <troupe/actors/events/query.hpp>
#include <troupe/actors/events/query_report.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe::events {

/// A batch of one of the streams that enter or leave a partition (`PartitionShape`).
struct StreamBatch {
  std::size_t stream;
  Batch batch;
};

struct PartitionCall {
  enum class Kind : std::uint8_t { open, work, close } kind = Kind::work;
  std::string run = {};  ///< names the partition on its node: caller, run, partition

  // open
  QueryText text = {};
  std::string plan = {};  ///< Query::explain of the whole plan
  std::vector<std::string> nodes = {};
  std::uint64_t partitions = 1;  ///< on each node
  std::uint64_t partition = 0;
  Consistency level = {};  ///< also of `changes_level`

  // work
  std::vector<StreamBatch> batches = {};
  bool wants_reports = false;
  bool changes_level = false;
};

struct PartitionAnswer {
  Code code = Code::ok;
  std::string error = {};  ///< names the operator
  std::vector<StreamBatch> batches = {};
  std::vector<OperatorReport> reports = {};  ///< by operator of the partition, if asked for
  Time effective = kNever, reach = 0;        ///< results of a change of level
};

Tensor tensor_of(const PartitionCall& call);
Tensor tensor_of(const PartitionAnswer& answer);
/// Both throw Error (data_loss) unless the bytes are those of one such message.
PartitionCall read_call(const Tensor& bytes);
PartitionAnswer read_answer(const Tensor& bytes);

}  // namespace troupe::events
