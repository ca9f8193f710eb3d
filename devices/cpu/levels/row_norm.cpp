// Rows brought to mean 0 and variance 1, and back; the sums of columns that normalisation over rows
// needs.
//
// Moments are those of x - x[0], in one pass; where x[0] is far from the mean the squares lose
// against each other, and the caller takes two (devices/cpu/nn/row_norm.cpp).
#include <troupe/devices/cpu/levels/lanes.hpp>

namespace troupe::cpu {
namespace {

// The sums over a row of `terms` numbers that `at(from, packets or scalars)` makes of each element.
// If a float overflows, the row is taken again in double.
template <int terms, class F>
inline void row_sums(std::int64_t n, F at, double* sums) {
  Lanes sum[terms];
  const std::int64_t i = add_groups<terms>(n, at, sum);
  float more[terms][kLanes], one[terms];
  for (int l = 0; i + l < n; ++l) {
    at(i + l, one);
    for (int t = 0; t < terms; ++t) more[t][l] = one[t];
  }
  bool is_finite = true;
  for (int t = 0; t < terms; ++t) {
    sums[t] = sum[t].total(more[t], n - i);
    is_finite &= __builtin_isfinite(sums[t]);
  }
  if (is_finite) return;
  double wide[terms];
  for (int t = 0; t < terms; ++t) sums[t] = 0;
#pragma GCC unroll 1
  for (std::int64_t j = 0; j < n; ++j) {
    at(j, wide);
    for (int t = 0; t < terms; ++t) sums[t] += wide[t];
  }
}

void moments(const float* x, std::int64_t n, double* sum, double* squares) {
  const float first = x[0];
  double sums[2];
  row_sums<2>(
      n,
      [=]<class V>(std::int64_t i, V * out) __attribute__((always_inline)) {
        load(out[0], x + i);
        out[0] = out[0] - first;
        out[1] = out[0] * out[0];
      },
      sums);
  *sum = sums[0];
  *squares = sums[1];
}

double squares(const float* x, std::int64_t n) {
  double sum;
  row_sums<1>(
      n,
      [=]<class V>(std::int64_t i, V * out) __attribute__((always_inline)) {
        load(out[0], x + i);
        out[0] = out[0] * out[0];
      },
      &sum);
  return sum;
}

template <bool is_centered>
inline void normalize_row(float* y, const float* x, float mean, float rstd, const float* scale,
                          const float* bias, std::int64_t n) {
  const auto part = [=](std::int64_t begin, std::int64_t count) __attribute__((always_inline)) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < begin + count; ++i)
      y[i] = is_centered ? (x[i] - mean) * rstd * scale[i] + bias[i] : x[i] * rstd * scale[i];
  };
  // The next row is fetched meanwhile.
  constexpr std::int64_t kPart = 64, kLine = 16;
  std::int64_t begin = 0;
  for (; begin + kPart <= n; begin += kPart) {
    for (std::int64_t i = 0; i < kPart; i += kLine)
      __builtin_prefetch(x + n + begin + i), __builtin_prefetch(y + n + begin + i, 1);
    part(begin, kPart);
  }
  part(begin, n - begin);
}

void normalize(float* y, const float* x, float mean, float rstd, const float* scale,
               const float* bias, std::int64_t n) {
  bias ? normalize_row<true>(y, x, mean, rstd, scale, bias, n)
       : normalize_row<false>(y, x, mean, rstd, scale, bias, n);
}

// The means of g = dy * scale and of g (x - mean) over row r; of rows that are not centered the
// first is 0. Not inlined: it is long, and there are rows one by one and in fours.
__attribute__((noinline)) void weighted(const RowNormBack& c, int r, double* means) {
  const float *x = c.x + r * c.n, *dy = c.dy + r * c.n, *scale = c.scale;
  if (c.mean) {
    const float mean = c.mean[r];
    row_sums<2>(
        c.n,
        [=]<class V>(std::int64_t i, V * out) __attribute__((always_inline)) {
          V factor;
          load(factor, scale + i);
          load(out[0], dy + i);
          load(out[1], x + i);
          out[0] = out[0] * factor;
          out[1] = out[0] * (out[1] - mean);
        },
        means);
  } else {
    means[0] = 0;
    row_sums<1>(
        c.n,
        [=]<class V>(std::int64_t i, V * out) __attribute__((always_inline)) {
          V factor, value;
          load(factor, scale + i);
          load(value, x + i);
          load(out[0], dy + i);
          out[0] = out[0] * factor * value;
        },
        means + 1);
  }
  means[0] /= double(c.n);
  means[1] /= double(c.n);
}

// Factors for a row's elements: dx = dy rstd scale - (of_g + h of_h), h = (x - mean) rstd. In huge
// or tiny rows h, which is near 1, fits a float although its factor for x - mean would not.
struct RowBack {
  float mean, rstd, of_g, of_h;
};

// Element i of a row, or the packet from there on; adds to the sums of dy and of dy h.
template <class V>
inline V back_at(const RowBack& row, V x, V dy, V scale, V* sum_dy, V* sum_dh) {
  const V h = (x - row.mean) * row.rstd;
  *sum_dy += dy;
  *sum_dh += dy * h;
  return dy * row.rstd * scale - (h * row.of_h + row.of_g);
}

