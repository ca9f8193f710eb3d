// Not under tsan: it encodes and decodes on one thread.
// Records of a training: the bytes of event files, what is kept in memory, what is refused.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/ops/format/crc32c.hpp>
#include <troupe/ops/format/event_file.hpp>
#include <troupe/ops/format/records.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/source_dir.hpp>
#include <troupe/test/support/temp_directory.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(records_test)

namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  BOOST_REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string hex_of(const std::string& bytes) {
  std::string text;
  for (unsigned char c : bytes) text += fmt::format("{:02x}", c);
  return text;
}

// The file that holds one of each kind.
void record_one_of_each(Records& records) {
  records.scalar("loss", 0, 2.5);
  records.scalar("loss", 300, 0.125);
  records.histogram("weights/w", 1, Tensor::of<float>({-1, 0, 0.5, 2}, {4}));
  records.text("sample", 2, "In the beginning \xF0\x9F\x8C\x8D");
}

std::int64_t a_second_each(std::int64_t& now) { return now += 1'000'000'000; }

}  // namespace

BOOST_AUTO_TEST_CASE(the_checksum_is_castagnolis) {
  BOOST_TEST(crc32c("") == 0u);
  // the check value of the catalogue of CRCs
  BOOST_TEST(crc32c("123456789") == 0xE3069283u);
  BOOST_TEST(crc32c(std::string(32, '\0')) == 0x8A9136AAu);  // RFC 3720, B.4
}

BOOST_AUTO_TEST_CASE(files_are_the_golden_bytes) {
  Folder folder;
  std::int64_t now = 1'600'000'000'000'000'000;
  Records records(folder / "runs/1", [&] { return a_second_each(now); });
  record_one_of_each(records);
  BOOST_TEST(
      fs::path(records.path()).filename().string().starts_with("events.out.tfevents.1600000001."));
  std::ifstream golden(fs::path(kSourceDir) / "test/ops/golden/events.golden");
  std::string line, want;
  while (std::getline(golden, line)) want += line;
  BOOST_TEST(hex_of(read(records.path())) == want);
}

BOOST_AUTO_TEST_CASE(a_record_is_in_the_file_at_once) {
  Folder folder;
  Records records(folder.path());
  const auto before = fs::file_size(records.path());
  records.scalar("loss", 0, 1);
  BOOST_TEST(fs::file_size(records.path()) > before);
}

BOOST_AUTO_TEST_CASE(progress_is_the_last_and_since_when) {
  std::int64_t now = 5'000'000'000;
  Folder folder;
  Records records(folder.path(), [&] { return a_second_each(now); });
  const auto size = fs::file_size(records.path());
  records.progress({.step = 10, .unit = std::string(1000, 'x')});
  records.progress({.step = 30, .steps = 200, .loss = 1.5, .rate = 40, .unit = "images"});
  BOOST_TEST(fs::file_size(records.path()) == size);
  using nlohmann::json;
  const json told = json::parse(records.json(99));  // no step is above 99
  BOOST_REQUIRE(told.size() == 1u);
  BOOST_TEST(told[0]["kind"] == "progress");
  BOOST_TEST(told[0]["points"] == json::parse(R"([[30, 8000000000, {"steps": 200, "loss": 1.5,
      "validation": null, "rate": 40.0, "unit": "images", "began_step": 10,
      "began_ns": 7000000000}]])"));
  records.scalar("progress", 3, 1);  // a user's curve of that name is another
  BOOST_TEST(json::parse(records.json()).size() == 2u);
}

