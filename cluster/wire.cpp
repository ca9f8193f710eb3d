#include <troupe/cluster/wire.hpp>

#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <msgpack.hpp>

namespace troupe::wire {

namespace {

constexpr std::string_view kMagic = "troupe";
constexpr int kDepth = 5;  // frame, messages, message, tensors, tensor

enum class Kind : std::uint8_t { hello = 1, welcome, ready, refuse, data, ack, bye, gone };

// ---- writing

struct Bytes {
  std::vector<std::byte>& out;
  void write(const char* data, std::size_t size) {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    out.insert(out.end(), bytes, bytes + size);
  }
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
void pack(Packer& p, const Data& d) {
  open(p, Kind::data, 5);
  p.pack_uint8(static_cast<std::uint8_t>(d.lane));
  p.pack_uint64(d.sequence);
  counts(p, d.received);
  p.pack_array(static_cast<std::uint32_t>(d.messages.size()));
  for (const MessageType& m : d.messages) {
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

/// What a frame is not; caught in `decode`.
struct Malformed {
  Code code;
  std::string what;
};
[[noreturn]] void refuse_frame(std::string what) { throw Malformed{Code::data_loss, std::move(what)}; }

/// Reads the elements of an array one after another.
class Fields {
 public:
  Fields(const msgpack::object& o, const char* what) : what_(what) {
    if (o.type != msgpack::type::ARRAY) refuse_frame(fmt::format("{} is not an array", what));
    next_ = o.via.array.ptr;
    end_ = next_ + o.via.array.size;
  }
  std::size_t left() const { return static_cast<std::size_t>(end_ - next_); }
  const msgpack::object& object() {
    if (next_ == end_) refuse_frame(fmt::format("{} ends too early", what_));
    return *next_++;
  }
  std::uint64_t number(std::uint64_t most = ~std::uint64_t{0}) {
    const msgpack::object& o = object();
    if (o.type != msgpack::type::POSITIVE_INTEGER) refuse_frame(fmt::format("a number of {} is none", what_));
    if (o.via.u64 > most) refuse_frame(fmt::format("{} in {} exceeds {}", o.via.u64, what_, most));
    return o.via.u64;
  }
  bool flag() {
    const msgpack::object& o = object();
    if (o.type != msgpack::type::BOOLEAN) refuse_frame(fmt::format("a flag of {} is none", what_));
    return o.via.boolean;
  }
  std::string text(std::uint64_t most) {
    const msgpack::object& o = object();
    if (o.type != msgpack::type::STR) refuse_frame(fmt::format("a text of {} is none", what_));
    if (o.via.str.size > most) throw Malformed{Code::resource_exhausted, fmt::format("a text of {} has {} bytes", what_, o.via.str.size)};
    return std::string(o.via.str.ptr, o.via.str.size);
  }
  Bulk::Secret secret() {
    const msgpack::object& o = object();
    if (o.type != msgpack::type::BIN || o.via.bin.size != Bulk::kSecretBytes) refuse_frame(fmt::format("a secret of {} is none", what_));
    Bulk::Secret s;
    std::memcpy(s.data(), o.via.bin.ptr, s.size());
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
    return code == Code::ok ? Status(Code::unavailable, std::move(message)) : Status(code, std::move(message));
  }
  void done() const {
    if (left() != 0) refuse_frame(fmt::format("{} has {} fields too many", what_, left()));
  }

 private:
  const char* what_;
  const msgpack::object* next_;
  const msgpack::object* end_;
};

Bulk read_bulk(const msgpack::object& o, const Limits& limits) {
  Fields f(o, "a bulk channel");
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
  h.bulk = read_bulk(f.object(), limits);
  f.done();
  return h;
}

/// The bytes of a tensor; they and those before, `so_far`, are within the limit.
std::uint64_t bytes_within(const TensorType& t, std::uint64_t so_far, const Limits& limits) {
  std::uint64_t elements = 1, bytes = 0, total = 0;
  for (const std::int64_t extent : t.shape.dims())
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements))
      throw Malformed{Code::resource_exhausted, "a tensor with more elements than 64 bits count"};
  if (__builtin_mul_overflow(elements, size_of(t.dtype), &bytes) || __builtin_add_overflow(bytes, so_far, &total) || total > limits.message_bytes)
    throw Malformed{Code::resource_exhausted, fmt::format("a message of more than {} bytes", limits.message_bytes)};
  return total;
}

TensorType read_tensor(const msgpack::object& o) {
  Fields f(o, "a tensor");
  TensorType t;
  t.dtype = static_cast<DType>(f.number(kDTypes - 1));
  if (f.left() > Shape::kMaxRank) refuse_frame(fmt::format("a tensor of rank {}", f.left()));
  while (f.left() != 0) t.shape.push_back(static_cast<std::int64_t>(f.number(std::uint64_t(1) << 62)));
  return t;
}

MessageType read_message(const msgpack::object& o, const Limits& limits) {
  Fields f(o, "a message");
  MessageType m;
  m.head_bytes = f.number();
  if (m.head_bytes > limits.message_bytes) throw Malformed{Code::resource_exhausted, fmt::format("a head of {} bytes", m.head_bytes)};
  std::uint64_t total = m.head_bytes;
  Fields tensors(f.object(), "a message's tensors");
  f.done();
  m.tensors.reserve(tensors.left());
  while (tensors.left() != 0) {
    m.tensors.push_back(read_tensor(tensors.object()));
    total = bytes_within(m.tensors.back(), total, limits);
  }
  return m;
}

Data read_data(Fields& f, const Limits& limits) {
  Data d;
  d.lane = static_cast<Lane>(f.number(kLanes - 1));
  d.sequence = f.number();
  d.received = f.received();
  Fields messages(f.object(), "the messages of a frame");
  f.done();
  d.messages.reserve(messages.left());
  while (messages.left() != 0) d.messages.push_back(read_message(messages.object(), limits));
  return d;
}

Frame read_frame(Fields& f, const Limits& limits) {
  const auto kind = static_cast<Kind>(f.number(static_cast<std::uint64_t>(Kind::gone)));
  Frame frame;
  switch (kind) {
    case Kind::hello:
    case Kind::welcome: return read_hello(f, kind == Kind::welcome, limits);
    case Kind::ready: frame = Ready{}; break;
    case Kind::refuse: {
      Refuse refuse;
      refuse.name = f.text(limits.text_bytes);
      refuse.redundant = f.flag();
      refuse.why = f.reason(limits.text_bytes);
      frame = std::move(refuse);
      break;
    }
    case Kind::data: return read_data(f, limits);
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
  return frame;
}

}  // namespace

std::vector<std::byte> encode(const Frame& frame) {
  std::vector<std::byte> out;
  Bytes bytes{out};
  Packer packer(bytes);
  std::visit([&](const auto& f) { pack(packer, f); }, frame);
  return out;
}

void encode_data(const Data& data, std::vector<std::byte>& out) {
  Bytes bytes{out};
  Packer packer(bytes);
  pack(packer, data);
}

Status decode(std::span<const std::byte> part, const Limits& limits, Decoded& out) {
  try {
    // An element takes at least one byte, so an array of more elements than there are bytes is refused before
    // anything is allocated for it. Neither maps nor extensions occur.
    const std::size_t most = part.size();
    const msgpack::unpack_limit bounds(most, 0, most, most, 0, kDepth);
    std::size_t used = 0;
    const msgpack::object_handle handle = msgpack::unpack(
        reinterpret_cast<const char*>(part.data()), part.size(), used, [](msgpack::type::object_type, std::size_t, void*) { return true; },
        nullptr, bounds);
    Fields fields(handle.get(), "a frame");
    out.frame = read_frame(fields, limits);
    out.header_bytes = used;
    if (used != part.size() && !std::holds_alternative<Data>(out.frame)) {
      const auto* hello = std::get_if<Hello>(&out.frame);
      if (!hello || hello->version == kVersion) refuse_frame("bytes behind the end of a frame");
    }
    return Status();
  } catch (const Malformed& m) {
    return Status(m.code, m.what);
  } catch (const msgpack::unpack_error& e) {
    return Status(Code::data_loss, e.what());
  } catch (const Error& e) {
    return Status(e);
  }
}

}  // namespace troupe::wire
