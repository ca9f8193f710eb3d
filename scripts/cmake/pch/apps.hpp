// Precompiled for apps/: what the binary and most examples include.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <troupe/troupe.hpp>
