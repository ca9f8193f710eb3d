#include <troupe/actors/events/placed_messages.hpp>

#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace troupe::events {
namespace {

/// Appends values to a text of bytes.
class PlacedWriter {
 public:
  template <class T>
  void operator()(const T& value) requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    append(&value, sizeof(T));
  }
  void operator()(const std::string& text) {
    (*this)(std::uint64_t{text.size()});
    append(text.data(), text.size());
  }
  template <class T>
  void operator()(const std::vector<T>& values) {
    (*this)(std::uint64_t{values.size()});
    if constexpr (std::is_arithmetic_v<T>) append(values.data(), values.size() * sizeof(T));
    else
      for (const T& value : values) (*this)(value);
  }
  template <class T>
  void operator()(const T& value) requires std::is_class_v<T> {
    placed_fields(*this, value);
  }

  Tensor tensor() const {
    return Tensor::of(
        std::span(reinterpret_cast<const std::uint8_t*>(bytes_.data()), bytes_.size()),
        Shape{static_cast<std::int64_t>(bytes_.size())});
  }

 private:
  void append(const void* from, std::size_t n) {
    if (n > 0) bytes_.append(static_cast<const char*>(from), n);
  }
  std::string bytes_;
};

/// Takes values from bytes. Throws Error (data_loss) where they end early.
class PlacedReader {
 public:
  explicit PlacedReader(const Tensor& tensor)
      : at_(reinterpret_cast<const char*>(tensor.data<std::uint8_t>())), left_(tensor.bytes()) {}

  template <class T>
  void operator()(T& value) requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    take(&value, sizeof(T));
  }
  void operator()(bool& value) {
    std::uint8_t byte = 0;
    (*this)(byte);
    value = byte != 0;
  }
  void operator()(std::string& text) {
    text.resize(count(1));
    take(text.data(), text.size());
  }
  template <class T>
  void operator()(std::vector<T>& values) {
    constexpr bool is_number = std::is_arithmetic_v<T>;
    const std::size_t n = count(is_number ? sizeof(T) : 1);
    if constexpr (is_number) {
      values.resize(n);
      take(values.data(), n * sizeof(T));
    } else {
      values.clear();
      for (std::size_t i = 0; i < n; ++i) (*this)(values.emplace_back());
    }
  }
  template <class T>
  void operator()(T& value) requires std::is_class_v<T> {
    placed_fields(*this, value);
  }

  void end() const {
    if (left_ > 0) refuse();
  }
  [[noreturn]] static void refuse() {
    throw Error(Code::data_loss,
                "a message of a placed query has other bytes than this version of Troupe writes; "
                "install one version on all nodes");
  }

 private:
  /// Takes the count of elements of at least `bytes` each, which must be there.
  std::size_t count(std::size_t bytes) {
    std::uint64_t n = 0;
    (*this)(n);
    if (n > left_ / bytes) refuse();
    return static_cast<std::size_t>(n);
  }
  void take(void* to, std::size_t n) {
    if (n > left_) refuse();
    if (n > 0) std::memcpy(to, at_, n);
    at_ += n;
    left_ -= n;
  }

  const char* at_;
  std::size_t left_;
};

// Each `placed_fields` of a template serves both directions: the value is const for a writer.

template <class T, class U>
concept PlacedEither = std::is_same_v<std::remove_const_t<T>, U>;

void placed_fields(PlacedWriter& bytes, const Column& column) {
  bytes(static_cast<std::uint8_t>(column.index()));
  std::visit([&](const auto& values) { bytes(values); }, column);
}
void placed_fields(PlacedReader& bytes, Column& column) {
  std::uint8_t type = 0;
  bytes(type);
  if (type > static_cast<std::uint8_t>(Type::text)) PlacedReader::refuse();
  column = column_of(static_cast<Type>(type));
  std::visit([&](auto& values) { bytes(values); }, column);
}

