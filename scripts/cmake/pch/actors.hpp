// Precompiled for actors/: CAF, which takes two seconds a file.
#include <caf/all.hpp>
#include <fmt/format.h>
#include <troupe/ops/graph/graph.hpp>
