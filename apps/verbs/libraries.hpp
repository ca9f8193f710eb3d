// The libraries that this binary was built with, and the files that the loader found.
#pragma once

#include <string>
#include <vector>

namespace troupe::verbs {

struct Library {
  std::string name;
  std::string version;  // version of the headers at build time
  // the shared object in this process; empty: the library is headers only, or was not loaded
  std::string file;
};

std::vector<Library> libraries();
/// `g++ 12.2.0, release`
std::string compiler();

}  // namespace troupe::verbs
