// Precompiled for actors/: CAF, which takes two seconds a file.
#include <fmt/format.h>
#include <caf/all.hpp>
#include <troupe/ops/graph/graph.hpp>
