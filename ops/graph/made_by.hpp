// The parts of a fused node, for errors that name the operation within it. Kept only where
// `CompileOptions::check_finite` is set, as an attribute of text, one line a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/scalar/scalar_program.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

/// The attribute of a watched node. It begins with '=', with '?' if an operand may contain values
/// that are not finite by the user's intention, or with '!' if its own program makes them. Then
/// follows the node's name for errors, if it is not its own name.
inline constexpr std::string_view kWatched = "check_finite";
/// The attribute with the parts.
inline constexpr std::string_view kMadeBy = "made_by";

/// An operation in a node's program.
struct Part {
  std::int64_t last = -1;  // instruction that is its result; -1: it comes after the program
  std::string text;        // `Log 'loss/Log_7' (train.cpp:41)`
};
std::vector<Part> parts_of(const Attrs& attrs);
/// Appends the parts of a node whose program, `of`, is about to be appended to one that has `base`
/// instructions. Nothing for a node that has none.
void add_parts(std::string& all, const Attrs& member, const ScalarProgram& of, std::size_t base);
void add_part(std::string& all, std::int64_t last, std::string_view text);
/// The text of a node with one part; empty: it has none.
std::string part_text(const Attrs& attrs);
/// Sets the attribute, unless there are none.
void set_parts(Attrs& attrs, std::string all);

}  // namespace troupe