BOOST_AUTO_TEST_CASE(memory_holds_what_was_recorded) {
  Records records;
  record_one_of_each(records);
  records.scalar("loss", 301, std::numeric_limits<double>::quiet_NaN());
  records.scalar("loss", 302, Tensor::of<float>({7}, {1}));
  const auto series = nlohmann::json::parse(records.json());
  BOOST_REQUIRE(series.size() == 3u);
  BOOST_TEST(series[0]["name"] == "loss");
  BOOST_TEST(series[0]["kind"] == "scalar");
  BOOST_REQUIRE(series[0]["points"].size() == 4u);
  BOOST_TEST(series[0]["points"][1][0] == 300);
  BOOST_TEST(series[0]["points"][1][2] == 0.125);
  BOOST_TEST(series[0]["points"][2][2].is_null());
  BOOST_TEST(series[0]["points"][3][2] == 7.0);
  BOOST_TEST(series[1]["kind"] == "text");
  BOOST_TEST(series[2]["points"][0][2]["min"] == -1.0);
  BOOST_TEST(series[2]["points"][0][2]["counts"].size() == 30u);
  BOOST_TEST(nlohmann::json::parse(records.json(300))[0]["points"].size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_histogram_counts_every_finite_element_once) {
  Records records;
  const double inf = std::numeric_limits<double>::infinity();
  records.histogram("spread", 0, Tensor::of<double>({1, 2, 3, inf, std::nan("")}, {5}));
  records.histogram("equal", 0, Tensor::of<double>({4, 4}, {2}));
  records.histogram("none", 0, Tensor::of<double>({inf}, {1}));
  records.histogram("wide", 0, Tensor::of<double>({-1e308, 1e308}, {2}));
  std::map<std::string, double> counted;
  for (const auto& s : nlohmann::json::parse(records.json()))
    for (const auto& c : s["points"][0][2]["counts"]) counted[s["name"]] += c.get<double>();
  BOOST_TEST(counted["spread"] == 3);
  BOOST_TEST(counted["equal"] == 2);
  BOOST_TEST(counted["none"] == 0);
  BOOST_TEST(counted["wide"] == 2);
}

BOOST_AUTO_TEST_CASE(a_curve_of_any_length_stays_whole_in_bounded_memory) {
  Records records;
  const std::int64_t n = 100'001;
  std::size_t most = 0;
  for (std::int64_t step = 0; step < n; ++step) {
    records.scalar("loss", step, static_cast<double>(step));
    if (step % 9973 != 0 && step != n - 1) continue;
    const auto points = nlohmann::json::parse(records.json())[0]["points"];
    most = std::max(most, points.size());
    BOOST_TEST(points.front()[0] == 0);
    BOOST_TEST(points.back()[0] == step);
    const std::int64_t stride = points.size() > 1 ? points[1][0].get<std::int64_t>() : 1;
    for (std::size_t i = 1; i + 1 < points.size(); ++i)
      BOOST_REQUIRE(points[i][0].get<std::int64_t>() == static_cast<std::int64_t>(i) * stride);
  }
  BOOST_TEST(most <= Records::kMostPoints);
  BOOST_TEST(most > Records::kMostPoints / 4);
  for (int i = 0; i < 100; ++i) records.text("text", i, std::string(Records::kMostText + 1, 'x'));
  const auto texts = nlohmann::json::parse(records.json())[1]["points"];
  BOOST_TEST(texts.size() == Records::kMostTexts);
  BOOST_TEST(texts.back()[0] == 99);
  BOOST_TEST(texts.back()[2].get<std::string>().size() == Records::kMostText);
}

BOOST_AUTO_TEST_CASE(records_refuse_inconsistent_entries) {
  Records records;
  records.scalar("loss", 0, 1);
  BOOST_TEST(refusal([&] { records.text("loss", 1, "x"); }, Code::invalid_argument)
                 .find("as a scalar before") != std::string::npos);
  BOOST_TEST(
      refusal([&] { records.scalar("", 1, 1); }, Code::invalid_argument).find("needs a tag") !=
      std::string::npos);
  BOOST_TEST(refusal(
                 [&] {
                   records.scalar("w", 1, Tensor::of<float>({1, 2}, {2}));
                 },
                 Code::invalid_argument)
                 .find("one element") != std::string::npos);
  for (std::size_t i = 1; i < Records::kMostTags; ++i)
    records.scalar(fmt::format("tag {}", i), 0, 0);
  BOOST_TEST(refusal([&] { records.scalar("one more", 0, 0); }, Code::resource_exhausted)
                 .find("do not put steps") != std::string::npos);
  records.scalar("loss", 1, 1);  // the old ones go on
  BOOST_TEST(refusal([] { Records in_a_file("/dev/null/runs"); }, Code::failed_precondition)
                 .find("cannot be made") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(threads_record_side_by_side) {
  Folder folder;
  Records records(folder.path());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&records, t] {
      for (int i = 0; i < 200; ++i) records.scalar(fmt::format("curve {}", t), i, i);
    });
  for (auto& t : threads) t.join();
  for (const auto& s : nlohmann::json::parse(records.json()))
    BOOST_TEST(s["points"].size() == 200u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
