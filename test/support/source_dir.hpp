// The root of the source tree, whose files some tests read.
#pragma once

namespace troupe::test {

/// An absolute path; defined beside main, the one file that is compiled with paths.
extern const char* const kSourceDir;

}  // namespace troupe::test
