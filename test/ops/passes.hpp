// Helpers for tests of passes.
#pragma once

#include <boost/test/unit_test.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe::test {

/// Nodes of an op.
inline int count(const Program& p, std::string_view op) {
  int n = 0;
  for (const Node& node : p.graph.nodes()) n += node.op->name == op;
  return n;
}

/// Both programs yield the same bits.
inline void same_values(const Program& before, const Program& after,
                        const std::vector<Tensor>& feeds, const std::string& where) {
  std::vector<Tensor> a = Eager().run(before, feeds), b = Eager().run(after, feeds);
  BOOST_REQUIRE_EQUAL(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    BOOST_CHECK_MESSAGE(identical(a[i], b[i]),
                        where << ": fetch " << i << ": " << a[i].text() << " and " << b[i].text());
}

}  // namespace troupe::test