void placed_fields(auto& bytes, PlacedEither<Batch> auto& batch) {
  bytes(batch.key), bytes(batch.begin), bytes(batch.end), bytes(batch.old_end);
  bytes(batch.columns), bytes(batch.guarantee);
}

void placed_fields(auto& bytes, PlacedEither<StreamBatch> auto& of) {
  bytes(of.stream), bytes(of.batch);
}

void placed_fields(auto& bytes, PlacedEither<Field> auto& field) {
  bytes(field.name), bytes(field.type);
}

void placed_fields(PlacedWriter& bytes, const Schema& schema) { bytes(schema.fields()); }
void placed_fields(PlacedReader& bytes, Schema& schema) {
  std::vector<Field> all;
  bytes(all);
  for (const Field& field : all)
    if (field.type > Type::text) PlacedReader::refuse();
  schema = Schema(std::move(all));
}

void placed_fields(auto& bytes, PlacedEither<EventType> auto& type) {
  bytes(type.name), bytes(type.schema);
  bytes(type.options.inserts_only), bytes(type.options.idle_after);
}

void placed_fields(auto& bytes, PlacedEither<QueryText> auto& text) {
  bytes(text.text), bytes(text.types), bytes(text.second);
}

void placed_fields(auto& bytes, PlacedEither<Consistency> auto& level) {
  bytes(level.blocking), bytes(level.memory);
}

void placed_fields(auto& bytes, PlacedEither<PartitionCall> auto& call) {
  bytes(call.kind), bytes(call.run);
  bytes(call.text), bytes(call.plan), bytes(call.nodes), bytes(call.partitions);
  bytes(call.partition), bytes(call.level);
  bytes(call.batches), bytes(call.wants_reports), bytes(call.changes_level);
}

void placed_fields(auto& bytes, PlacedEither<Counters> auto& c) {
  bytes(c.name), bytes(c.events_in), bytes(c.retractions_in), bytes(c.events_out);
  bytes(c.retractions_out), bytes(c.blocked), bytes(c.blocking), bytes(c.state);
  bytes(c.peak_state), bytes(c.state_bytes), bytes(c.peak_bytes), bytes(c.clipped);
  bytes(c.dropped), bytes(c.refused), bytes(c.complaints);
}

void placed_fields(auto& bytes, PlacedEither<OperatorReport> auto& report) {
  bytes(report.counters), bytes(report.tokens), bytes(report.busy_ns), bytes(report.taken);
}

void placed_fields(auto& bytes, PlacedEither<PartitionAnswer> auto& answer) {
  bytes(answer.code), bytes(answer.error), bytes(answer.batches), bytes(answer.reports);
  bytes(answer.effective), bytes(answer.reach);
}

template <class Message>
Tensor placed_bytes(const Message& message) {
  PlacedWriter bytes;
  bytes(message);
  return bytes.tensor();
}

template <class Message>
Message read_placed(const Tensor& tensor) {
  PlacedReader bytes(tensor);
  Message message;
  bytes(message);
  bytes.end();
  for (const StreamBatch& of : message.batches) {
    const Batch& b = of.batch;
    bool is_whole = b.begin.size() == b.size() && b.end.size() == b.size() &&
                    b.old_end.size() == b.size() && b.size() <= Batch::kMost;
    for (const Column& column : b.columns)
      is_whole &= std::visit([](const auto& values) { return values.size(); }, column) == b.size();
    if (!is_whole) PlacedReader::refuse();
  }
  return message;
}

}  // namespace

Tensor tensor_of(const PartitionCall& call) { return placed_bytes(call); }
Tensor tensor_of(const PartitionAnswer& answer) { return placed_bytes(answer); }
PartitionCall read_call(const Tensor& bytes) { return read_placed<PartitionCall>(bytes); }
PartitionAnswer read_answer(const Tensor& bytes) { return read_placed<PartitionAnswer>(bytes); }

}  // namespace troupe::events
