#include <troupe/cluster/protocol/run_tokens.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/cluster/transport/channel/direct_ring.hpp>

namespace troupe {

namespace {

// In the byte in front of a token's path: its depth in the lower half.
enum class TokenForm : std::uint8_t { nothing, dead, scalar, follows, again };
constexpr unsigned kForms = 5, kFormAt = 4;
static_assert(Path::kMaxDepth < 1 << kFormAt);
static_assert(std::endian::native == std::endian::little);
constexpr std::size_t kElement = 8;  // bytes: a wider scalar follows
constexpr std::size_t kNumber = 10;  // bytes, at most
constexpr std::size_t kFront = sizeof(RunKey::owner) + 3 * kNumber;  // bytes before the grants
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
  std::span<const std::byte> rest() const { return {at_, end_}; }
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

TokenForm form_of(const Value& value, bool is_dead) {
  if (is_dead) return TokenForm::dead;
  if (!value.has_value()) return TokenForm::nothing;
  return value.is_inline() && size_of(value.dtype()) <= kElement ? TokenForm::scalar
                                                                 : TokenForm::follows;
}

// Values that follow, so that a tensor for several partitions of the receiver is sent once.
class Followers {
 public:
  /// Returns the number of the token before it with the same tensor, or nothing: its value follows.
  std::optional<std::size_t> find_or_add(std::size_t token, const Value& value) {
    const auto end = all_.begin() + static_cast<std::ptrdiff_t>(used_);
    const auto found = std::find_if(all_.begin(), end,
                                    [&](const One& o) { return is_same_tensor(*o.value, value); });
    if (found != end) return found->token;
    if (used_ < all_.size()) all_[used_++] = {token, &value};
    return std::nullopt;
  }

