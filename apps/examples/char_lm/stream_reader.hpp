// The LSTM's reader: the text as pieces that end where words do, read by many streams side by side.
//
//   Pieces pieces(text, begin, end, 64);                // of at most 64 characters
//   Batch b = batch(text, pieces, rows, step);          // feeds of one step
//
// Row r starts at the (r/rows)-th part of the pieces and takes the next one at every step, past the
// last one the first: where a stream is follows from the step's number, which is all its state.
// Pieces differ in length, and so do batches; what a row lacks to the longest is padding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <troupe/apps/examples/char_lm/text.hpp>
#include <troupe/devices/tensor.hpp>

namespace troupe::char_lm {

/// Characters [begin, end) of a text that are to be predicted, each from those before it.
struct Piece {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

/// [begin, end) of a text, cut behind the last blank or line end within `longest` characters; in the
/// middle of a word that is longer.
class Pieces {
 public:
  Pieces(const Text& text, std::int64_t begin, std::int64_t end, std::int64_t longest) {
    auto is_gap = [&](std::int64_t i) {
      char c = text.alphabet()[text.symbol(i)];
      return c == ' ' || c == '\n';
    };
    while (begin < end) {
      std::int64_t cut = std::min(begin + longest, end);
      if (cut < end)
        for (std::int64_t i = cut; i > begin; --i)
          if (is_gap(i - 1)) {
            cut = i;
            break;
          }
      pieces_.push_back({begin, cut});
      begin = cut;
    }
  }
  std::int64_t size() const { return static_cast<std::int64_t>(pieces_.size()); }
  const Piece& operator[](std::int64_t i) const { return pieces_[static_cast<std::size_t>(i)]; }

  /// Which piece a row reads at a step.
  std::int64_t index(std::int64_t row, std::int64_t rows, std::int64_t step) const { return (row * size() / rows + step) % size(); }

 private:
  std::vector<Piece> pieces_;
};

/// What one run is fed.
struct Batch {
  Tensor symbols;  // [time, rows], i32
  Tensor labels;   // the symbols that follow them, -1 in the padding
  Tensor lengths;  // [rows], i64: how much of each row is no padding
  Tensor goes_on;  // [rows, 1], f32: 0 where a row's piece has no other before it, else 1
  std::int64_t characters = 0;
};

/// Row r predicts `piece(r)`. The time is that of the longest piece, up to a multiple of `multiple`.
template <class F>
Batch batch_of(const Text& text, std::int64_t rows, F piece, std::int64_t multiple = 1) {
  std::vector<Piece> pieces;
  std::int64_t longest = 0, characters = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    pieces.push_back(piece(r));
    longest = std::max(longest, pieces.back().size());
    characters += pieces.back().size();
  }
  longest = (longest + multiple - 1) / multiple * multiple;
  Batch b{Tensor::empty(DType::i32, {longest, rows}), Tensor::empty(DType::i32, {longest, rows}), Tensor::empty(DType::i64, {rows}),
          Tensor::empty(DType::f32, {rows, 1}), characters};
  auto* symbols = b.symbols.mutable_data<std::int32_t>();
  auto* labels = b.labels.mutable_data<std::int32_t>();
  for (std::int64_t r = 0; r < rows; ++r) {
    const Piece& p = pieces[static_cast<std::size_t>(r)];
    for (std::int64_t t = 0; t < longest; ++t) {
      bool is_text = t < p.size();
      symbols[t * rows + r] = is_text ? text.symbol(p.begin + t - 1) : 0;
      labels[t * rows + r] = is_text ? text.symbol(p.begin + t) : -1;
    }
    b.lengths.mutable_data<std::int64_t>()[r] = p.size();
    b.goes_on.mutable_data<float>()[r] = p.begin > 1 ? 1.f : 0.f;
  }
  return b;
}

inline Batch batch(const Text& text, const Pieces& pieces, std::int64_t rows, std::int64_t step) {
  return batch_of(text, rows, [&](std::int64_t r) { return pieces[pieces.index(r, rows, step)]; });
}

}  // namespace troupe::char_lm
