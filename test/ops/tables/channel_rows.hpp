// Rows of the table of operations (table.hpp): what normalisation over all but the channels adds
// up.
#pragma once

#include <troupe/test/ops/tables/table.hpp>

namespace troupe::test {

/// [channels], or by item x's shape with a space of 1.
inline Shape one_for_channels(const Shape& x, bool by_item) {
  if (!by_item) return {x[x.rank() - 1]};
  Shape s = x;
  for (int i = 1; i < x.rank() - 1; ++i) s.set(i, 1);
  return s;
}
/// Returns the channel of an element of x.
inline Index channel_of(const Index& i, bool by_item) {
  if (!by_item) return {i.back()};
  Index at = i;
  for (std::size_t k = 1; k + 1 < at.size(); ++k) at[k] = 0;
  return at;
}

inline std::vector<Row> channel_rows() {
  Draws draws(171);
  std::vector<Case> moments, sums;
  auto add = [&](const Shape& x, bool by_item, int order = 2) {
    const Shape made = one_for_channels(x, by_item);
    // the moments of an empty channel are 0 / 0
    moments.push_back({{draws.values(x)}, Attrs{{"by_item", by_item}}, x.elements() ? order : 0});
    sums.push_back({{draws.values(x), draws.values(x), draws.values(made)},
                    Attrs{{"by_item", by_item}},
                    order});
  };
  add({4}, false);
  add({3, 1}, false);
  add({5, 3}, false);
  add({2, 3, 2, 3}, false);
  add({2, 3, 2, 3}, true);
  add({3, 2}, true);
  add({2, 1, 4}, true);
  add({0, 3}, false);
  add({2, 0, 3}, true);
  add({3, 0}, false);
  add({2, 7, 70}, true, 1);
  add({300, 5}, false, 0);
  add({290, 130}, false, 0);  // several blocks of rows
  add({2, 1500, 9, 2}, true, 0);
  return {
      {"ChannelMoments",
       {DType::f32, DType::f64},
       moments,
       [](const Arrays& x, const Attrs& a) {
         const bool by_item = a.get<bool>("by_item");
         const Shape made = one_for_channels(x[0].shape, by_item);
         Array mean = Array::filled(made, 0), variance = mean, count = mean;
         for_each_index(x[0].shape, [&](const Index& i) {
           const Index at = channel_of(i, by_item);
           count[at] += 1;
           mean[at] += x[0][i];
         });
         for (std::size_t k = 0; k < mean.v.size(); ++k) mean.v[k] /= count.v[k];
         for_each_index(x[0].shape, [&](const Index& i) {
           const Index at = channel_of(i, by_item);
           variance[at] += (x[0][i] - mean[at]) * (x[0][i] - mean[at]);
         });
         for (std::size_t k = 0; k < mean.v.size(); ++k) variance.v[k] /= count.v[k];
         return Arrays{mean, variance};
       },
       2,
       8},
      {"ChannelSums",
       {DType::f32, DType::f64},
       sums,
       [](const Arrays& x, const Attrs& a) {
         const bool by_item = a.get<bool>("by_item");
         Array first = Array::filled(x[2].shape, 0), second = first;
         for_each_index(x[1].shape, [&](const Index& i) {
           const Index at = channel_of(i, by_item);
           first[at] += x[0][i];
           second[at] += x[0][i] * (x[1][i] - x[2][at]);
         });
         return Arrays{first, second};
       },
       2,
       256},
  };
}

}  // namespace troupe::test
