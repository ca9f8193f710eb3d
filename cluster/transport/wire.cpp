#include <troupe/cluster/transport/wire.hpp>

#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <msgpack.hpp>

#include <troupe/cluster/transport/pack_scan.hpp>

namespace troupe::detail::wire {

namespace {

constexpr std::string_view kMagic = "troupe";

enum class Kind : std::uint8_t { hello = 1, welcome, ready, refuse, data, ack, bye, gone };

// ---- writing

/// The packer's output. The packer writes each element by itself, a byte or a few; these bytes are
/// gathered here, and take the memory of `out` once a wire frame.
class Bytes {
 public:
  explicit Bytes(std::vector<std::byte>& out) : out_(out) {}
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  void write(const char* data, std::size_t size) {
    if (size > next_.size() - used_) [[unlikely]]
      return write_through(data, size);
    std::memcpy(next_.data() + used_, data, size);
    used_ += size;
  }
  /// Behind what `out` has; once all is written.
  void spill() {
    out_.insert(out_.end(), next_.begin(), next_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ = 0;
  }

 private:
  void write_through(const char* data, std::size_t size) {
    spill();
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    out_.insert(out_.end(), bytes, bytes + size);
  }

  std::vector<std::byte>& out_;
  std::array<std::byte, 128> next_;  // room for a whole Data header with few messages and tensors
  std::size_t used_ = 0;
};
using Packer = msgpack::packer<Bytes>;

void open(Packer& p, Kind kind, std::uint32_t fields) {
  p.pack_array(1 + fields);
  p.pack_uint8(static_cast<std::uint8_t>(kind));
}
void text(Packer& p, std::string_view s) {
  p.pack_str(static_cast<std::uint32_t>(s.size()));
  p.pack_str_body(s.data(), static_cast<std::uint32_t>(s.size()));
}
void flag(Packer& p, bool value) { value ? p.pack_true() : p.pack_false(); }
void counts(Packer& p, const Received& received) {
  for (const std::uint64_t n : received) p.pack_uint64(n);
}
void reason(Packer& p, const Status& why) {
  p.pack_uint8(static_cast<std::uint8_t>(why.code()));
  text(p, std::string_view(why.message()).substr(0, Limits{}.text_bytes));
}

void secret(Packer& p, const Bulk::Secret& s) {
  p.pack_bin(Bulk::kSecretBytes);
  p.pack_bin_body(reinterpret_cast<const char*>(s.data()), Bulk::kSecretBytes);
}

void pack(Packer& p, const Bulk& b) {
  p.pack_array(5);
  p.pack_uint8(b.kinds);
  text(p, b.host);
  text(p, b.where);
  secret(p, b.ticket);
  secret(p, b.share);
}
void pack(Packer& p, const Hello& h) {
  open(p, h.is_answer ? Kind::welcome : Kind::hello, 12);
  text(p, kMagic);
  p.pack_uint32(h.version);
  text(p, h.info.engine);
  text(p, h.info.name);
  p.pack_uint64(h.info.incarnation);
  text(p, h.info.address);
  p.pack_uint64(h.session);
  flag(p, h.resumes);
  p.pack_uint64(h.window);
  counts(p, h.received);
  pack(p, h.bulk);
}
void pack(Packer& p, const Ready&) { open(p, Kind::ready, 0); }
void pack(Packer& p, const Refuse& r) {
  open(p, Kind::refuse, 4);
  text(p, r.name);
  flag(p, r.redundant);
  reason(p, r.why);
}
void pack(Packer& p, const Data& d, std::size_t messages) {
  open(p, Kind::data, 5);
  p.pack_uint8(static_cast<std::uint8_t>(d.lane));
  p.pack_uint64(d.sequence);
  counts(p, d.received);
  p.pack_array(static_cast<std::uint32_t>(messages));
  for (const MessageType& m : std::span(d.messages).first(messages)) {
    p.pack_array(2);
    p.pack_uint64(m.head_bytes);
    p.pack_array(static_cast<std::uint32_t>(m.tensors.size()));
    for (const TensorType& t : m.tensors) {
      p.pack_array(static_cast<std::uint32_t>(1 + t.shape.rank()));
      p.pack_uint8(static_cast<std::uint8_t>(t.dtype));
      for (const std::int64_t extent : t.shape.dims()) p.pack_int64(extent);
    }
  }
}
void pack(Packer& p, const Data& d) { pack(p, d, d.messages.size()); }
void pack(Packer& p, const Ack& a) {
  open(p, Kind::ack, 2);
  counts(p, a.received);
}
void pack(Packer& p, const Bye& b) {
  open(p, Kind::bye, 4);
  reason(p, b.why);
  counts(p, b.sent);
}
void pack(Packer& p, const Gone&) { open(p, Kind::gone, 0); }

// ---- reading

/// An error in a wire frame; caught in `decode`.
struct Malformed {
  Code code;
  std::string what;
};
[[noreturn]] void refuse_frame(std::string what) {
  throw Malformed{Code::data_loss, std::move(what)};
}

/// Reads the elements of an array one after another; those of an array in it, before what follows
/// that.
class Fields {
 public:
  Fields(PackScan& scan, const char* what) : scan_(scan), what_(what) {
    if (scan_.next_array(left_)) return;
    const PackScan::Element e = scan_.next();
    if (e.kind != PackScan::Kind::array) refuse_frame(fmt::format("{} is not an array", what));
    left_ = e.number;
  }
  std::size_t left() const { return left_; }
  Fields array(const char* what) {
    count();
    return Fields(scan_, what);
  }
  std::uint64_t number(std::uint64_t most = ~std::uint64_t{0}) {
    std::uint64_t n = 0;
    count();
    if (!scan_.next_number(n)) n = next(PackScan::Kind::number, "number").number;
    if (n > most) refuse_frame(fmt::format("{} in {} exceeds {}", n, what_, most));
    return n;
  }
  bool flag() { return element(PackScan::Kind::flag, "flag").number != 0; }
  std::string text(std::uint64_t most) {
    const PackScan::Element e = element(PackScan::Kind::text, "text");
    if (e.bytes.size() > most)
      throw Malformed{Code::resource_exhausted,
                      fmt::format("a text of {} has {} bytes", what_, e.bytes.size())};
    return std::string(reinterpret_cast<const char*>(e.bytes.data()), e.bytes.size());
  }
  Bulk::Secret secret() {
    const PackScan::Element e = element(PackScan::Kind::bytes, "secret");
    if (e.bytes.size() != Bulk::kSecretBytes)
      refuse_frame(fmt::format("a secret of {} is none", what_));
    Bulk::Secret s;
    std::memcpy(s.data(), e.bytes.data(), s.size());
    return s;
  }
  Received received() {
    Received all;
    for (std::uint64_t& n : all) n = number();
    return all;
  }
  Status reason(std::uint64_t most) {
    const auto code = static_cast<Code>(number(static_cast<std::uint64_t>(Code::internal)));
    std::string message = text(most);
    return code == Code::ok ? Status(Code::unavailable, std::move(message))
                            : Status(code, std::move(message));
  }
  void done() const {
    if (left() != 0) refuse_frame(fmt::format("{} has {} fields too many", what_, left()));
  }

