// Precompiled for ops/: what every operation includes, but for functions.hpp, which every new op
// changes.
#include <fmt/format.h>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>
