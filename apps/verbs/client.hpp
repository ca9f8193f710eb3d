// How verbs ask a running node over HTTP.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/apps/verbs/verbs.hpp>

namespace troupe::verbs {

/// What GET `path` answers. Throws std::runtime_error with a sentence if nobody answers, or if it is refused; Misuse for what the
/// node does not know.
std::string fetch(const LookFlags& flags, const std::string& path, int patience_s = 10);
/// Percent-encoded, for a query.
std::string encoded(const std::string& text);

/// `draw` once, or again and again as `--watch` says; its status.
int repeat(const LookFlags& flags, const std::function<int()>& draw);
/// The one of `all` that is spelt most like it; empty if none is.
std::string nearest(const std::string& name, const std::vector<std::string>& all);

}  // namespace troupe::verbs
