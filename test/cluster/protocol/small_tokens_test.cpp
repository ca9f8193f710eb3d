// Not under tsan: it encodes and decodes on one thread.
// Tokens and grants in few bytes: they are read as their message would be, in one way only, and
// nothing else is.
#include <troupe/cluster/protocol/small_tokens.hpp>
#include <troupe/cluster/transport/channel/direct_ring.hpp>
#include <troupe/test/support/cluster/golden.hpp>

#include <boost/test/unit_test.hpp>

#include <complex>
#include <random>

BOOST_AUTO_TEST_SUITE(small_tokens_test)

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

BOOST_AUTO_TEST_CASE(tokens_are_read_as_their_message_would_be) {
  std::mt19937_64 random(5);
  const Plan plan = numbered_plan();
  for (int round = 0; round < 500; ++round) {
    std::vector<Posted> posted = posted_by(random, 1 + random() % 20);
    const RunKey run{random(), random()};
    const SmallTokens tokens(run, posted, plan);
    BOOST_REQUIRE(!tokens.bytes().empty());
    RunTokens direct;
    read_small(tokens.bytes(), direct);
    Message m = written(run, posted, plan).take();
    BOOST_REQUIRE((written(direct).take().head == m.head));
    // Truncated input is detected wherever it ends, and so is surplus input.
    for (std::size_t n = 0; n < tokens.bytes().size(); ++n) {
      RunTokens part;
      BOOST_REQUIRE_THROW(read_small(tokens.bytes().first(n), part), Error);
    }
    std::vector<std::byte> more(tokens.bytes().begin(), tokens.bytes().end());
    more.resize(more.size() + 8);
    RunTokens whole;
    BOOST_REQUIRE_THROW(read_small(more, whole), Error);
  }
}

BOOST_AUTO_TEST_CASE(what_is_not_small_goes_as_a_message) {
  const Plan plan = numbered_plan();
  const auto goes_directly = [&](Value value, std::size_t times = 1) {
    std::vector<Posted> posted;
    for (std::size_t i = 0; i < times; ++i)
      posted.push_back({0, Token{{}, 1, false, value, {}, 1}});
    return !SmallTokens({1, 2}, posted, plan).bytes().empty();
  };
  BOOST_TEST(goes_directly(Tensor::scalar(1.0)));
  BOOST_TEST(goes_directly(Tensor::scalar(1.0), 64));
  BOOST_TEST(!goes_directly(Tensor::scalar(1.0), 1024));
  BOOST_TEST(!goes_directly(Tensor::scalar(std::complex<double>(1, 2))));
  BOOST_TEST(!goes_directly(Tensor::of<float>({1, 2}, Shape{2})));
  BOOST_TEST(!goes_directly(List(DType::f32, Shape{})));
}

BOOST_AUTO_TEST_CASE(what_no_token_says_is_refused) {
  const std::vector<Posted> one{{0, Token{{}, 1, false, Tensor::scalar(1.0), {}, 1}}};
  const SmallTokens tokens({1, 2}, one, numbered_plan());
  const auto is_refused = [&](std::size_t at, std::uint8_t byte) {
    std::vector<std::byte> bytes(tokens.bytes().begin(), tokens.bytes().end());
    bytes[at] = static_cast<std::byte>(byte);
    RunTokens said;
    try {
      read_small(bytes, said);
    } catch (const Error& e) {
      BOOST_TEST((e.code() == Code::data_loss));
      return true;
    }
    return false;
  };
  // Its owner (8 bytes), its number, grants, tokens, then the token's partition, edge, times, what
  // it is and its path's length, kind and element.
  BOOST_TEST(tokens.bytes().size() == 24u);
  BOOST_TEST(!is_refused(11, 9));  // another partition
  BOOST_TEST(is_refused(9, 1));    // a grant that is not there
  BOOST_TEST(is_refused(10, 2));   // a token that is not there
  BOOST_TEST(is_refused(14, Path::kMaxDepth + 1));
  BOOST_TEST(is_refused(14, 0x30));  // an invalid kind
  BOOST_TEST(is_refused(14, 0x00));  // no kind, with a value
  BOOST_TEST(is_refused(15, static_cast<std::uint8_t>(DType::string)));
  BOOST_TEST(is_refused(15, 200));
  BOOST_TEST(is_refused(15, static_cast<std::uint8_t>(DType::c128)));
}

