// Not under tsan: it has one thread.
// The folder of checkpoints: which stay, what their heads say, and a file damaged at each byte.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <troupe/cluster/training/checkpoint_folder.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(checkpoint_folder_test)

namespace {

NamedTensors values_of(float first) {
  return {{"b", Tensor::of<float>({first, 2}, {2})}, {"w", Tensor::of<double>({1, 2, 3}, {3, 1})}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_newest_and_the_best_stay) {
  Folder place;
  const CheckpointFolder folder(place / "made");
  const std::vector<double> metrics{0.9, 0.2, 0.5, 0.4, 0.7};
  for (std::size_t i = 0; i < metrics.size(); ++i)
    folder.write(static_cast<std::int64_t>(10 * i), values_of(static_cast<float>(i)), metrics[i]);
  BOOST_TEST(folder.steps() == std::vector<std::int64_t>({0, 10, 20, 30, 40}),
             boost::test_tools::per_element());
  folder.prune({.newest = 2, .best = true});
  BOOST_TEST(folder.steps() == std::vector<std::int64_t>({10, 30, 40}),
             boost::test_tools::per_element());
  const auto entries = folder.entries();
  BOOST_REQUIRE(entries[0].metric.has_value());
  BOOST_TEST(*entries[0].metric == 0.2);
  BOOST_TEST(entries[0].time > 1'700'000'000);
  BOOST_TEST(entries[0].bytes == std::filesystem::file_size(entries[0].path));
  // All were written within one span or two, of which the first stays.
  folder.prune({.newest = 1, .span = std::chrono::hours(1'000'000)});
  BOOST_TEST(folder.steps() == std::vector<std::int64_t>({10, 40}),
             boost::test_tools::per_element());
  const TensorFile file = folder.read(40);
  BOOST_TEST(file.at("b").at(0) == 4);
}

BOOST_AUTO_TEST_CASE(the_checkpoint_just_written_stays) {
  Folder place;
  const CheckpointFolder folder(place.path());
  for (const std::int64_t step : {100, 200}) folder.write(step, values_of(1), 1.0);
  write_file(folder.path(200), "damaged");
  folder.write(110, values_of(2), 2.0);
  folder.prune({.newest = 1, .best = true}, 110);
  BOOST_TEST(folder.steps() == std::vector<std::int64_t>({100, 110, 200}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_file_damaged_at_any_byte_is_refused_by_name) {
  Folder place;
  const CheckpointFolder folder(place.path());
  folder.write(7, values_of(1));
  const std::string whole = read_file(folder.path(7));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x15);
    write_file(folder.path(7), damaged);
    try {
      folder.read(7);
      BOOST_ERROR("byte " << i << " is damaged, and the file was read");
    } catch (const Error& e) {
      BOOST_TEST((e.code() == Code::data_loss || e.code() == Code::unimplemented), e.what());
      BOOST_TEST(std::string(e.what()).find(folder.path(7)) != std::string::npos, e.what());
    }
  }
  for (std::size_t length : {std::size_t{0}, std::size_t{9}, whole.size() / 2, whole.size() - 1}) {
    write_file(folder.path(7), whole.substr(0, length));
    BOOST_CHECK_THROW(folder.read(7), Error);
    BOOST_TEST(folder.entries().size() == 1u);
  }
}

BOOST_AUTO_TEST_CASE(other_files_are_no_checkpoints) {
  Folder place;
  const CheckpointFolder folder(place.path());
  folder.write(3, values_of(1));
  for (const char* name : {"step-.safetensors", "step-x.safetensors", "step-4.txt", "4.safetensors",
                           "step-99999999999999999999.safetensors"})
    write_file(place / name, "");
  BOOST_TEST(folder.steps() == std::vector<std::int64_t>({3}), boost::test_tools::per_element());
  std::filesystem::rename(folder.path(3), folder.path(5));
  BOOST_TEST(refusal([&] { folder.read(5); }, Code::data_loss).find("of step 5") !=
             std::string::npos);
  BOOST_TEST(refusal([&] { CheckpointFolder(place / "none", false); }, Code::not_found)
                 .find("there is no folder of checkpoints") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
