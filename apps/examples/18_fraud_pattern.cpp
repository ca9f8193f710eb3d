// A fraud pattern over files of card events: two payments of one card in different cities within an
// hour, unless a call confirms them within 10 minutes. The events arrive out of order.
//
//   fraud_pattern                         # at the three levels of consistency
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <troupe/troupe.hpp>

using namespace troupe;

namespace {

constexpr const char* kQuery = R"(
EVENT Fraud
WHEN UNLESS(SEQUENCE(PAID x LAST, PAID y, 1 hour), CONFIRMED z, 10 minutes)
WHERE CorrelationKey(card, EQUAL) AND {x.city != y.city} AND {x.amount + y.amount > 1000}
OUTPUT x.card, x.city AS first, y.city AS second, x.amount + y.amount AS amount
)";

// Times are seconds. Card 7 is in two cities within the hour; card 8 is too, and confirmed; card 9
// takes longer; card 5 pays little. The first payment of card 7 comes last in the file.
void write_files() {
  std::ofstream("fraud_paid.csv") << "time,card,city,amount\n"
                                     "1500,7,Oslo,900\n"
                                     "2000,8,Rome,800\n"
                                     "2300,8,Bern,700\n"
                                     "2400,5,Oslo,20\n"
                                     "2500,5,Rome,30\n"
                                     "3000,9,Bern,900\n"
                                     "7000,9,Oslo,900\n"
                                     "1200,7,Rome,400\n";
  std::ofstream("fraud_confirmed.csv") << "time,card\n2700,8\n9000,7\n";
}

std::string contents(const char* name) {
  std::ifstream in(name);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

int main() try {
  write_files();
  std::map<std::string, events::FileEvents> files;
  std::vector<events::EventType> types;
  for (const auto& [type, name] :
       {std::pair("PAID", "fraud_paid.csv"), {"CONFIRMED", "fraud_confirmed.csv"}}) {
    files[type] = events::events_of_file(events::FileKind::csv, contents(name));
    types.push_back({type, files[type].schema});
    std::remove(name);
  }
  events::Query query = events::parse_query(kQuery, types);
  std::printf("%s", query.explain().c_str());

  bool are_equal = true;
  const std::string expected =
      "begin,end,card:integer,first:text,second:text,amount:integer\n"
      "2100,4800,7,Rome,Oslo,1300\n";
  for (const auto& [name, level] : {std::pair("strong", events::Consistency::strong()),
                                    {"middle", events::Consistency::middle()}}) {
    query.set_consistency(level);
    events::RowWriter changes(query.steps()[query.outputs()[0].step].schema,
                              events::RowForm::changes, events::FileKind::csv),
        table(query.steps()[query.outputs()[0].step].schema, events::RowForm::table,
              events::FileKind::csv);
    events::DirectRun run(query, [&](std::size_t, const events::Batch& batch) {
      changes.add(batch);
      table.add(batch);
    });
    events::feed_files(run, query, files);
    const std::string rows = table.take();
    std::printf("\n%s, as they come\n%s%s, at last\n%s", name, changes.take().c_str(), name,
                rows.c_str());
    are_equal = are_equal && rows == expected;
  }
  return are_equal ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
