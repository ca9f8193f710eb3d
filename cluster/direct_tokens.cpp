#include <troupe/cluster/direct_tokens.hpp>

#include <cstring>
#include <type_traits>

#include <troupe/cluster/direct_ring.hpp>

namespace troupe {

namespace {

enum class What : std::uint8_t { nothing, dead, scalar };
constexpr std::uint8_t kWhats = 3;

// What stands in front, of the whole and of each; behind it the numbers of a path, and of a scalar its element.
struct Whole {
  std::uint64_t owner, run;
  std::uint32_t grants, tokens;
};
struct OneGrant {
  std::int64_t last;
  std::int32_t partition, send, depth, unused;
};
struct OneToken {
  std::int32_t partition, receive, times;
  std::uint8_t depth;
  What what;
  DType dtype;
  std::uint8_t unused;
};
static_assert(sizeof(Whole) == 24 && sizeof(OneGrant) == 24 && sizeof(OneToken) == 16 && std::is_trivially_copyable_v<OneToken>);
static_assert(DirectTokens::kMost <= direct::kMost);
constexpr std::size_t kElement = 8;  // bytes: a wider one goes as a message

std::size_t path_bytes(std::int32_t depth) { return static_cast<std::size_t>(depth) * sizeof(std::int64_t); }

}  // namespace

DirectTokens::DirectTokens(const RunKey& run, std::span<const Posted> posted, const Plan& plan) {
  Whole whole{run.owner, run.number, 0, 0};
  std::byte* at = bytes_.data() + sizeof whole;
  std::byte* const end = bytes_.data() + bytes_.size();
  constexpr std::size_t kLongest = sizeof(OneGrant) + sizeof(Path::number) + kElement;
  const auto put = [&at](const void* from, std::size_t n) {
    std::memcpy(at, from, n);
    at += n;
  };
  for (const bool tokens : {false, true})
    for (const Posted& p : posted) {
      const std::int32_t partition = plan.partitions[static_cast<std::size_t>(p.partition)].number;
      if (const auto* token = std::get_if<Token>(&p.message); token && tokens) {
        const Value& v = token->value;
        const bool is_small = !v.has_value() || (v.is_inline() && size_of(v.dtype()) <= kElement);
        if (!is_small || static_cast<std::size_t>(end - at) < kLongest) return;
        const What what = token->is_dead ? What::dead : v.has_value() ? What::scalar : What::nothing;
        const OneToken one{partition, token->receive, token->times, static_cast<std::uint8_t>(token->path.depth), what, v.dtype(), 0};
        put(&one, sizeof one);
        put(token->path.number, path_bytes(token->path.depth));
        if (what == What::scalar) put(v.scalar_bits(), kElement);
        ++whole.tokens;
      } else if (const auto* grant = std::get_if<Grant>(&p.message); grant && !tokens) {
        if (static_cast<std::size_t>(end - at) < kLongest) return;
        const OneGrant one{grant->last, partition, grant->send, grant->path.depth, 0};
        put(&one, sizeof one);
        put(grant->path.number, path_bytes(grant->path.depth));
        ++whole.grants;
      }
    }
  std::memcpy(bytes_.data(), &whole, sizeof whole);
  used_ = static_cast<std::size_t>(at - bytes_.data());
}

void read_direct(std::span<const std::byte> bytes, RunTokens& said) {
  const auto get = [&bytes](void* to, std::size_t n) {
    if (n > bytes.size()) MessageReader::malformed("tokens that end too soon");
    std::memcpy(to, bytes.data(), n);
    bytes = bytes.subspan(n);
  };
  // What stands in front of one, and its path.
  const auto get_front = [&get](auto front, auto& of) {
    get(&front, sizeof front);
    of.partition = front.partition;
    of.path.depth = front.depth;
    if (of.path.depth < 0 || of.path.depth > Path::kMaxDepth) MessageReader::malformed("a path through too many loops");
    get(of.path.number, path_bytes(of.path.depth));
    for (std::int32_t d = 0; d < of.path.depth; ++d)
      if (of.path.number[d] < 0) MessageReader::malformed("a negative iteration");
    return front;
  };
  Whole whole{};
  get(&whole, sizeof whole);
  said.run = {whole.owner, whole.run};
  if (whole.grants > RunTokens::kMost || whole.tokens > RunTokens::kMost) MessageReader::malformed("more than a turn has to say");
  for (std::uint32_t i = 0; i < whole.grants; ++i) {
    RunGrant& grant = said.grants.emplace_back();
    const OneGrant one = get_front(OneGrant{}, grant);
    grant.send = one.send, grant.last = one.last;
  }
  for (std::uint32_t i = 0; i < whole.tokens; ++i) {
    RunToken& token = said.tokens.emplace_back();
    const OneToken one = get_front(OneToken{}, token);
    token.receive = one.receive, token.times = one.times;
    if (static_cast<std::uint8_t>(one.what) >= kWhats) MessageReader::malformed("a token of no kind");
    token.is_dead = one.what == What::dead;
    if (one.what != What::scalar) continue;
    if (static_cast<std::uint64_t>(one.dtype) >= kAllDTypes || one.dtype == DType::string || size_of(one.dtype) > kElement) MessageReader::malformed("a scalar of no such kind");
    std::byte element[kElement];
    get(element, sizeof element);
    if (one.dtype == DType::boolean && static_cast<unsigned>(element[0]) > 1) MessageReader::malformed("a bool that is neither");
    token.value.set_scalar(one.dtype, element, size_of(one.dtype));
  }
  if (!bytes.empty()) MessageReader::malformed("more behind the tokens");
}

}  // namespace troupe
