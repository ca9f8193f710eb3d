// Numbers as text for people.
#pragma once

#include <string>

namespace troupe {

/// Returns a size with a binary unit: `12.5 KiB`.
std::string readable_bytes(double bytes);

}  // namespace troupe
