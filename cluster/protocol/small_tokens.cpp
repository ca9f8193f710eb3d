#include <troupe/cluster/protocol/small_tokens.hpp>

#include <bit>
#include <cstring>
#include <limits>

#include <troupe/cluster/transport/channel/direct_ring.hpp>

namespace troupe {

namespace {

// In the byte in front of a token's path: its depth in the lower half.
enum class What : std::uint8_t { nothing, dead, scalar };
constexpr unsigned kWhats = 3, kWhatAt = 4;
static_assert(Path::kMaxDepth < 1 << kWhatAt);
static_assert(SmallTokens::kMost <= direct::kMost && std::endian::native == std::endian::little);
constexpr std::size_t kElement = 8;  // bytes: a wider one goes as a message
constexpr std::size_t kNumber = 10;  // bytes, at most
// bytes of a token or a grant
constexpr std::size_t kLongestOne = 4 * kNumber + Path::kMaxDepth * kNumber + 2 + kElement;

/// Numbers with seven bits a byte, the lowest first; all bytes but the last have the eighth.
class Numbers {
 public:
  explicit Numbers(std::byte* at) : at_(at) {}
  std::byte* at() const { return at_; }
  void put(const void* from, std::size_t n) {
    std::memcpy(at_, from, n);
    at_ += n;
  }
  void put_byte(unsigned n) { *at_++ = static_cast<std::byte>(n); }
  void put(std::uint64_t n) {
    for (; n >= 0x80; n >>= 7) put_byte(static_cast<unsigned>(n & 0x7f) | 0x80);
    put_byte(static_cast<unsigned>(n));
  }
  void put(std::int64_t n) { put(static_cast<std::uint64_t>(n)); }
  void put(std::int32_t n) { put(static_cast<std::uint64_t>(static_cast<std::uint32_t>(n))); }
  void put_path(const Path& path) {
    for (std::int32_t d = 0; d < path.depth; ++d) put(path.number[d]);
  }

 private:
  std::byte* at_;
};

class NumberReader {
 public:
  explicit NumberReader(std::span<const std::byte> bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}
  bool is_at_end() const { return at_ == end_; }
  void get(void* to, std::size_t n) {
    if (n > static_cast<std::size_t>(end_ - at_)) too_short();
    std::memcpy(to, at_, n);
    at_ += n;
  }
  unsigned byte() {
    if (at_ == end_) too_short();
    return static_cast<unsigned>(*at_++);
  }
  std::uint64_t number() {
    const unsigned first = byte();
    return first < 0x80 ? first : longer_number(first & 0x7f);
  }
  std::int32_t index() {
    const std::uint64_t n = number();
    if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
      MessageReader::malformed("a number that is too large");
    return static_cast<std::int32_t>(n);
  }
  void path(unsigned depth, Path& to) {
    if (depth > static_cast<unsigned>(Path::kMaxDepth))
      MessageReader::malformed("a path through too many loops");
    to.depth = static_cast<std::int32_t>(depth);
    for (unsigned d = 0; d < depth; ++d) {
      to.number[d] = static_cast<std::int64_t>(number());
      if (to.number[d] < 0) MessageReader::malformed("a negative iteration");
    }
  }

