// Describes this machine in words, from /proc, /sys and the CUDA driver.
#pragma once

#include <string>

namespace troupe::verbs {

std::string processor();
/// The processor's features that Troupe's kernels use.
std::string processor_features();
/// Cores this process may use, and cores of the machine.
std::string cores();
std::string memory();
std::string huge_pages();
/// Names of the GPUs, or why there is none.
std::string gpu();

}  // namespace troupe::verbs
