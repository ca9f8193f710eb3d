// Answers to CheckpointRequest, as the bytes of a tensor.
//
//   answer.value = packed(report);                     // at the node that is asked
//   auto report = unpacked_as<TrainingsReport>(reply.value);
//
// Threads: any. A malformed answer throws data_loss.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <troupe/cluster/checkpoint/manifest.hpp>
#include <troupe/cluster/protocol/archive.hpp>

namespace troupe {

/// How far a training is, as its driver has reported it last.
struct DriverProgress {
  std::int64_t step = 0;         // steps that are done
  std::int64_t steps = 0;        // until it ends
  std::int64_t checkpoint = -1;  // step of the last one; -1: none
  std::int64_t recoveries = 0;
  std::int64_t time_ns = 0;  // time of the report, since the Unix epoch, by the driver's clock
  std::string state = {};    // trains, recovers, ended; empty: nothing was reported
  std::vector<std::string> nodes = {};  // with replicas
};

struct TrainingsReport {
  struct Entry {
    std::string training, driver;  // driver: empty if only its files are known
    std::uint64_t epoch = 0;
    std::vector<CheckpointId> checkpoints;  // with a manifest on this node, in order
    DriverProgress progress;
  };
  bool has_folder = false;  // the node keeps checkpoints
  std::vector<Entry> trainings;
};

struct WrittenShard {
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> sums;
  std::vector<std::string> holders;
  std::vector<std::string> failed;  // a node that should have been one, and why not
};

template <class A>
void fields(A& a, CheckpointId& id) {
  a(id.step), a(id.epoch);
}
template <class A>
void fields(A& a, DriverProgress& p) {
  a(p.step), a(p.steps), a(p.checkpoint), a(p.recoveries), a(p.time_ns), a(p.state), a(p.nodes);
}
template <class A>
void fields(A& a, TrainingsReport::Entry& e) {
  a(e.training), a(e.driver), a(e.epoch), a(e.checkpoints), a(e.progress);
}
template <class A>
void fields(A& a, TrainingsReport& r) {
  a(r.has_folder), a(r.trainings);
}
template <class A>
void fields(A& a, WrittenShard& s) {
  a(s.bytes), a(s.sums), a(s.holders), a(s.failed);
}

inline Tensor bytes_tensor(const void* data, std::size_t bytes) {
  Tensor t = Tensor::empty(DType::u8, Shape{static_cast<std::int64_t>(bytes)});
  if (bytes > 0) std::memcpy(t.raw_mutable(), data, bytes);
  return t;
}
inline std::string text_of(const Tensor& bytes) {
  if (!bytes.has_value() || bytes.dtype() != DType::u8) MessageReader::malformed("no bytes");
  return {static_cast<const char*>(bytes.raw()), bytes.bytes()};
}

template <class T>
Tensor packed(const T& x) {
  MessageWriter w;
  w(x);
  const Message m = w.take();
  return bytes_tensor(m.head.data(), m.head.size());
}
template <class T>
T unpacked_as(const Tensor& bytes) {
  const std::string text = text_of(bytes);
  Message m;
  const auto* head = reinterpret_cast<const std::byte*>(text.data());
  m.head.assign(head, head + text.size());
  MessageReader r(m);
  T x;
  r(x);
  r.end();
  return x;
}

}  // namespace troupe
