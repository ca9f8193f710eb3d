// troupe version: what this binary is and what it was built with.
#include <troupe/apps/verbs/verbs.hpp>

#include <fmt/format.h>

#include <troupe/apps/verbs/libraries.hpp>

namespace troupe::verbs {

void add_version(CLI::App& app, int&) {
  app.add_subcommand("version", "Print the version, the compiler and the libraries it was built with")->callback([] {
    fmt::print("troupe {}\ncompiler: {}\n", TROUPE_VERSION, compiler());
    for (const Library& library : libraries()) fmt::print("{}: {}\n", library.name, library.version);
  });
}

}  // namespace troupe::verbs
