// Precompiled once for all test binaries.
#include <boost/test/unit_test.hpp>
#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <troupe/troupe.hpp>