 private:
  std::uint64_t longer_number(std::uint64_t n) {
    constexpr unsigned kLast = 63;  // 64 bits need one more byte
    for (unsigned shift = 7; shift < kLast; shift += 7) {
      const unsigned next = byte();
      n |= std::uint64_t{next & 0x7f} << shift;
      if (next == 0) written_otherwise();
      if (next < 0x80) return n;
    }
    if (byte() != 1) written_otherwise();
    return n | std::uint64_t{1} << kLast;
  }
  [[noreturn]] static void written_otherwise() {
    MessageReader::malformed("a number that is written otherwise");
  }
  [[noreturn]] static void too_short() { MessageReader::malformed("tokens that end too soon"); }
  const std::byte* at_;
  const std::byte* end_;
};

}  // namespace

SmallTokens::SmallTokens(const RunKey& run, std::span<const Posted> posted, const Plan& plan) {
  std::uint64_t grants = 0;
  for (const Posted& p : posted) grants += std::holds_alternative<Grant>(p.message);
  bytes_[0] = static_cast<std::byte>(MessageKind::small_tokens);
  std::byte* const begin = bytes_.data() + kKind;
  Numbers to(begin);
  to.put(&run.owner, sizeof run.owner);
  to.put(run.number);
  to.put(grants);
  to.put(static_cast<std::uint64_t>(posted.size() - grants));
  const std::byte* const last = bytes_.data() + bytes_.size() - kLongestOne;
  for (const bool tokens : {false, true})
    for (const Posted& p : posted) {
      if (std::holds_alternative<Token>(p.message) != tokens) continue;
      if (to.at() > last) return;
      to.put(plan.partitions[static_cast<std::size_t>(p.partition)].number);
      if (tokens) {
        const Token& token = std::get<Token>(p.message);
        const Value& v = token.value;
        const bool is_small = !v.has_value() || (v.is_inline() && size_of(v.dtype()) <= kElement);
        if (!is_small) return;
        const What what = token.is_dead ? What::dead : v.has_value() ? What::scalar : What::nothing;
        to.put(token.receive);
        to.put(token.times);
        to.put_byte(static_cast<unsigned>(what) << kWhatAt |
                    static_cast<unsigned>(token.path.depth));
        to.put_path(token.path);
        if (what != What::scalar) continue;
        to.put_byte(static_cast<unsigned>(v.dtype()));
        to.put(v.scalar_bits(), size_of(v.dtype()));
      } else {
        const Grant& grant = std::get<Grant>(p.message);
        to.put(grant.send);
        to.put_byte(static_cast<unsigned>(grant.path.depth));
        to.put_path(grant.path);
        to.put(grant.last);
      }
    }
  used_ = static_cast<std::size_t>(to.at() - begin);
}

void read_small(std::span<const std::byte> bytes, RunTokens& said) {
  NumberReader from(bytes);
  from.get(&said.run.owner, sizeof said.run.owner);
  said.run.number = from.number();
  const std::uint64_t grants = from.number(), tokens = from.number();
  if (grants > RunTokens::kMost || tokens > RunTokens::kMost)
    MessageReader::malformed("more than a turn has to say");
  for (std::uint64_t i = 0; i < grants; ++i) {
    RunGrant& grant = said.grants.emplace_back();
    grant.partition = from.index();
    grant.send = from.index();
    from.path(from.byte(), grant.path);
    grant.last = static_cast<std::int64_t>(from.number());
  }
  for (std::uint64_t i = 0; i < tokens; ++i) {
    RunToken& token = said.tokens.emplace_back();
    token.partition = from.index();
    token.receive = from.index();
    token.times = from.index();
    const unsigned front = from.byte(), what = front >> kWhatAt;
    if (what >= kWhats) MessageReader::malformed("a token of no kind");
    token.is_dead = static_cast<What>(what) == What::dead;
    from.path(front & ((1 << kWhatAt) - 1), token.path);
    if (static_cast<What>(what) != What::scalar) continue;
    const unsigned dtype = from.byte();
    const auto kind = static_cast<DType>(dtype);
    if (dtype >= kAllDTypes || kind == DType::string || size_of(kind) > kElement)
      MessageReader::malformed("a scalar of no such kind");
    std::byte element[kElement];
    from.get(element, size_of(kind));
    if (kind == DType::boolean && static_cast<unsigned>(element[0]) > 1)
      MessageReader::malformed("a bool that is neither");
    token.value.set_scalar(kind, element, size_of(kind));
  }
  if (!from.is_at_end()) MessageReader::malformed("more behind the tokens");
}

void read_small(const Message& message, RunTokens& said) {
  if (message.head.empty() || message.head[0] != static_cast<std::byte>(MessageKind::small_tokens))
    MessageReader::malformed("tokens of another kind");
  if (!message.tensors.empty()) MessageReader::malformed("tensors that are no tokens'");
  read_small(std::span(message.head).subspan(1), said);
}

}  // namespace troupe
