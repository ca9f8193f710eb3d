// Placement: which device each node of a lowered program runs on.
#pragma once

#include <string>
#include <vector>

#include <troupe/ops/program.hpp>

namespace troupe {

struct Placed {
  Program program;
  std::vector<std::string> device;  // of each node
};

/// A node goes where its constraint says, else where its state lives, else to the default device. What
/// only moves tokens goes with what it serves: a Switch and an Exit with their producer; a loop
/// variable (Enter, Merge, NextIteration) where its next value is made; a constant Enter to every
/// device that uses it, so that the value crosses once an instance and not once an iteration.
/// Throws invalid_argument if constraint and state contradict.
Placed place(Program program, const std::string& default_device);

}  // namespace troupe
