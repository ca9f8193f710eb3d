// Not under tsan: it encodes and decodes on one thread.
// Tokens and grants are read as they were posted, in one way only, and nothing else is.
#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/cluster/transport/channel/direct_ring.hpp>
#include <troupe/test/support/cluster/golden.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <complex>
#include <random>

BOOST_AUTO_TEST_SUITE(run_tokens_test)

namespace {

using namespace troupe;

/// The messages that a turn might post to partitions 0 and 1 of a plan.
std::vector<Posted> posted_by(std::mt19937_64& random, std::size_t count) {
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  const auto some_path = [&] {
    Path path;
    path.depth = static_cast<std::int32_t>(below(Path::kMaxDepth + 1));
    for (std::int32_t d = 0; d < path.depth; ++d)
      path.number[d] = below(3) == 0 ? INT64_MAX - below(3) : below(100);
    return path;
  };
  const std::vector<Value> values{Tensor::scalar(true),
                                  Tensor::scalar(-0.0),
                                  Tensor::scalar<std::int8_t>(-3),
                                  Tensor::scalar<std::int64_t>(INT64_MIN),
                                  Tensor::scalar(1.5f),
                                  Value()};
  std::vector<Posted> all;
  for (std::size_t i = 0; i < count; ++i) {
    const auto to = static_cast<std::int32_t>(below(2));
    const auto edge = static_cast<std::int32_t>(below(1000));
    const bool is_dead = below(4) == 0;
    if (below(3) == 0)
      all.push_back({to, Grant{{}, edge, some_path(), below(2) ? below(1000) : INT64_MAX}});
    else
      all.push_back(
          {to, Token{{},
                     edge,
                     is_dead,
                     is_dead ? Value() : values[static_cast<std::size_t>(below(values.size()))],
                     some_path(),
                     static_cast<std::int32_t>(1 + below(40))}});
  }
  return all;
}

Plan numbered_plan() {
  Plan plan;
  plan.partitions.resize(2);
  plan.partitions[0].number = 70;
  plan.partitions[1].number = 3;
  return plan;
}

bool is_same(const Path& a, const Path& b) {
  return a.depth == b.depth && std::equal(a.number, a.number + a.depth, b.number);
}

// `said` is what was posted, tokens behind grants.
void check_read(const RunTokens& said, const std::vector<Posted>& posted, const Plan& plan) {
  std::size_t grants = 0, tokens = 0;
  for (const Posted& p : posted) {
    const std::int32_t number = plan.partitions[static_cast<std::size_t>(p.partition)].number;
    if (const auto* grant = std::get_if<Grant>(&p.message)) {
      const RunGrant& is = said.grants.at(grants++);
      BOOST_REQUIRE((is.partition == number && is.send == grant->send && is.last == grant->last));
      BOOST_REQUIRE(is_same(is.path, grant->path));
    } else {
      const auto& token = std::get<Token>(p.message);
      const RunToken& is = said.tokens.at(tokens++);
      BOOST_REQUIRE((is.partition == number && is.receive == token.receive));
      BOOST_REQUIRE((is.times == token.times && is.is_dead == token.is_dead));
      BOOST_REQUIRE(is_same(is.path, token.path));
      BOOST_REQUIRE((is.value.is_same_scalar(token.value) ||
                     is.value.has_value() == token.value.has_value()));
    }
  }
  BOOST_REQUIRE((grants == said.grants.size() && tokens == said.tokens.size()));
}

BOOST_AUTO_TEST_CASE(small_tokens_are_read_as_they_were_posted) {
  std::mt19937_64 random(5);
  const Plan plan = numbered_plan();
  for (int round = 0; round < 500; ++round) {
    const std::vector<Posted> posted = posted_by(random, 1 + random() % 20);
    const RunKey run{random(), random()};
    const WrittenTokens written(run, posted, plan);
    const std::span<const std::byte> record = written.record();
    BOOST_REQUIRE(!record.empty());
    RunTokens direct;
    read_tokens(record, direct);
    BOOST_REQUIRE((direct.run == run));
    check_read(direct, posted, plan);
    // the message is the record, behind its kind
    Message m = written.message();
    BOOST_REQUIRE((m.head == written_tokens(direct).head));
    BOOST_REQUIRE((m.head.size() == record.size() + 1 && m.head[0] == kKind<RunTokens>));
    BOOST_REQUIRE(std::equal(record.begin(), record.end(), m.head.begin() + 1));
    BOOST_REQUIRE(m.tensors.empty());
    // Truncated input is detected wherever it ends, and so is surplus input.
    for (std::size_t n = 0; n < record.size(); ++n) {
      RunTokens part;
      BOOST_REQUIRE_THROW(read_tokens(record.first(n), part), Error);
    }
    std::vector<std::byte> more(record.begin(), record.end());
    more.resize(more.size() + 8);
    RunTokens whole;
    BOOST_REQUIRE_THROW(read_tokens(more, whole), Error);
  }
}

BOOST_AUTO_TEST_CASE(other_values_follow_behind_all_tokens) {
  const Plan plan = numbered_plan();
  List list(DType::f32, Shape{2});
  list.push(Tensor::of<float>({1, 2}));
  const Tensor matrix = Tensor::of<float>({1, 2, 3, 4}, Shape{2, 2});
  const std::vector<Posted> posted{
      {0, Token{{}, 1, false, list, {}, 1}},
      {1, Token{{}, 2, false, Tensor::scalar(1.5), {}, 1}},
      {0, Grant{{}, 3, {}, 7}},
      {1, Token{{}, 4, false, Tensor::scalar(std::complex<double>(1, 2)), {}, 1}},
      {0, Token{{}, 5, false, matrix, {}, 1}}};
  const WrittenTokens written({1, 2}, posted, plan);
  BOOST_TEST(written.record().empty());
  const Message whole = written.message();
  Message m = whole;
  RunTokens said;
  read_tokens(m, said);
  check_read(said, posted, plan);
  BOOST_TEST(said.tokens[0].value.list().length() == 1);
  BOOST_TEST(
      (said.tokens[2].value.tensor().item<std::complex<double>>() == std::complex<double>(1, 2)));
  BOOST_TEST(said.tokens[3].value.tensor().raw() == matrix.raw());  // not copied
  BOOST_TEST((written_tokens(said).head == whole.head));
  // neither less nor more
  for (std::size_t n = 0; n < whole.head.size(); ++n) {
    Message part{{whole.head.begin(), whole.head.begin() + static_cast<std::ptrdiff_t>(n)},
                 whole.tensors};
    RunTokens none;
    BOOST_REQUIRE_THROW(read_tokens(part, none), Error);
  }
  for (const bool is_more : {false, true}) {
    Message other = whole;
    if (is_more) other.tensors.push_back(matrix);
    else other.tensors.pop_back();
    RunTokens none;
    BOOST_CHECK_THROW(read_tokens(other, none), Error);
  }
  // a record has no values that follow
  RunTokens none;
  BOOST_CHECK_THROW(read_tokens(std::span(whole.head).subspan(1), none), Error);
}

BOOST_AUTO_TEST_CASE(a_tensor_for_several_partitions_is_written_once) {
  const Plan plan = numbered_plan();
  const Tensor tensor = Tensor::of<float>({1, 2, 3, 4}, Shape{2, 2}),
               other = Tensor::of<float>({1, 2, 3, 4}, Shape{2, 2});
  const auto token = [](std::int32_t partition, const Value& value) {
    return Posted{partition, Token{{}, 1, false, value, {}, 1}};
  };
  // A view of another shape, and equal elements elsewhere, are tensors of their own.
  const std::vector<Posted> posted{token(0, tensor), token(1, Tensor::scalar(1.5)),
                                   token(1, tensor), token(0, tensor.reshaped({4})),
                                   token(1, other),  token(0, tensor)};
  const WrittenTokens written({1, 2}, posted, plan);
  BOOST_TEST(written.record().empty());
  Message m = written.message();
  BOOST_TEST(m.tensors.size() == 3u);
  RunTokens said;
  read_tokens(m, said);
  check_read(said, posted, plan);
  for (const std::size_t i : {0u, 2u, 5u})
    BOOST_TEST(said.tokens.at(i).value.tensor().raw() == tensor.raw(), "token " << i);
  BOOST_TEST((said.tokens[3].value.tensor().shape() == Shape{4}));
  BOOST_TEST(said.tokens[4].value.tensor().raw() == other.raw());
  BOOST_TEST((written_tokens(said).head == written.message().head));
}

BOOST_AUTO_TEST_CASE(the_value_of_no_earlier_token_is_refused) {
  const auto is_read = [](const std::vector<int>& tokens) {
    Message m;
    m.head.push_back(kKind<RunTokens>);
    m.head.resize(1 + 8);
    for (const int b : {2, 0, 2}) m.head.push_back(static_cast<std::byte>(b));
    for (const int b : tokens) m.head.push_back(static_cast<std::byte>(b));
    // the archive of a tensor
    MessageWriter w;
    w(Value(Tensor::of<float>({1, 2}, Shape{2})));
    Message value = w.take();
    m.head.insert(m.head.end(), value.head.begin(), value.head.end());
    m.tensors = std::move(value.tensors);
    RunTokens said;
    try {
      read_tokens(m, said);
    } catch (const Error& e) {
      BOOST_TEST((e.code() == Code::data_loss));
      return false;
    }
    return said.tokens.at(1).value.tensor().raw() == said.tokens.at(0).value.tensor().raw();
  };
  BOOST_TEST(is_read({1, 2, 1, 0x30, 3, 2, 1, 0x40, 0}));
  BOOST_TEST(!is_read({1, 2, 1, 0x30, 3, 2, 1, 0x40, 1}));  // its own
  BOOST_TEST(!is_read({1, 2, 1, 0x30, 3, 2, 1, 0x40, 9}));  // there is none
  BOOST_TEST(!is_read({1, 2, 1, 0x40, 1, 3, 2, 1, 0x30}));  // a later one
  BOOST_TEST(!is_read({1, 2, 1, 0x10, 3, 2, 1, 0x40, 0}));  // a dead one
}

BOOST_AUTO_TEST_CASE(a_record_has_a_largest_size) {
  const Plan plan = numbered_plan();
  const auto goes_directly = [&](Value value, std::size_t times = 1) {
    std::vector<Posted> posted;
    for (std::size_t i = 0; i < times; ++i)
      posted.push_back({0, Token{{}, 1, false, value, {}, 1}});
    const WrittenTokens written({1, 2}, posted, plan);
    Message m = written.message();
    RunTokens said;
    read_tokens(m, said);
    check_read(said, posted, plan);
    return !written.record().empty();
  };
  BOOST_TEST(goes_directly(Tensor::scalar(1.0)));
  BOOST_TEST(goes_directly(Tensor::scalar(1.0), 64));
  BOOST_TEST(!goes_directly(Tensor::scalar(1.0), 1024));
  BOOST_TEST(!goes_directly(Tensor::scalar(std::complex<double>(1, 2))));
  BOOST_TEST(!goes_directly(Tensor::of<float>({1, 2}, Shape{2})));
  BOOST_TEST(!goes_directly(List(DType::f32, Shape{})));
}

BOOST_AUTO_TEST_CASE(bytes_of_no_token_are_refused) {
  const std::vector<Posted> one{{0, Token{{}, 1, false, Tensor::scalar(1.0), {}, 1}}};
  const WrittenTokens tokens({1, 2}, one, numbered_plan());
  const auto is_refused = [&](std::size_t at, std::uint8_t byte) {
    std::vector<std::byte> bytes(tokens.record().begin(), tokens.record().end());
    bytes[at] = static_cast<std::byte>(byte);
    RunTokens said;
    try {
      read_tokens(bytes, said);
    } catch (const Error& e) {
      BOOST_TEST((e.code() == Code::data_loss));
      return true;
    }
    return false;
  };
  // Its owner (8 bytes), its number, grants, tokens, then the token's partition, edge, times, what
  // it is and its path's length, kind and element.
  BOOST_TEST(tokens.record().size() == 24u);
  BOOST_TEST(!is_refused(11, 9));  // another partition
  BOOST_TEST(is_refused(9, 1));    // a grant that is not there
  BOOST_TEST(is_refused(10, 2));   // a token that is not there
  BOOST_TEST(is_refused(14, Path::kMaxDepth + 1));
  BOOST_TEST(is_refused(14, 0x30));  // its value follows
  BOOST_TEST(is_refused(14, 0x40));  // the value of an earlier one
  BOOST_TEST(is_refused(14, 0x50));  // an invalid kind
  BOOST_TEST(is_refused(14, 0x00));  // no kind, with a value
  BOOST_TEST(is_refused(15, static_cast<std::uint8_t>(DType::string)));
  BOOST_TEST(is_refused(15, 200));
  BOOST_TEST(is_refused(15, static_cast<std::uint8_t>(DType::c128)));
}

// A number has one way to be written, and its index a largest one.
BOOST_AUTO_TEST_CASE(numbers_are_as_they_are_written) {
  const auto is_read = [](const std::vector<int>& token) {
    std::vector<std::byte> bytes(8);
    for (const int b : {2, 0, 1}) bytes.push_back(static_cast<std::byte>(b));
    for (const int b : token) bytes.push_back(static_cast<std::byte>(b));
    RunTokens said;
    try {
      read_tokens(bytes, said);
    } catch (const Error&) { return false; }
    return true;
  };
  BOOST_TEST(is_read({1, 2, 1, 0x01, 5}));
  BOOST_TEST(is_read({0x81, 1, 2, 1, 0x01, 5}));
  BOOST_TEST(!is_read({0x81, 0, 2, 1, 0x01, 5}));  // 1, in two bytes
  BOOST_TEST(is_read({0xff, 0xff, 0xff, 0xff, 0x07, 2, 1, 0x01, 5}));
  BOOST_TEST(!is_read({0xff, 0xff, 0xff, 0xff, 0x0f, 2, 1, 0x01, 5}));  // a partition beyond 2^31
  BOOST_TEST(is_read({1, 2, 1, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}));
  // a negative iteration
  BOOST_TEST(!is_read({1, 2, 1, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}));
  // beyond 2^64
  BOOST_TEST(!is_read({1, 2, 1, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03}));
  BOOST_TEST(
      !is_read({1, 2, 1, 0x01, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}));
  const auto last_read = [](std::int64_t last) {
    const std::vector<Posted> one{{0, Grant{{}, 1, {}, last}}};
    RunTokens said;
    read_tokens(WrittenTokens({UINT64_MAX, UINT64_MAX}, one, numbered_plan()).record(), said);
    BOOST_TEST(said.run.number == UINT64_MAX);
    return said.grants.at(0).last;
  };
  for (const std::int64_t last : {INT64_MIN, INT64_MIN + 1, std::int64_t{-1}, INT64_MAX})
    BOOST_TEST(last_read(last) == last);
  for (int bit = 0; bit < 63; ++bit)
    for (const std::int64_t more : {-1, 0, 1})
      BOOST_TEST(last_read((std::int64_t{1} << bit) + more) == (std::int64_t{1} << bit) + more);
}

// The usual messages of a loop's iteration to another process, a token and a grant, fit in one
// cache line.
BOOST_AUTO_TEST_CASE(a_token_and_a_grant_are_one_line) {
  Path path;
  path.depth = 1;
  path.number[0] = 1'000'000;
  const std::vector<Posted> both{{0, Grant{{}, 1, path, 1'000'032}},
                                 {0, Token{{}, 1, false, Tensor::scalar(1.0), path, 1}}};
  const WrittenTokens small({0x0102030405060708, 1000}, both, numbered_plan());
  BOOST_TEST(small.record().size() <= direct::kFirst);
  // As WIRE.md has it: owner, run, how many; partition, edge, depth, path, last; partition, edge,
  // times, what and depth, path, kind, element.
  std::vector<unsigned> expected{8,
                                 7,
                                 6,
                                 5,
                                 4,
                                 3,
                                 2,
                                 1,
                                 0xe8,
                                 7,
                                 1,
                                 1,
                                 70,
                                 1,
                                 1,
                                 0xc0,
                                 0x84,
                                 0x3d,
                                 0xe0,
                                 0x84,
                                 0x3d,
                                 70,
                                 1,
                                 1,
                                 0x21,
                                 0xc0,
                                 0x84,
                                 0x3d,
                                 static_cast<unsigned>(DType::f64)};
  for (const unsigned b : {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}) expected.push_back(b);
  std::vector<unsigned> got;
  for (const std::byte b : small.record()) got.push_back(static_cast<unsigned>(b));
  BOOST_TEST(got == expected, boost::test_tools::per_element());
}

// A grant, and tokens of each kind, in no loop and in one in another, at small numbers and large
// ones. Raise wire::kVersion when writing the file anew.
BOOST_AUTO_TEST_CASE(tokens_are_written_as_the_golden_file_has_them) {
  Path inner;
  inner.depth = 2;
  inner.number[0] = 3;
  inner.number[1] = 1'000'000;
  const RunKey run{0x0102030405060708, 1000};
  const Tensor pair = Tensor::of<float>({1, 2});
  const std::vector<Posted> posted{
      {0, Grant{{}, 300, inner, 1'000'032}},
      {0, Token{{}, 1, false, Value(), {}, 1}},
      {1, Token{{}, 2, true, Value(), inner, 40}},
      {1, Token{{}, 128, false, Tensor::scalar(true), {}, 1}},
      {0, Token{{}, 4, false, Tensor::scalar<std::int32_t>(-3), inner, 1}},
      {0, Token{{}, 5, false, Tensor::scalar(1.5), inner, 300}},
      {1, Token{{}, 6, false, pair, inner, 1}}};
  const Plan plan = numbered_plan();
  test::check_golden("tokens", WrittenTokens(run, posted, plan).message().head);
  RunTokens was;
  Message file{test::golden_bytes("tokens"), {pair}};
  read_tokens(file, was);
  BOOST_TEST((was.run == run));
  check_read(was, posted, plan);
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
