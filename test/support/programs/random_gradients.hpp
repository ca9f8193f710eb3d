// Compares gradients of random programs with the interpreter's in given ways. A failing program is
// shrunk and printed.
#pragma once

#include <cmath>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/support/programs/random_programs.hpp>

namespace troupe::test {

/// A scalar of a program's results.
inline Expr weighted_sum(detail::Reader& reader, const Exprs& fetches) {
  Expr y = reader.constant(0.25);
  double weight = 1;
  for (const Expr& e : fetches)
    if (e.dtype() == DType::f64) y = y + sum(e) * (weight *= 0.75);
  return y;
}
/// A gradient's product with something that depends on nothing.
inline Expr derived(detail::Reader& reader, const Exprs& gradient) {
  Expr next = reader.constant(0.0);
  for (const Expr& e : gradient) next = next + sum(e * cos(e * 0.0 + 0.3));
  return next;
}

/// A random program as one scalar of its real inputs.
struct Differentiated {
  Graph g;
  Kitchen kitchen;
  Exprs xs, d;  // xs: the real inputs
  std::vector<Type> types;
  std::vector<std::vector<double>> values;
  Expr y;

  explicit Differentiated(const Recipe& r, Devices devices = Devices::none)
      : kitchen(r, g, devices) {
    for (std::size_t i = 0; i < r.inputs.size(); ++i) {
      if (!is_real(r.inputs[i].name.type)) continue;
      xs.push_back(kitchen.inputs()[i]);
      types.push_back(r.inputs[i].name.type);
      values.push_back(r.inputs[i].values[0]);
    }
    y = weighted_sum(g, kitchen.fetches());
  }
  void differentiate() { d = gradients(y, xs, {.unconnected = Unconnected::zeros}); }
  void derive() { y = derived(g, gradients(y, xs, {.unconnected = Unconnected::zeros})); }
  Feeds feeds(const Recipe& r) const {
    Feeds out;
    std::size_t k = 0;
    for (std::size_t i = 0; i < r.inputs.size(); ++i) {
      const bool real = is_real(r.inputs[i].name.type);
      out.emplace_back(
          kitchen.inputs()[i],
          kitchen.tensor(r.inputs[i].name.type, real ? values[k++] : r.inputs[i].values[0]));
    }
    return out;
  }
};

inline std::unique_ptr<Differentiated> differentiated(const Recipe& r, Devices devices, int order) {
  auto p = std::make_unique<Differentiated>(r, devices);
  for (int i = 1; i < order; ++i) p->derive();
  p->differentiate();
  return p;
}

inline std::optional<std::string> difference_of_gradients(const std::vector<Tensor>& got,
                                                          const std::vector<Tensor>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Tensor& is = got[i];
    if (is.shape() != expected[i].shape())
      return fmt::format("the gradient of input {} has shape {}, not {}", i, is.shape().text(),
                         expected[i].shape().text());
    for (std::int64_t k = 0; k < expected[i].elements(); ++k) {
      const double a = is.at(k), b = expected[i].at(k);
      if (!(a == b || (std::isnan(a) && std::isnan(b)) ||
            std::abs(a - b) <= 1e-7 * std::max(1.0, std::abs(b))))
        return fmt::format("the gradient of input {} is {} at {}, not {}", i, a, k, b);
    }
  }
  return std::nullopt;
}

/// Compares derivatives of that order. Throws Unfit where nothing is differentiated.
inline std::optional<std::string> difference_from_interpreter(const Recipe& r, const Way& way,
                                                              int order = 1) {
  const auto alone = differentiated(r, Devices::none, order),
             p = differentiated(r, way.devices, order);
  if (p->d.empty()) throw Unfit("no real input");
  const std::vector<Tensor> expected = Eager().run(alone->g, alone->feeds(r), alone->d);
  ProgramOutcome got;
  run_program(r, way, p->g, p->kitchen, p->d, 1, got);
  if (got.hangs) return "it hangs";
  if (!got.error.empty()) return "an error: " + got.error;
  return difference_of_gradients(got.fetched[0], expected);
}

inline void compare_gradients(const std::vector<Way>& ways, Seeds s, int order = 1) {
  std::uint64_t compared = 0;
  int failed = 0;
  const Check check = [order](const Recipe& c, const Way& way) {
    return difference_from_interpreter(c, way, order);
  };
  for (std::uint64_t seed = s.first; seed < s.first + s.count && failed < 3; ++seed) {
    Watch watch(seed);
    const Recipe r = random_recipe(seed, {.is_smooth = true});
    bool is_due_anywhere = false, is_fit = true;
    for (std::size_t w = 0; w < ways.size(); ++w) {
      if (ways[w].is_interpreter || !is_due(ways, w, seed)) continue;
      try {
        is_due_anywhere = true;
        const auto wrong = check(r, ways[w]);
        if (!wrong) continue;
        ++failed;
        report(r, ways[w], *wrong, check);
      } catch (const Unfit&) { is_fit = false; } catch (const Error& e) {
        ++failed;
        BOOST_ERROR(fmt::format("seed {}, {}: {}\n{}", seed, ways[w].name, e.what(), text_of(r)));
      }
      break;
    }
    compared += is_due_anywhere && is_fit;
  }
  // programs that cannot be compared are rare
  if (s.count >= 50) BOOST_TEST(compared >= s.count * 4 / 5);
}

}  // namespace troupe::test
