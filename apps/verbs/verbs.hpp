// The verbs of the binary `troupe`, one file each.
//
//   void add_version(CLI::App& app, int& status) {
//     app.add_subcommand("version", "what this binary is")->callback([] { ... });
//   }
//
// A verb adds its sub-command, with its flags, to `app`; its callback does the work and sets `status`, the
// process's exit status, which is 0 unless it says otherwise: 1 where the verb found something amiss.
// It throws `Misuse` if what the user asked for makes no sense; main prints it and exits with 2.
#pragma once

#include <CLI/CLI.hpp>
#include <stdexcept>

namespace troupe::verbs {

/// A command line that cannot be meant: the message says what to do instead.
struct Misuse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void add_doctor(CLI::App& app, int& status);
void add_ops(CLI::App& app, int& status);
void add_version(CLI::App& app, int& status);

}  // namespace troupe::verbs
