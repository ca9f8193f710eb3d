// Names of `troupe::detail` without qualification, for the library's own sources and its tests. No
// public header includes this one, so that `using namespace troupe` shows users public names only.
#pragma once

namespace troupe {

namespace detail {}
using namespace detail;  // NOLINT

}  // namespace troupe