// As a message, to others: the same behind the byte of its kind, and no tensors.
BOOST_AUTO_TEST_CASE(a_message_of_small_tokens_is_read_as_its_record) {
  std::mt19937_64 random(7);
  const Plan plan = numbered_plan();
  std::vector<Posted> posted = posted_by(random, 9);
  const SmallTokens tokens({1, 2}, posted, plan);
  Message message = tokens.message();
  BOOST_TEST(message.head.size() == tokens.bytes().size() + 1);
  MessageReader reader(message);
  BOOST_TEST((kind_of(reader) == MessageKind::small_tokens));
  RunTokens said;
  read_small(message, said);
  BOOST_TEST((written(said).take().head == written({1, 2}, posted, plan).take().head));
  message.tensors.push_back(Tensor::scalar(1.0));
  BOOST_CHECK_THROW(read_small(message, said), Error);
  BOOST_CHECK_THROW(read_small(Message{{std::byte{20}}, {}}, said), Error);
}

// A number has one way to be written, and its index a largest one.
BOOST_AUTO_TEST_CASE(numbers_are_as_they_are_written) {
  const auto is_read = [](const std::vector<int>& token) {
    std::vector<std::byte> bytes(8);
    for (const int b : {2, 0, 1}) bytes.push_back(static_cast<std::byte>(b));
    for (const int b : token) bytes.push_back(static_cast<std::byte>(b));
    RunTokens said;
    try {
      read_small(bytes, said);
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
    read_small(SmallTokens({UINT64_MAX, UINT64_MAX}, one, numbered_plan()).bytes(), said);
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
  const SmallTokens small({0x0102030405060708, 1000}, both, numbered_plan());
  BOOST_TEST(small.bytes().size() <= direct::kFirst);
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
  for (const std::byte b : small.bytes()) got.push_back(static_cast<unsigned>(b));
  BOOST_TEST(got == expected, boost::test_tools::per_element());
}

// A grant, and tokens of each kind, in no loop and in one in another, at small numbers and large
// ones. Raise wire::kVersion when writing the file anew.
BOOST_AUTO_TEST_CASE(small_tokens_are_written_as_the_golden_file_has_them) {
  Path inner;
  inner.depth = 2;
  inner.number[0] = 3;
  inner.number[1] = 1'000'000;
  const RunKey run{0x0102030405060708, 1000};
  std::vector<Posted> posted{{0, Grant{{}, 300, inner, 1'000'032}},
                             {0, Token{{}, 1, false, Value(), {}, 1}},
                             {1, Token{{}, 2, true, Value(), inner, 40}},
                             {1, Token{{}, 128, false, Tensor::scalar(true), {}, 1}},
                             {0, Token{{}, 4, false, Tensor::scalar<std::int32_t>(-3), inner, 1}},
                             {0, Token{{}, 5, false, Tensor::scalar(1.5), inner, 300}}};
  const Plan plan = numbered_plan();
  const SmallTokens small(run, posted, plan);
  BOOST_REQUIRE(!small.bytes().empty());
  const Message message = small.message();
  test::check_golden("small_tokens", message.head);
  RunTokens was;
  read_small(Message{test::golden_bytes("small_tokens"), {}}, was);
  BOOST_TEST((was.run == run));
  BOOST_REQUIRE((was.grants.size() == 1 && was.tokens.size() == 5));
  BOOST_TEST((was.grants[0].path.number[1] == 1'000'000 && was.grants[0].last == 1'000'032));
  BOOST_TEST((written(was).take().head == written(run, posted, plan).take().head));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
