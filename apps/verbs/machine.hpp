// What this machine offers, in words, read from /proc, /sys and the CUDA driver.
#pragma once

#include <string>

namespace troupe::verbs {

std::string processor();
/// Of its features, those that Troupe's kernels use.
std::string processor_features();
/// Cores this process may use, and those there are.
std::string cores();
std::string memory();
std::string huge_pages();
/// Names of the GPUs, or why there is none.
std::string gpu();

}  // namespace troupe::verbs
