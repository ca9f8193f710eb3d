// Suites that begin no thread: under TSan they have nothing to show, and are not even compiled.
#pragma once

#include <boost/test/unit_test.hpp>

namespace troupe::test {

/// Threads that this process began; always 0 under sanitizers, which replace what would count them.
long threads_begun();

inline long threads_before = 0;
inline void remember_threads() { threads_before = threads_begun(); }
inline void no_thread_began() {
  BOOST_TEST(threads_begun() == threads_before, "a suite of one thread began "
                                                    << threads_begun() - threads_before
                                                    << ": TSan must see it");
}

}  // namespace troupe::test

/// For a suite: BOOST_AUTO_TEST_SUITE(name_test, TROUPE_ONE_THREAD). The claim is checked wherever
/// threads can be counted.
#define TROUPE_ONE_THREAD                  \
  *boost::unit_test::label("one_thread") * \
      boost::unit_test::fixture(&troupe::test::remember_threads, &troupe::test::no_thread_began)
