// The LSTM's reader: many streams read the text side by side, a piece of each at a step.
//
//   Streams streams(text, begin, end, 64, 32);   // 32 streams, pieces of about 64 characters
//   Batch b = batch(text, streams, step);        // feeds of one step
//
// Stream r starts at the (r/32)-th part of the text. At the end of the text it continues from the
// beginning. Pieces end with words, so their lengths differ, and so do batches'; shorter rows are
// padded. The first steps take pieces a quarter as long, then half: while there are only letters
// and words to learn, many short steps teach more than a few long ones (Bengio et al., Curriculum
// learning, ICML 2009). The position of a stream follows from the step's number, which is all its
// state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <troupe/apps/examples/char_lm/text.hpp>
#include <troupe/troupe.hpp>

namespace troupe::char_lm {

/// Characters [begin, end) of a text to predict, each from the characters before it.
struct Piece {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

/// Yields the piece of [begin, end) that each stream reads at a step. The text has marks, eight a
/// piece, almost evenly spaced: each is moved back to the end of a word, if one ends since the mark
/// before.
class Streams {
 public:
  /// The number of steps that take pieces of the same number of marks, until they are whole.
  static constexpr std::int64_t kStage = 1000;

  Streams(const Text& text, std::int64_t begin, std::int64_t end, std::int64_t length,
          std::int64_t rows)
      : text_(text), begin_(begin), size_(end - begin), pieces_(size_ / length),
        whole_(length < 8 ? 1 : 8), rows_(rows) {}

  std::int64_t rows() const { return rows_; }
  /// As many streams may there be.
  std::int64_t pieces() const { return pieces_; }

  Piece piece(std::int64_t row, std::int64_t step) const {
    const std::int64_t first =
        (row * pieces_ / rows_ * whole_ + marks_before(step)) % (pieces_ * whole_);
    return {mark(first), mark(first + marks_at(step))};
  }
  /// Characters of all streams before a step, estimated from the marks.
  double characters_before(std::int64_t step) const {
    return static_cast<double>(marks_before(step)) * static_cast<double>(size_) /
           static_cast<double>(pieces_ * whole_) * static_cast<double>(rows_);
  }
  /// Marks in the pieces of a step.
  std::int64_t marks_at(std::int64_t step) const {
    return std::min<std::int64_t>(whole_, 2 << std::min<std::int64_t>(step / kStage, 2));
  }

 private:
  // A stage takes a number of marks that whole pieces divide, so that streams begin anew where the
  // text does.
  std::int64_t marks_before(std::int64_t step) const {
    std::int64_t marks = 0, at = 0;
    for (; at + kStage <= step && marks_at(at) < whole_; at += kStage)
      marks += kStage * marks_at(at);
    return marks + (step - at) * marks_at(at);
  }
  std::int64_t mark(std::int64_t i) const {
    const std::int64_t marks = pieces_ * whole_;
    auto even = [&](std::int64_t k) { return begin_ + k * size_ / marks; };
    if (i > 0 && i < marks)
      for (std::int64_t at = even(i); at > even(i - 1); --at)
        if (char c = text_.alphabet()[static_cast<std::size_t>(text_.symbol(at - 1))];
            c == ' ' || c == '\n')
          return at;
    return even(i);
  }

  const Text& text_;
  std::int64_t begin_, size_;
  std::int64_t pieces_, whole_;  // pieces of the text; marks of each piece
  std::int64_t rows_;
};

/// The feeds of one run.
struct Batch {
  Tensor symbols;  // [time, rows], i32
  Tensor labels;   // the symbols that follow them, -1 in the padding
  Tensor lengths;  // [rows], i64: how much of each row is no padding
  Tensor goes_on;  // [rows, 1], f32: 0 where a row's piece has no other before it, else 1
  std::int64_t characters = 0;
};

/// Row r predicts `piece(r)`. The time is that of the longest piece, up to a multiple of
/// `multiple`.
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
  Batch b{Tensor::empty(DType::i32, {longest, rows}), Tensor::empty(DType::i32, {longest, rows}),
          Tensor::empty(DType::i64, {rows}), Tensor::empty(DType::f32, {rows, 1}), characters};
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

inline Batch batch(const Text& text, const Streams& streams, std::int64_t step) {
  return batch_of(text, streams.rows(), [&](std::int64_t r) { return streams.piece(r, step); });
}

}  // namespace troupe::char_lm
