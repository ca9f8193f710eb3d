// The eager scopes that a test of eager code runs in: alone, and in engines of one and two workers.
#pragma once

#include <boost/test/unit_test.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/ops/eager/eager.hpp>

namespace troupe::test {

template <class Test>
void in_each_scope(Test test) {
  BOOST_TEST_CONTEXT("without an engine") {
    Eager e;
    test(e);
  }
  for (const int workers : {1, 2}) BOOST_TEST_CONTEXT("in an engine of " << workers) {
      EngineOptions options;
      options.workers = workers;
      Engine engine(options);
      Eager e(engine);
      test(e);
    }
}

}  // namespace troupe::test
