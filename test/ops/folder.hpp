// A directory of a test's own, gone afterwards.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>

#include <boost/test/unit_test.hpp>

namespace troupe::test {

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-test-XXXXXX").string();
    BOOST_REQUIRE(mkdtemp(name.data()));
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator()));
  }
};

}  // namespace troupe::test