constexpr int kTile = kPacketBytes == 64 ? 8 : 4;  // packets of columns whose sums are in registers

// The columns of `rows` rows: their terms of dscale and dbias are added in float first.
template <int rows>
void back(const RowNormBack c) {  // by value: written data could otherwise alias its pointers
  RowBack row[rows];
  for (int r = 0; r < rows; ++r) {
    double means[2];
    weighted(c, r, means);
    const double rstd = double(c.rstd[r]);
    row[r] = {c.mean ? c.mean[r] : 0, c.rstd[r], static_cast<float>(means[0] * rstd),
              static_cast<float>(means[1] * rstd * rstd)};
  }
  std::int64_t i = 0;
  for (; i + kTile * kPacket <= c.n; i += kTile * kPacket) {
    Floats dy[kTile] = {}, dh[kTile] = {};
    for (int r = 0; r < rows; ++r)
      for (int p = 0; p < kTile; ++p) {
        const std::int64_t column = i + p * kPacket, at = r * c.n + column;
        store(c.dx + at, back_at(row[r], load_floats(c.x + at), load_floats(c.dy + at),
                                 load_floats(c.scale + column), dy + p, dh + p));
      }
    for (int p = 0; p < kTile; ++p) {
      add_wide(c.dscale + i + p * kPacket, dh[p]);
      if (c.dbias) add_wide(c.dbias + i + p * kPacket, dy[p]);
    }
  }
  for (; i < c.n; ++i) {
    float dy = 0, dh = 0;
    for (int r = 0; r < rows; ++r)
      c.dx[r * c.n + i] =
          back_at(row[r], c.x[r * c.n + i], c.dy[r * c.n + i], c.scale[i], &dy, &dh);
    c.dscale[i] += double(dh);
    if (c.dbias) c.dbias[i] += double(dy);
  }
}

void norm_back(const RowNormBack& all) {
  RowNormBack c = all;
  for (std::int64_t left = all.rows; left > 0;) {
    const std::int64_t now = left >= 4 ? 4 : 1;
    now == 4 ? back<4>(c) : back<1>(c);
    left -= now;
    c.x += now * c.n, c.dy += now * c.n, c.dx += now * c.n;
    c.rstd += now;
    if (c.mean) c.mean += now;
  }
}

// The terms that `rows` rows of n add to the two sums of a column, or of a packet of columns.
template <bool has_dy, int rows, class V>
inline void column_terms(const float* x, const float* dy, const float* center, std::int64_t n,
                         V* terms) {
  V middle, first[rows], second[rows];
  load(middle, center);
  for (int r = 0; r < rows; ++r) {
    load(second[r], x + r * n);
    second[r] = second[r] - middle;
    if constexpr (has_dy) load(first[r], dy + r * n);
    else first[r] = second[r];
    second[r] = second[r] * first[r];
  }
  if constexpr (rows == 4) {
    terms[0] = (first[0] + first[1]) + (first[2] + first[3]);
    terms[1] = (second[0] + second[1]) + (second[2] + second[3]);
  } else {
    static_assert(rows == 1);
    terms[0] = first[0];
    terms[1] = second[0];
  }
}

template <bool has_dy, int rows>
void add_columns(const float* x, const float* dy, const float* center, std::int64_t n, double* sum,
                 double* product) {
  std::int64_t j = 0;
  for (; j + kPacket <= n; j += kPacket) {
    Floats terms[2];
    column_terms<has_dy, rows>(x + j, has_dy ? dy + j : dy, center + j, n, terms);
    add_wide(sum + j, terms[0]);
    add_wide(product + j, terms[1]);
  }
  for (; j < n; ++j) {
    float terms[2];
    column_terms<has_dy, rows>(x + j, has_dy ? dy + j : dy, center + j, n, terms);
    sum[j] += double(terms[0]);
    product[j] += double(terms[1]);
  }
}

template <bool has_dy>
void column_sums_of(const float* x, const float* dy, const float* center, std::int64_t rows,
                    std::int64_t n, double* sum, double* product) {
  while (rows > 0) {
    const std::int64_t now = rows >= 4 ? 4 : 1;
    now == 4 ? add_columns<has_dy, 4>(x, dy, center, n, sum, product)
             : add_columns<has_dy, 1>(x, dy, center, n, sum, product);
    rows -= now;
    x += now * n;
    if (has_dy) dy += now * n;
  }
}

void column_sums(const float* x, const float* dy, const float* center, std::int64_t rows,
                 std::int64_t n, double* sum, double* product) {
  dy ? column_sums_of<true>(x, dy, center, rows, n, sum, product)
     : column_sums_of<false>(x, dy, center, rows, n, sum, product);
}

}  // namespace

void TROUPE_FILL(row_norm)(LevelKernels& k) {
  k.moments_f32 = moments;
  k.squares_f32 = squares;
  k.normalize_f32 = normalize;
  k.norm_back_f32 = norm_back;
  k.column_sums_f32 = column_sums;
}

}  // namespace troupe::cpu
