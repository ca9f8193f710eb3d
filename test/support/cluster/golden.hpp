// Golden files: bytes as they were once written, which another version of this program has to read.
// TROUPE_WRITE_GOLDEN=1 writes them anew, after a deliberate change of a format that raised its
// version (for the wire, wire::kVersion).
#pragma once

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/test/support/source_dir.hpp>

namespace troupe::test {

inline std::string hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    text += fmt::format("{:02x}{}", static_cast<unsigned>(bytes[i]), i % 32 == 31 ? "\n" : " ");
  return text;
}

inline std::string golden_path(const std::string& name) {
  return std::string(kSourceDir) + "/test/cluster/golden/" + name + ".golden";
}

inline std::vector<std::byte> golden_bytes(const std::string& name) {
  std::ifstream file(golden_path(name));
  BOOST_REQUIRE_MESSAGE(file, "there is no " + golden_path(name));
  std::vector<std::byte> bytes;
  for (std::string pair; file >> pair;)
    bytes.push_back(static_cast<std::byte>(std::stoi(pair, nullptr, 16)));
  return bytes;
}

/// They are as the file has them.
inline void check_golden(const std::string& name, const std::vector<std::byte>& bytes) {
  if (std::getenv("TROUPE_WRITE_GOLDEN")) std::ofstream(golden_path(name)) << hex(bytes) << "\n";
  BOOST_TEST(hex(bytes) == hex(golden_bytes(name)), name);
}

}  // namespace troupe::test
