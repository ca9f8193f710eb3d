// Not under tsan: it has one thread.
// Rows of sharded variables under other numbers of shards.
#include <boost/test/unit_test.hpp>

#include <map>
#include <string>

#include <fmt/format.h>

#include <troupe/cluster/training/resharding.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/refusal.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(resharding_test)

namespace {

using Values = std::map<std::string, Tensor>;

// Shards whose row r has r, and r + 0.5; beside each a slot of rows, and a number of steps.
Values table(Partitioner::Kind kind, std::int64_t rows, std::int64_t shards) {
  Values values{{"other/shard-0", Tensor::scalar(1.f)}, {"t/shard-00", Tensor::scalar(2.f)}};
  const std::int64_t most = (rows + shards - 1) / shards;
  for (std::int64_t s = 0; s < shards; ++s) {
    std::vector<float> own, slot;
    for (std::int64_t r = 0; r < rows; ++r)
      if ((kind == Partitioner::Kind::modulo ? r % shards : r / most) == s) {
        own.insert(own.end(), {static_cast<float>(r), static_cast<float>(r) + 0.5f});
        slot.push_back(static_cast<float>(10 * r));
      }
    const auto count = static_cast<std::int64_t>(slot.size());
    values[fmt::format("t/shard-{}", s)] = Tensor::of<float>(own, Shape{count, 2});
    values[fmt::format("t/shard-{}/Adam/m", s)] = Tensor::of<float>(slot, Shape{count});
    values[fmt::format("t/shard-{}/Adam/steps", s)] = Tensor::scalar<std::int64_t>(7);
  }
  return values;
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_are_where_the_new_number_of_shards_has_them) {
  for (const auto kind : {Partitioner::Kind::range, Partitioner::Kind::modulo})
    for (const std::int64_t rows : {6, 7, 11})
      for (const std::int64_t from : {1, 2, 3})
        for (const std::int64_t to : {1, 2, 3, 5}) {
          if (kind == Partitioner::Kind::range && (rows + to - 1) / to * (to - 1) >= rows) continue;
          Values values = table(kind, rows, from);
          reshard(values, {"t", kind, rows}, to);
          const Values wanted = table(kind, rows, to);
          BOOST_REQUIRE(values.size() == wanted.size());
          for (const auto& [name, value] : wanted)
            BOOST_TEST(identical(values.at(name), value), name << " of " << from << " to " << to);
        }
}

BOOST_AUTO_TEST_CASE(shards_that_lack_rows_are_refused) {
  Values values = table(Partitioner::Kind::modulo, 7, 3);
  reshard(values, {"absent", Partitioner::Kind::range, 7}, 2);
  refusal([&] { reshard(values, {"t", Partitioner::Kind::modulo, 9}, 2); }, Code::data_loss);
  values = table(Partitioner::Kind::modulo, 7, 3);
  values.erase("t/shard-1/Adam/m");
  refusal([&] { reshard(values, {"t", Partitioner::Kind::modulo, 7}, 2); }, Code::data_loss);
}

BOOST_AUTO_TEST_SUITE_END()
