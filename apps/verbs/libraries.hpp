// What this binary was built with, and where the loader found it.
#pragma once

#include <string>
#include <vector>

namespace troupe::verbs {

struct Library {
  std::string name;
  std::string version;  // of the headers it was built with
  // the shared object in this process; empty: the library is headers only, or was not loaded
  std::string file;
};

std::vector<Library> libraries();
/// `g++ 12.2.0, release`
std::string compiler();

}  // namespace troupe::verbs
