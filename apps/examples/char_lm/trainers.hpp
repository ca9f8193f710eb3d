// The models there are, by name.
#pragma once

#include <memory>

#include <troupe/apps/examples/char_lm/lstm_trainer.hpp>
#include <troupe/apps/examples/char_lm/transformer_trainer.hpp>
#include <troupe/apps/examples/char_lm/window_trainer.hpp>

namespace troupe::char_lm {

inline std::unique_ptr<Trainer> make_trainer(const Text& text, const TrainerOptions& options) {
  if (options.model.kind == kWindow) return std::make_unique<WindowTrainer>(text, options);
  if (options.model.kind == kTransformer)
    return std::make_unique<TransformerTrainer>(text, options);
  return std::make_unique<LstmTrainer>(text, options);
}

/// Why nothing can be learnt from so short a text; empty if something can.
inline std::string too_short(const Text& text, const TrainerOptions& o) {
  const ModelOptions& m = o.model;
  if (m.kind != kLstm) {
    if (text.held_out_begin() > m.context) return {};
    return fmt::format(
        "the text has {} characters, too few for a context of {}; give a longer text with --text "
        "FILE or a smaller --context",
        text.size(), m.context);
  }
  const std::int64_t pieces = Streams(text, 1, text.held_out_begin(), m.length, o.batch).pieces();
  if (pieces >= o.batch) return {};
  return fmt::format(
      "the text has {} characters, too few for {} streams and {} characters of each at a step; "
      "give a longer text with "
      "--text FILE, or a smaller --batch or --length",
      text.size(), o.batch, m.length);
}

}  // namespace troupe::char_lm
