// The main of every test binary.
#define BOOST_TEST_MODULE troupe
#include <boost/test/unit_test.hpp>
