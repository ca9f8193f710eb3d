// Precompiled once for all test binaries: what most suites include, the engine's and the cluster's
// insides among it, of which a suite of cluster/ would read 2 s of headers by itself.
#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/cluster/transport/router.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/troupe.hpp>
