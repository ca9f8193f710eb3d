// Rows of recurrent layers, whose references go through one example after the other, a unit at a
// time.
#pragma once

#include <troupe/test/ops/tables/structure_rows.hpp>

namespace troupe::test {

/// One example's walk through time, in doubles.
class RecurrentReference {
 public:
  RecurrentReference(const Attrs& a, const Array& recurrent, std::int64_t time,
                     const Array* lengths)
      : cell(a.get<std::string>("cell")), units(recurrent.shape[0]), gates(cell == "lstm"  ? 4
                                                                           : cell == "gru" ? 3
                                                                                           : 1),
        r_(recurrent), reverse_(a.get<bool>("reverse")), time_(time), lengths_(lengths) {}

  /// The times that count, in the order of the steps.
  std::vector<std::int64_t> times(std::int64_t example) const {
    std::int64_t n = time_;
    if (lengths_)
      n = std::clamp<std::int64_t>(
          static_cast<std::int64_t>(lengths_->v[static_cast<std::size_t>(example)]), 0, time_);
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < n; ++i) out.push_back(reverse_ ? n - 1 - i : i);
    return out;
  }
  /// Returns the contribution of a state to gate g of unit u by the weights.
  double by_state(const std::vector<double>& h, std::int64_t g, std::int64_t u) const {
    double sum = 0;
    for (std::int64_t k = 0; k < units; ++k)
      sum += h[static_cast<std::size_t>(k)] * r_[{k, g * units + u}];
    return sum;
  }
  double weight(std::int64_t k, std::int64_t g, std::int64_t u) const {
    return r_[{k, g * units + u}];
  }
  static double logistic(double v) { return 1 / (1 + std::exp(-v)); }

  const std::string cell;
  const std::int64_t units, gates;

 private:
  const Array& r_;
  bool reverse_;
  std::int64_t time_;
  const Array* lengths_;
};

inline std::vector<double> row_of(const Array& a, std::int64_t row) {
  const auto n = static_cast<std::ptrdiff_t>(a.shape[a.shape.rank() - 1]);
  return {a.v.begin() + row * n, a.v.begin() + (row + 1) * n};
}

/// y, h, c of an LSTM, the gates' values, and what is kept.
inline Arrays recurrent_forward(const Arrays& x, const Attrs& a) {
  const bool has_c = a.get<std::string>("cell") == "lstm";
  const std::size_t before_lengths = has_c ? 5 : 4;
  const std::int64_t time = x[0].shape[0], batch = x[0].shape[1];
  const RecurrentReference f(a, x[1], time,
                             x.size() > before_lengths ? &x[before_lengths] : nullptr);
  const bool is_gru = f.cell == "gru";
  Array y = Array::filled({time, batch, f.units}, 0), gates = Array::filled(x[0].shape, 0),
        kept = y, h = x[3], c = has_c ? x[4] : Array{};
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t : f.times(b)) {
      const std::vector<double> before = row_of(h, b);
      for (std::int64_t u = 0; u < f.units; ++u) {
        auto given = [&](std::int64_t g) {
          return x[0][{t, b, g * f.units + u}] + x[2].v[static_cast<std::size_t>(g * f.units + u)];
        };
        auto sum = [&](std::int64_t g) { return given(g) + f.by_state(before, g, u); };
        auto value = [&](std::int64_t g) -> double& { return gates[{t, b, g * f.units + u}]; };
        double& now = h[{b, u}];
        if (has_c) {
          for (std::int64_t g : {0, 1, 3}) value(g) = f.logistic(sum(g));
          value(2) = std::tanh(sum(2));
          kept[{t, b, u}] = c[{b, u}] = value(1) * c[{b, u}] + value(0) * value(2);
          now = value(3) * std::tanh(c[{b, u}]);
        } else if (is_gru) {
          kept[{t, b, u}] = f.by_state(before, 2, u);
          value(0) = f.logistic(sum(0)), value(1) = f.logistic(sum(1));
          value(2) = std::tanh(given(2) + value(0) * kept[{t, b, u}]);
          now = value(1) * now + (1 - value(1)) * value(2);
        } else {
          now = value(0) = f.cell == "tanh" ? std::tanh(sum(0)) : std::max(0.0, sum(0));
        }
        y[{t, b, u}] = now;
      }
    }
  Arrays out{y, h};
  if (has_c) out.push_back(c);
  out.push_back(gates);
  if (has_c || is_gru) out.push_back(kept);
  return out;
}

