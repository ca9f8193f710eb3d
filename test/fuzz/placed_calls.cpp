// libFuzzer: calls of placed partitions, as bytes from another node. Bytes are a call or are
// refused; a call is answered, and the answer's bytes are those of an equal one. Instruments:
// actors/events/placed_messages.cpp actors/events/batch.cpp actors/events/matcher.cpp
// actors/events/match_replay.cpp actors/events/alter_lifetime.cpp
#include <troupe/actors/events/partition_host.hpp>

#include <cstring>

#include <troupe/actors/events/language.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::events;
using namespace troupe::test;

namespace {

const Schema& schema() {
  static const Schema all{{"k", Type::integer}, {"v", Type::real}, {"name", Type::text}};
  return all;
}

/// A call that opens the partition "r".
const PartitionCall& open_call() {
  static const PartitionCall made = [] {
    PartitionCall call;
    call.kind = PartitionCall::Kind::open;
    call.run = "r";
    call.text = {
        "EVENT m WHEN UNLESS(SEQUENCE(A x, B y FIRST CONSUME, 10), C z, 4) WHERE "
        "CorrelationKey(k, EQUAL) AND x.v > 1 OUTPUT x.name AS name #[4, 50)",
        {{"A", schema()}, {"B", schema()}, {"C", schema()}},
        1};
    call.nodes = {"b"};
    call.plan = placed(parse_query(call.text.text, call.text.types), call.nodes, 1).explain();
    return call;
  }();
  return made;
}

Tensor tensor_of_bytes(const std::string& bytes) {
  Tensor tensor = Tensor::empty(DType::u8, Shape{static_cast<std::int64_t>(bytes.size())});
  if (!bytes.empty()) std::memcpy(tensor.raw_mutable(), bytes.data(), bytes.size());
  return tensor;
}

std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  seed(bytes_of(tensor_of(open_call())));
  for (std::size_t stream = 0; stream < 3; ++stream) {
    PartitionCall call;
    call.run = "r";
    call.wants_reports = call.changes_level = stream == 1;
    Batch batch(schema());
    for (Time t = 0; t < 4; ++t)
      batch.insert(
          static_cast<Key>(t), t, t + 3,
          {events::Value(std::int64_t{1}), events::Value(2.5), events::Value(std::string("n"))});
    batch.shrink(
        1, 1, 2, 4,
        {events::Value(std::int64_t{1}), events::Value(2.5), events::Value(std::string("n"))});
    batch.guarantee = 0;
    call.batches = {{stream, batch}, {(stream + 1) % 3, batch}};
    seed(bytes_of(tensor_of(call)));
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  PartitionCall call;
  try {
    call = read_call(tensor_of_bytes(bytes));
  } catch (const Error&) { return 0; }
  PartitionHost host;
  demand(host.call(open_call()).code == Code::ok);
  const std::string answer = bytes_of(tensor_of(host.call(std::move(call))));
  demand(bytes_of(tensor_of(read_answer(tensor_of_bytes(answer)))) == answer);
  return 0;
}
