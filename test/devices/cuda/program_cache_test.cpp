// The cache of programs that NVRTC compiled: memory, files, damage, limits, threads, missing
// libraries.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>

#include <troupe/test/devices/cuda/programs.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::cuda;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(cuda_program_cache)

namespace {

const PrintedProgram& small_program() {
  static const PrintedProgram printed = [] {
    Recorder r(1);
    r.finish(r.input(0) + 1.0);
    const ScalarProgram p = r.typed(std::array{DType::f32});
    return print_program(p, flat_form(p));
  }();
  return printed;
}
auto get_small(ProgramCache& cache) {
  return cache.get(small_program().text, small_program().name);
}

}  // namespace

BOOST_AUTO_TEST_CASE(cache_finds_in_memory_and_in_files) {
  if (!has_nvrtc()) return;
  Folder folder;
  ProgramCache cache({.folder = folder / "made/by it"});
  const auto image = get_small(cache);
  BOOST_TEST(get_small(cache) == image);
  BOOST_TEST(cache.counters().compiled == 1u);
  BOOST_TEST(cache.counters().from_memory == 1u);
  BOOST_TEST(cache.problem() == "");
  ProgramCache second({.folder = folder / "made/by it"});
  BOOST_TEST(*get_small(second) == *image);
  BOOST_TEST(second.counters().from_files == 1u);
  BOOST_TEST(second.counters().compiled == 0u);
  // PTX for what NVRTC does not know; another file, and another image.
  ProgramCache newer({.folder = folder / "made/by it", .architecture = 999});
  const auto ptx = get_small(newer);
  BOOST_TEST(newer.counters().compiled == 1u);
  BOOST_TEST(ptx->find(".visible .entry " + small_program().name) != std::string::npos);
}

BOOST_AUTO_TEST_CASE(damaged_files_are_compiled_anew) {
  if (!has_nvrtc()) return;
  Folder folder;
  ProgramCache first({.folder = folder.path()});
  const std::string image = *get_small(first);
  BOOST_TEST_REQUIRE(folder.files().size() == 1u);
  const std::string path = folder / folder.files()[0], whole = read_file(path);
  std::string flipped = whole;
  flipped[flipped.size() / 2] ^= 1;
  for (const std::string& damaged :
       {flipped, whole.substr(0, whole.size() - 1), whole.substr(0, 5), std::string()}) {
    write_file(path, damaged);
    ProgramCache cache({.folder = folder.path()});
    BOOST_TEST(*get_small(cache) == image);
    BOOST_TEST(cache.counters().damaged == 1u);
    BOOST_TEST(cache.counters().compiled == 1u);
    BOOST_TEST((read_file(path) == whole));
  }
  BOOST_TEST(folder.files().size() == 1u);
}

// Files may not be made below a file, even by root.
BOOST_AUTO_TEST_CASE(folder_that_cannot_be_written_is_named) {
  if (!has_nvrtc()) return;
  Folder folder;
  write_file(folder / "file", "");
  ProgramCache cache({.folder = folder / "file/below"});
  BOOST_TEST(!get_small(cache)->empty());
  BOOST_TEST(cache.counters().compiled == 1u);
  BOOST_TEST(cache.problem().find("file/below") != std::string::npos, cache.problem());
  if (geteuid() == 0) return;
  std::filesystem::permissions(
      folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  ProgramCache barred({.folder = folder.path()});
  BOOST_TEST(!get_small(barred)->empty());
  BOOST_TEST(barred.problem() != "");
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
}

BOOST_AUTO_TEST_CASE(files_used_longest_ago_go_first) {
  if (!has_nvrtc()) return;
  Folder folder;
  std::vector<PrintedProgram> programs;
  for (const double c : {1.0, 2.0, 3.0}) {
    Recorder r(1);
    r.finish(r.input(0) + c);
    const ScalarProgram p = r.typed(std::array{DType::f32});
    programs.push_back(print_program(p, flat_form(p)));
  }
  std::uint64_t bytes = 0;
  {
    ProgramCache cache({.folder = folder.path()});
    for (int i : {0, 1}) cache.get(programs[i].text, programs[i].name);
    for (const std::string& f : folder.files()) {
      bytes += std::filesystem::file_size(folder / f);
      // both long ago, so that the next use is later whatever the clock's step
      std::filesystem::last_write_time(
          folder / f, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    }
  }
  BOOST_TEST_REQUIRE(folder.files().size() == 2u);
  ProgramCache cache({.folder = folder.path(), .limit = bytes + 16});
  cache.get(programs[0].text, programs[0].name);  // now 1 was used longest ago
  BOOST_TEST(cache.counters().from_files == 1u);
  cache.get(programs[2].text, programs[2].name);
  BOOST_TEST(folder.files().size() == 2u);
  ProgramCache after({.folder = folder.path()});
  after.get(programs[0].text, programs[0].name);
  after.get(programs[2].text, programs[2].name);
  BOOST_TEST(after.counters().from_files == 2u);
  ProgramCache tiny({.folder = folder / "tiny", .limit = 10});
  BOOST_TEST(!get_small(tiny)->empty());
  BOOST_TEST(!std::filesystem::exists(folder / "tiny"));
}

BOOST_AUTO_TEST_CASE(threads_that_ask_at_once_compile_once) {
  if (!has_nvrtc()) return;
  Folder folder;
  ProgramCache cache({.folder = folder.path()});
  std::vector<std::shared_ptr<const std::string>> images(4);
  std::vector<std::thread> threads;
  for (auto& image : images) threads.emplace_back([&] { image = get_small(cache); });
  for (std::thread& t : threads) t.join();
  for (const auto& image : images) BOOST_TEST(image == images[0]);
  BOOST_TEST(cache.counters().compiled == 1u);
  BOOST_TEST(cache.counters().from_memory == 3u);
}

BOOST_AUTO_TEST_CASE(text_that_does_not_compile_shows_the_log) {
  if (!has_nvrtc()) return;
  Folder folder;
  ProgramCache cache({.folder = folder.path()});
  for (int twice = 0; twice < 2; ++twice) {
    std::string said;
    try {
      cache.get("void wrong() { no_such_function(); }", "wrong");
    } catch (const Error& e) {
      said = e.what();
      BOOST_TEST((e.code() == Code::internal));
    }
    BOOST_TEST(said.find("no_such_function") != std::string::npos, said);
  }
  BOOST_TEST(folder.files().empty());
}

BOOST_AUTO_TEST_CASE(missing_library_is_named) {
  Folder folder;
  ProgramCache cache({.folder = folder.path(), .library = folder / "libnvrtc.so.99"});
  for (int twice = 0; twice < 2; ++twice) {
    std::string said;
    try {
      get_small(cache);
    } catch (const Error& e) {
      said = e.what();
      BOOST_TEST((e.code() == Code::failed_precondition));
    }
    BOOST_TEST(said.find("libnvrtc.so.99") != std::string::npos, said);
  }
  setenv("TROUPE_CUDA_LIBRARIES", (folder.path() + ":/nowhere").c_str(), 1);
  std::string looked;
  BOOST_TEST(!open_cuda_library({"libtroupe_no_such.so.7", "libtroupe_no_such.so"}, &looked));
  for (const std::string& part : {std::string("libtroupe_no_such.so.7"), folder.path(),
                                  std::string("/nowhere"), std::string("/usr/local/cuda/lib64")})
    BOOST_TEST(looked.find(part) != std::string::npos, looked);
  unsetenv("TROUPE_CUDA_LIBRARIES");
}

BOOST_AUTO_TEST_SUITE_END()
