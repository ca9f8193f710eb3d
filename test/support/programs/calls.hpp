// Helpers shared by the suites of functions in graphs.
#pragma once

#include <boost/test/unit_test.hpp>

#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

using One = GraphFunction<Expr(Expr)>;
using Two = GraphFunction<Expr(Expr, Expr)>;

inline const ValueSpec kCount{DType::i64, Shape{}}, kReal{DType::f32, Shape{}};

inline Expr count(Graph& g, const char* name) { return g.input(name, DType::i64, Shape{}); }
inline Tensor whole(std::int64_t n) { return Tensor::scalar(n); }

/// `r` calls itself twice, n deep, and counts the leaves: 60 deep it is ended by a
/// time-out or a cancel; after that 5 deep is 32.
inline void ends_when_it_is_told_to(Engine& engine, Graph& g, const Expr& n, const Expr& r,
                                    const std::string& where) {
  RunOptions hasty;
  hasty.timeout = std::chrono::milliseconds(20);
  BOOST_CHECK_EXCEPTION(engine.run(g, {{n, whole(60)}}, {r}, hasty), Error,
                        [](const Error& e) { return e.code() == Code::deadline_exceeded; });
  RunHandle run = engine.start(g, {{n, whole(60)}}, {r});
  run.cancel();
  BOOST_TEST((run.wait().code() == Code::cancelled), where);
  BOOST_TEST(engine.run(g, {{n, whole(5)}}, {r})[0].item<std::int64_t>() == 32, where);
}

}  // namespace troupe::test
