// libFuzzer: direct sends of a process of the same host. Even: words and lines of a ring of
// direct records, as a process that has mapped the memory may write them; two bytes are a step: an
// action and its amount. Odd: a direct record of tokens; a readable direct record is written, and
// must then read as the same. Instruments: cluster/transport/channel/direct_ring.cpp
// cluster/protocol/run_tokens.cpp
#include <algorithm>
#include <cstring>
#include <vector>

#include <troupe/cluster/protocol/run_tokens.hpp>
#include <troupe/cluster/transport/channel/direct_ring.hpp>
#include <troupe/test/fuzz/input.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

void check_tokens(std::span<const std::byte> bytes) {
  RunTokens said;
  read_tokens(bytes, said);
  Plan plan;
  std::vector<Posted> posted;
  const auto to = [&](std::int32_t partition) {
    plan.partitions.emplace_back().number = partition;
    return static_cast<std::int32_t>(plan.partitions.size() - 1);
  };
  for (const RunGrant& g : said.grants)
    posted.push_back({to(g.partition), Grant{{}, g.send, g.path, g.last}});
  for (const RunToken& t : said.tokens)
    posted.push_back({to(t.partition), Token{{}, t.receive, t.is_dead, t.value, t.path, t.times}});
  const WrittenTokens again(said.run, posted, plan);
  demand(again.record().empty() == (bytes.size() > direct::kMost));
  if (again.record().empty()) return;
  demand(again.record().size() == bytes.size());
  RunTokens back;
  read_tokens(again.record(), back);
  demand(written_tokens(back).head == written_tokens(said).head);
}

void step(DirectWords& words, direct::Line* lines, DirectWriter& writer, DirectReader& reader,
          unsigned what, unsigned much, Input& in) {
  switch (what % 7) {
    case 0: {
      const std::vector<std::byte> record(much * much % (direct::kMost + 2));
      const bool is_in = writer.write(much, record, much % 3 != 0);
      demand(!is_in ||
             (!record.empty() && record.size() <= direct::kMost && words.open.load() != 0));
      break;
    }
    case 1: {
      const bool was_broken = reader.is_broken();
      if (much % 4 < 3) reader.look();
      const auto first = reader.first();
      demand(!first || (!first->bytes.empty() && first->bytes.size() <= direct::kMost));
      demand(!was_broken || !first || reader.has_first());
      if (!first) break;
      unsigned sum = 0;
      for (const std::byte b : first->bytes) sum += static_cast<unsigned>(b);
      demand(sum <= 255 * direct::kMost);
      if (much % 2 == 0) {
        reader.take();
        demand(!reader.has_first());
      }
      break;
    }
    case 2:
      if (much % 2 == 0) {
        reader.open(much);
        break;
      }
      reader.close();
      // no more than a ring
      for (std::size_t left = direct::kLines; reader.first(); reader.take()) demand(left-- > 0);
      break;
    // Inputs of the other process: more direct records, or anything.
    case 3: {  // a direct record, of the first round perhaps
      const std::uint64_t line = (much & 15) * (much >> 4);
      lines[line % direct::kLines].front.store(direct::front_of(line, much * much));
      break;
    }
    case 4: words.read.fetch_add(much * much / 16); break;
    case 5: {
      std::uint64_t value = 0;
      for (int i = 0; i < 8; ++i) value = value << 8 | in.next();
      (much % 2 == 0 ? lines[much / 2].front : words.read).store(value);
      break;
    }
    default: words.open.store(much % 2); break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace std::string_literals;
  seed("\0\2\0\0\x10\1\0\0\x20\0\x40\1\0\1\1\1\0"s);
  seed("\0\2\0\6\0\x20\0\3\x10\1\0\1\0"s);
  seed("\0\2\0\0\xff\0\xff\4\x10\0\xff\2\1\0\1\1\0"s);
  Path path;
  path.depth = 2;
  path.number[1] = 7;
  Plan plan;
  plan.partitions.resize(1);
  const std::vector<Posted> posted{{0, Grant{{}, 1, path, 9}},
                                   {0, Token{{}, 2, false, Tensor::scalar(1.5), path, 3}},
                                   {0, Token{{}, 3, true, {}, {}, 1}}};
  const WrittenTokens tokens({1, 2}, posted, plan);
  seed("\1"s.append(reinterpret_cast<const char*>(tokens.record().data()), tokens.record().size()));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  Input in(data, size);
  if (in.next() % 2 == 1) {
    const std::string record = in.rest();
    try {
      check_tokens(std::as_bytes(std::span(record)));
    } catch (const Error&) {}
    return 0;
  }
  DirectWords words{};
  std::vector<direct::Line> lines(direct::kLines);
  DirectWriter writer(words, lines.data());
  DirectReader reader(words, lines.data());
  for (std::size_t left = std::min<std::size_t>(size / 2, 256); left > 0; --left) {
    const unsigned what = in.next(), much = in.next();
    step(words, lines.data(), writer, reader, what, much, in);
  }
  return 0;
}