/// From recurrent, h0, c0, y, gates, kept, dy, dh, dc, lengths, as far as the cell has them,
/// returns dprojected, drecurrent, dbias, dh0, dc0.
inline Arrays recurrent_backward(const Arrays& x, const Attrs& a) {
  const std::string cell = a.get<std::string>("cell");
  const bool has_c = cell == "lstm", is_gru = cell == "gru";
  std::size_t next = 0;
  auto take = [&](bool is_there = true) -> const Array* { return is_there ? &x[next++] : nullptr; };
  const Array &recurrent = *take(), &h0 = *take();
  const Array* c0 = take(has_c);
  const Array &y = *take(), &gates = *take();
  const Array* kept = take(has_c || is_gru);
  const Array &dy = *take(), &dh = *take();
  const Array* dc = take(has_c);
  const RecurrentReference f(a, recurrent, y.shape[0], take(x.size() > next));
  Array dprojected = Array::filled(gates.shape, 0), drecurrent = Array::filled(recurrent.shape, 0),
        dbias = Array::filled({recurrent.shape[1]}, 0), of_h = dh, of_c = has_c ? *dc : Array{};
  for (std::int64_t b = 0; b < y.shape[1]; ++b) {
    const std::vector<std::int64_t> times = f.times(b);
    for (std::size_t i = times.size(); i-- > 0;) {
      const std::int64_t t = times[i];
      auto earlier = [&](const Array& first, const Array& later, std::int64_t u) {
        return i == 0 ? first[{b, u}] : later[{times[i - 1], b, u}];
      };
      std::vector<double> by_state(static_cast<std::size_t>(f.gates * f.units));  // the product h R
      std::vector<double> straight(static_cast<std::size_t>(f.units), 0.0);
      for (std::int64_t u = 0; u < f.units; ++u) {
        auto gate = [&](std::int64_t g) { return gates[{t, b, g * f.units + u}]; };
        const double up = of_h[{b, u}] + dy[{t, b, u}];
        std::vector<double> d(static_cast<std::size_t>(f.gates));
        if (has_c) {
          const double squashed = std::tanh((*kept)[{t, b, u}]),
                       of_cell = of_c[{b, u}] + up * gate(3) * (1 - squashed * squashed);
          d = {of_cell * gate(2) * gate(0) * (1 - gate(0)),
               of_cell * earlier(*c0, *kept, u) * gate(1) * (1 - gate(1)),
               of_cell * gate(0) * (1 - gate(2) * gate(2)),
               up * squashed * gate(3) * (1 - gate(3))};
          of_c[{b, u}] = of_cell * gate(1);
        } else if (is_gru) {
          const double candidate = up * (1 - gate(1)) * (1 - gate(2) * gate(2));
          d = {candidate * (*kept)[{t, b, u}] * gate(0) * (1 - gate(0)),
               up * (earlier(h0, y, u) - gate(2)) * gate(1) * (1 - gate(1)), candidate};
          straight[static_cast<std::size_t>(u)] = up * gate(1);
        } else {
          d = {cell == "tanh" ? up * (1 - gate(0) * gate(0)) : gate(0) > 0 ? up : 0};
        }
        for (std::int64_t g = 0; g < f.gates; ++g) {
          const double of_sum = d[static_cast<std::size_t>(g)];
          dprojected[{t, b, g * f.units + u}] = of_sum;
          dbias.v[static_cast<std::size_t>(g * f.units + u)] += of_sum;
          by_state[static_cast<std::size_t>(g * f.units + u)] =
              is_gru && g == 2 ? of_sum * gate(0) : of_sum;
        }
      }
      for (std::int64_t k = 0; k < f.units; ++k) {
        double sum = straight[static_cast<std::size_t>(k)];
        for (std::int64_t j = 0; j < f.gates * f.units; ++j) {
          sum += by_state[static_cast<std::size_t>(j)] * recurrent[{k, j}];
          drecurrent[{k, j}] += earlier(h0, y, k) * by_state[static_cast<std::size_t>(j)];
        }
        of_h[{b, k}] = sum;
      }
    }
  }
  Arrays out{dprojected, drecurrent, dbias, of_h};
  if (has_c) out.push_back(of_c);
  return out;
}

/// The second one's inputs need not be what the first puts out: each is a function of its own.
inline std::vector<Row> recurrent_rows() {
  Draws draws(61);
  std::vector<Case> forward, backward;
  struct Sizes {
    std::int64_t time, batch, units;
    bool has_lengths, reverse;
  };
  for (const char* cell : {"lstm", "gru", "tanh", "relu"})
    for (const Sizes& s : {Sizes{3, 2, 2, false, false},
                           {3, 3, 1, true, false},
                           {4, 3, 2, true, true},
                           {2, 20, 19, true, false},
                           {2, 1, 70, false, true},
                           {0, 2, 3, false, false},
                           {2, 0, 3, true, false},
                           {2, 2, 0, false, false}}) {
      const bool has_c = cell == std::string("lstm"), keeps = has_c || cell == std::string("gru");
      const std::int64_t n = s.units * (has_c ? 4 : keeps ? 3 : 1);
      const double scale = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, s.units)));
      const Shape sequence{s.time, s.batch, s.units}, of_gates{s.time, s.batch, n},
          state{s.batch, s.units};
      const Attrs attrs{{"cell", std::string(cell)}, {"reverse", s.reverse}};
      Case f{{draws.values(of_gates), draws.values({s.units, n}, -scale, scale), draws.values({n}),
              draws.values(state)},
             attrs};
      if (has_c) f.inputs.push_back(draws.values(state));
      Case b{{draws.values({s.units, n}, -scale, scale), draws.values(state)}, attrs};
      if (has_c) b.inputs.push_back(draws.values(state));
      b.inputs.push_back(draws.values(sequence));
      b.inputs.push_back(draws.values(of_gates, 0.1, 0.9));
      if (keeps) b.inputs.push_back(draws.values(sequence));
      b.inputs.push_back(draws.values(sequence));
      b.inputs.push_back(draws.values(state));
      if (has_c) b.inputs.push_back(draws.values(state));
      if (s.has_lengths) {
        Sample lengths = draws.indices({s.batch}, s.time + 2);  // more than there are: all
        for (Case* c : {&f, &b}) c->inputs.push_back(lengths);
      }
      forward.push_back(std::move(f));
      backward.push_back(std::move(b));
    }
  return {
      {"RecurrentLayer", kFloats, forward, recurrent_forward, 0, 4},
      {"RecurrentLayerGradient", {DType::f32, DType::f64}, backward, recurrent_backward, 0, 16}};
}

}  // namespace troupe::test
