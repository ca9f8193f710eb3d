// troupe version: identifies this binary and the libraries it was built with.
#include <troupe/apps/verbs/verbs.hpp>

#include <fmt/format.h>

#include <troupe/apps/verbs/libraries.hpp>

namespace troupe::verbs {

int version() {
  fmt::print("troupe {}\ncompiler: {}\n", TROUPE_VERSION, compiler());
  for (const Library& library : libraries()) fmt::print("{}: {}\n", library.name, library.version);
  return 0;
}

}  // namespace troupe::verbs