 private:
  struct One {
    std::size_t token;
    const Value* value;
  };
  std::array<One, 64> all_;  // not initialised; those of a turn, see RunTokens::kMost
  std::size_t used_ = 0;
};

void put_front(Numbers& to, const RunKey& run, std::size_t grants, std::size_t tokens) {
  to.put(&run.owner, sizeof run.owner);
  to.put(run.number);
  to.put(std::uint64_t{grants});
  to.put(std::uint64_t{tokens});
}

// Writes a RunGrant, or a Grant, whose partition is elsewhere.
template <class G>
void put_grant(Numbers& to, std::int32_t partition, const G& grant) {
  to.put(partition);
  to.put(grant.send);
  to.put_byte(static_cast<unsigned>(grant.path.depth));
  to.put_path(grant.path);
  to.put(grant.last);
}

// Writes a RunToken, or a Token, whose number in the message is `number`. Returns true if its value
// follows.
template <class T>
bool put_token(Numbers& to, std::int32_t partition, const T& token, std::size_t number,
               Followers& followers) {
  TokenForm form = form_of(token.value, token.is_dead);
  std::optional<std::size_t> earlier;
  if (form == TokenForm::follows) earlier = followers.find_or_add(number, token.value);
  if (earlier) form = TokenForm::again;
  to.put(partition);
  to.put(token.receive);
  to.put(token.times);
  to.put_byte(static_cast<unsigned>(form) << kFormAt | static_cast<unsigned>(token.path.depth));
  to.put_path(token.path);
  if (form == TokenForm::scalar) {
    to.put_byte(static_cast<unsigned>(token.value.dtype()));
    to.put(token.value.scalar_bits(), size_of(token.value.dtype()));
  }
  if (earlier) to.put(std::uint64_t{*earlier});
  return form == TokenForm::follows;
}

template <class T>
void put_value(MessageWriter& w, const T& token, std::size_t number, Followers& followers) {
  if (form_of(token.value, token.is_dead) == TokenForm::follows &&
      !followers.find_or_add(number, token.value))
    w(token.value);
}

MessageWriter begun(std::span<const std::byte> bytes) {
  MessageWriter w;
  w.raw({{kKind<RunTokens>}});
  w.raw(bytes);
  return w;
}

}  // namespace

bool is_same_tensor(const Value& a, const Value& b) {
  if (a.kind() != Value::Kind::tensor || b.kind() != Value::Kind::tensor) return false;
  const Tensor &x = a.tensor(), &y = b.tensor();
  return x.dtype() == y.dtype() && x.raw() == y.raw() && x.shape() == y.shape();
}

WrittenTokens::WrittenTokens(const RunKey& run, std::span<const Posted> posted, const Plan& plan)
    : posted_(posted) {
  const auto grants =
      static_cast<std::size_t>(std::count_if(posted.begin(), posted.end(), [](const Posted& p) {
        return std::holds_alternative<Grant>(p.message);
      }));
  std::byte* begin = first_.data();
  if (const std::size_t most = kFront + posted.size() * kLongestOne; most > kFirst) {
    more_.resize(most);
    begin = more_.data();
  }
  const auto number_of = [&](const Posted& p) {
    return plan.partitions[static_cast<std::size_t>(p.partition)].number;
  };
  Numbers to(begin);
  put_front(to, run, grants, posted.size() - grants);
  if (grants != 0)
    for (const Posted& p : posted)
      if (const auto* grant = std::get_if<Grant>(&p.message)) put_grant(to, number_of(p), *grant);
  Followers followers;
  std::size_t number = 0;
  for (const Posted& p : posted)
    if (const auto* token = std::get_if<Token>(&p.message))
      has_values_ |= put_token(to, number_of(p), *token, number++, followers);
  used_ = static_cast<std::size_t>(to.at() - begin);
}

std::span<const std::byte> WrittenTokens::record() const {
  return has_values_ || used_ > direct::kMost ? std::span<const std::byte>() : bytes();
}

Message WrittenTokens::message() const {
  MessageWriter w = begun(bytes());
  if (!has_values_) return w.take();
  Followers followers;
  std::size_t number = 0;
  for (const Posted& p : posted_)
    if (const auto* token = std::get_if<Token>(&p.message))
      put_value(w, *token, number++, followers);
  return w.take();
}

Message written_tokens(const RunTokens& tokens) {
  std::vector<std::byte> bytes(kFront +
                               (tokens.grants.size() + tokens.tokens.size()) * kLongestOne);
  Numbers to(bytes.data());
  put_front(to, tokens.run, tokens.grants.size(), tokens.tokens.size());
  for (const RunGrant& grant : tokens.grants) put_grant(to, grant.partition, grant);
  Followers followers;
  std::size_t number = 0;
  for (const RunToken& token : tokens.tokens)
    put_token(to, token.partition, token, number++, followers);
  bytes.resize(static_cast<std::size_t>(to.at() - bytes.data()));
  MessageWriter w = begun(bytes);
  followers = {};
  number = 0;
  for (const RunToken& token : tokens.tokens) put_value(w, token, number++, followers);
  return w.take();
}

namespace {

// Tokens by number, of which `read_front` does not have the values.
struct Outstanding {
  std::vector<std::size_t> follow;  // ascending
  struct Again {
    std::size_t token, earlier;
  };
  std::vector<Again> again;  // each has the value of an earlier token, which follows
};

// Reads all but the values that follow.
void read_front(NumberReader& from, RunTokens& said, Outstanding& outstanding) {
  from.get(&said.run.owner, sizeof said.run.owner);
  said.run.number = from.number();
  const std::uint64_t grants = from.number(), tokens = from.number();
  if (grants > RunTokens::kMost || tokens > RunTokens::kMost)
    MessageReader::malformed("more than a turn may hold");
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
    const unsigned front = from.byte(), what = front >> kFormAt;
    if (what >= kForms) MessageReader::malformed("a token of no kind");
    token.is_dead = static_cast<TokenForm>(what) == TokenForm::dead;
    from.path(front & ((1 << kFormAt) - 1), token.path);
    if (static_cast<TokenForm>(what) == TokenForm::follows) outstanding.follow.push_back(i);
    if (static_cast<TokenForm>(what) == TokenForm::again) {
      const std::uint64_t earlier = from.number();
      if (!std::binary_search(outstanding.follow.begin(), outstanding.follow.end(), earlier))
        MessageReader::malformed("the value of a token that has none");
      outstanding.again.push_back({i, earlier});
    }
    if (static_cast<TokenForm>(what) != TokenForm::scalar) continue;
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
}

}  // namespace

void read_tokens(std::span<const std::byte> record, RunTokens& said) {
  NumberReader from(record);
  Outstanding outstanding;
  read_front(from, said, outstanding);
  if (!outstanding.follow.empty() || !from.rest().empty())
    MessageReader::malformed("more behind the tokens");
}

void read_tokens(Message& message, RunTokens& said) {
  if (!is_a<RunTokens>(message)) MessageReader::malformed("tokens of another kind");
  NumberReader from(std::span(message.head).subspan(1));
  Outstanding outstanding;
  read_front(from, said, outstanding);
  MessageReader values(from.rest(), message.tensors);
  for (const std::size_t i : outstanding.follow) {
    values(said.tokens[i].value);
    if (!said.tokens[i].value.has_value()) MessageReader::malformed("a value that is none");
  }
  values.end();
  for (const auto& [token, earlier] : outstanding.again)
    said.tokens[token].value = said.tokens[earlier].value;
}

}  // namespace troupe
