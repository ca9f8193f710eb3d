// A loop in its three forms: resident and compiled, resident and interpreted, lowered.
#pragma once

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/scalar/machine_code.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test::forms {

using Make = std::function<Exprs(Graph& g, const Expr& x)>;

struct Told {
  std::vector<Tensor> values;
  std::string error, explanation;
};

inline Told run_resident(const Make& make, const Tensor& x, bool is_resident,
                         EngineOptions options = {}, bool is_compiled = true) {
  Graph g;
  const Expr in = g.input("x", x.dtype(), x.shape());
  const Exprs out = make(g, in);
  if (options.workers == 0) options.workers = 1;
  options.seed = 7;
  Engine engine(options);
  Told told;
  CompileOptions compile;
  compile.resident_loops = is_resident;
  compile.compiled_loops = is_compiled;
  const Function f = engine.compile(g, {in}, out, compile);
  told.explanation = f.explain();
  try {
    told.values = f({x}, {.step = 3});
  } catch (const Error& e) { told.error = e.what(); }
  return told;
}

inline bool has(const std::string& text, const std::string& part) {
  const bool is_there = text.find(part) != std::string::npos;
  if (!is_there) BOOST_TEST_MESSAGE("missing '" << part << "' in: " << text);
  return is_there;
}

// Which NaN an operation on two of them yields is open.
template <class T>
bool is_same_but_for_nans(const Tensor& a, const Tensor& b) {
  if (a.dtype() != dtype_of<T> || b.dtype() != dtype_of<T> || a.shape() != b.shape()) return false;
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const T x = a.data<T>()[i], y = b.data<T>()[i];
    if (std::memcmp(&x, &y, sizeof x) != 0 && !(std::isnan(x) && std::isnan(y))) return false;
  }
  return true;
}
inline bool is_same(const Tensor& a, const Tensor& b) {
  return identical(a, b) || is_same_but_for_nans<float>(a, b) || is_same_but_for_nans<double>(a, b);
}

inline void compare_forms(const Told& resident, const Told& lowered) {
  BOOST_TEST(!has(resident.explanation + "lowered:", ": lowered:"));
  BOOST_TEST(resident.error == lowered.error);
  BOOST_REQUIRE_EQUAL(resident.values.size(), lowered.values.size());
  for (std::size_t i = 0; i < resident.values.size(); ++i)
    BOOST_TEST(is_same(resident.values[i], lowered.values[i]),
               "fetch " << i << ": " << resident.values[i].text() << ", lowered "
                        << lowered.values[i].text());
}

// The loop stays whole, compiled and interpreted, and yields the lowered form's bits, or its error,
// which is returned.
inline std::string agree(const Make& make, const Tensor& x, const EngineOptions& options = {}) {
  const Told compiled = run_resident(make, x, true, options),
             lowered = run_resident(make, x, false, options);
  const Told interpreted = run_resident(make, x, true, options, false);
  const std::string& refused = MachineCode::why_not();
  BOOST_TEST(has(compiled.explanation,
                 refused.empty() ? ": resident, compiled" : ": resident, interpreted: " + refused));
  BOOST_TEST(has(interpreted.explanation,
                 ": resident, interpreted: CompileOptions::compiled_loops is false"));
  BOOST_TEST(has(lowered.explanation, ": lowered: CompileOptions::resident_loops is false"));
  compare_forms(compiled, lowered);
  compare_forms(interpreted, lowered);
  return compiled.error;
}

}  // namespace troupe::test::forms