 private:
  void count() {
    if (left_ == 0) refuse_frame(fmt::format("{} ends too early", what_));
    --left_;
  }
  PackScan::Element element(PackScan::Kind kind, const char* name) {
    count();
    return next(kind, name);
  }
  PackScan::Element next(PackScan::Kind kind, const char* name) {
    const PackScan::Element e = scan_.next();
    if (e.kind != kind) refuse_frame(fmt::format("a {} of {} is none", name, what_));
    return e;
  }

  PackScan& scan_;
  const char* what_;
  std::size_t left_ = 0;
};

Bulk read_bulk(Fields f, const Limits& limits) {
  Bulk b;
  b.kinds = static_cast<std::uint8_t>(f.number(0xff));
  b.host = f.text(limits.text_bytes);
  b.where = f.text(limits.text_bytes);
  b.ticket = f.secret();
  b.share = f.secret();
  f.done();
  return b;
}

Hello read_hello(Fields& f, bool is_answer, const Limits& limits) {
  Hello h;
  h.is_answer = is_answer;
  if (f.text(kMagic.size()) != kMagic) refuse_frame("a greeting of another protocol");
  h.version = static_cast<std::uint32_t>(f.number(0xffffffff));
  if (h.version != kVersion) return h;  // its fields are that version's affair
  h.info.engine = f.text(limits.text_bytes);
  h.info.name = f.text(limits.text_bytes);
  h.info.incarnation = f.number();
  h.info.address = f.text(limits.text_bytes);
  h.session = f.number();
  h.resumes = f.flag();
  h.window = f.number();
  h.received = f.received();
  h.bulk = read_bulk(f.array("a bulk channel"), limits);
  f.done();
  return h;
}

/// The bytes of a tensor; they and those before, `so_far`, are within the limit.
std::uint64_t bytes_within(const TensorType& t, std::uint64_t so_far, const Limits& limits) {
  std::uint64_t elements = 1, bytes = 0, total = 0;
  for (const std::int64_t extent : t.shape.dims())
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements))
      throw Malformed{Code::resource_exhausted, "a tensor with more elements than 64 bits count"};
  if (__builtin_mul_overflow(elements, size_of(t.dtype), &bytes) ||
      __builtin_add_overflow(bytes, so_far, &total) || total > limits.message_bytes)
    throw Malformed{Code::resource_exhausted,
                    fmt::format("a message of more than {} bytes", limits.message_bytes)};
  return total;
}

void read_tensor(Fields f, TensorType& t) {
  t.dtype = static_cast<DType>(f.number(kDTypes - 1));
  if (f.left() > Shape::kMaxRank) refuse_frame(fmt::format("a tensor of rank {}", f.left()));
  t.shape = Shape();
  while (f.left() != 0)
    t.shape.push_back(static_cast<std::int64_t>(f.number(std::uint64_t(1) << 62)));
}

void read_message(Fields f, const Limits& limits, MessageType& m) {
  m.head_bytes = f.number();
  if (m.head_bytes > limits.message_bytes)
    throw Malformed{Code::resource_exhausted, fmt::format("a head of {} bytes", m.head_bytes)};
  std::uint64_t total = m.head_bytes;
  Fields tensors = f.array("a message's tensors");
  f.done();
  // Grows as it is read: a count is only a claim, and earlier elements keep their memory.
  std::size_t n = 0;
  for (; tensors.left() != 0; ++n) {
    if (n == m.tensors.size()) m.tensors.emplace_back();
    read_tensor(tensors.array("a tensor"), m.tensors[n]);
    total = bytes_within(m.tensors[n], total, limits);
  }
  m.tensors.resize(n);
}

/// Into what an earlier wire frame has left, if that was of the kind.
void read_data(Fields& f, const Limits& limits, Frame& frame) {
  if (!std::holds_alternative<Data>(frame)) frame = Data{};
  Data& d = std::get<Data>(frame);
  d.lane = static_cast<Lane>(f.number(kLanes - 1));
  d.sequence = f.number();
  d.received = f.received();
  Fields messages = f.array("the messages of a frame");
  f.done();
  std::size_t n = 0;
  for (; messages.left() != 0; ++n) {
    if (n == d.messages.size()) d.messages.emplace_back();
    read_message(messages.array("a message"), limits, d.messages[n]);
  }
  d.messages.resize(n);
}

void read_frame(Fields& f, const Limits& limits, Frame& frame) {
  const auto kind = static_cast<Kind>(f.number(static_cast<std::uint64_t>(Kind::gone)));
  switch (kind) {
    case Kind::hello:
    case Kind::welcome: frame = read_hello(f, kind == Kind::welcome, limits); return;
    case Kind::ready: frame = Ready{}; break;
    case Kind::refuse: {
      Refuse refuse;
      refuse.name = f.text(limits.text_bytes);
      refuse.redundant = f.flag();
      refuse.why = f.reason(limits.text_bytes);
      frame = std::move(refuse);
      break;
    }
    case Kind::data: return read_data(f, limits, frame);
    case Kind::ack: frame = Ack{f.received()}; break;
    case Kind::bye: {
      Bye bye{f.reason(limits.text_bytes), {}};
      bye.sent = f.received();
      frame = std::move(bye);
      break;
    }
    case Kind::gone: frame = Gone{}; break;
    default: refuse_frame("a frame of no known kind");
  }
  f.done();
}

}  // namespace

std::vector<std::byte> encode(const Frame& frame) {
  std::vector<std::byte> out;
  Bytes bytes(out);
  Packer packer(bytes);
  std::visit([&](const auto& f) { pack(packer, f); }, frame);
  bytes.spill();
  return out;
}

void encode_data(const Data& data, std::size_t messages, std::vector<std::byte>& out) {
  Bytes bytes(out);
  Packer packer(bytes);
  pack(packer, data, messages);
  bytes.spill();
}

Status decode(std::span<const std::byte> part, const Limits& limits, Decoded& out) {
  try {
    // An element takes at least one byte, so an array of more elements than there are bytes is
    // refused before anything is allocated for it.
    PackScan scan(part);
    Fields fields(scan, "a frame");
    read_frame(fields, limits, out.frame);
    const std::size_t used = out.header_bytes = scan.place();
    if (used != part.size() && !std::holds_alternative<Data>(out.frame)) {
      const auto* hello = std::get_if<Hello>(&out.frame);
      if (!hello || hello->version == kVersion) refuse_frame("bytes behind the end of a frame");
    }
    return Status();
  } catch (const Malformed& m) { return Status(m.code, m.what); } catch (const Error& e) {
    return Status(e);
  }
}

}  // namespace troupe::detail::wire
