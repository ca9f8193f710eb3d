// The file of a training: every variable of the engine (weights and optimizer slots) as a tensor,
// and what else decides the rest of the run as metadata.
//
//   Checkpoint c = Checkpoint::load(path, options, text);   // options become the file's
//   c.restore(trainer);
//   save(path, trainer, text, step);
#pragma once

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <troupe/apps/examples/char_lm/options.hpp>
#include <troupe/troupe.hpp>

namespace troupe::char_lm {

inline constexpr const char* kFormat = "troupe char_lm 3";

inline void save(const std::string& path, Trainer& trainer, const Text& text, std::int64_t step) {
  std::map<std::string, std::string> metadata{
      {"format", kFormat},
      {"step", std::to_string(step)},
      {"reader_position", std::to_string(step * trainer.options().batch)},
      {"text_characters", std::to_string(text.size())},
      {"text_crc64", fmt::format("{:016x}", text.checksum())},
  };
  fields(trainer.options(),
         [&](const char* name, auto value) { metadata[name] = fmt::format("{}", value); });
  NamedTensors tensors;
  for (const std::string& name : trainer.engine().variables())
    tensors.emplace_back(name, trainer.engine().get(name));
  save_safetensors(path, tensors, metadata);
}

/// Returns a checksum (CRC-64) of the values of all variables, weights and slots, in order of their
/// names: equal for equal bits.
inline std::uint64_t checksum(Trainer& trainer) {
  std::vector<std::string> names = trainer.engine().variables();
  std::sort(names.begin(), names.end());
  std::string sums;
  for (const std::string& name : names) {
    const Tensor value = trainer.engine().get(name);
    sums += fmt::format("{} {:016x}\n", name, crc64(value.raw(), value.bytes()));
  }
  return crc64(sums.data(), sums.size());
}

class Checkpoint {
 public:
  /// Takes model and reader options from the file. Throws Error in a sentence if it is no such
  /// file, of another text, or if options were given that contradict it.
  static Checkpoint load(const std::string& path, Options& options, const Text& text) {
    Checkpoint c(path, load_safetensors(path));
    const std::string& format = c.file_.metadata["format"];
    if (format == "troupe char_lm 1" || format == "troupe char_lm 2")
      c.refuse(
          "was saved by an earlier version of this program; train again, with --overwrite or "
          "another --save FILE");
    if (format != kFormat)
      c.refuse("was not saved by this program; give a file that `char_lm --save` wrote");
    const TrainerOptions asked = options.trainer;
    fields(options.trainer, [&](const char* name, auto& value) { c.parse(name, value); });
    c.parse("step", c.step_);
    std::int64_t position = 0;
    c.parse("reader_position", position);
    if (!is_sane(options.trainer)) c.refuse("has options out of all proportion");
    if (c.step_ < 0 || position != c.step_ * options.trainer.batch)
      c.refuse("contradicts itself: step, batch and reader position do not fit");
    c.check_given(options, asked);
    if (c.file_.metadata["text_crc64"] != fmt::format("{:016x}", text.checksum()))
      c.refuse(fmt::format(
          "was trained on another text, of {} characters, not {}; give that one with --text FILE",
          c.file_.metadata["text_characters"], text.size()));
    if (options.has_given("steps") && asked.steps < c.step_)
      throw Error(
          Code::invalid_argument,
          fmt::format(
              "'{}' is at step {} already, after the {} that --steps asks for; ask for more", path,
              c.step_, asked.steps));
    if (options.has_given("steps")) options.trainer.steps = asked.steps;
    else if (!options.has_given("seconds") && options.trainer.steps > 0)
      options.seconds = 0;  // as many steps as were planned
    return c;
  }

  std::int64_t step() const { return step_; }

  /// Throws if the file's variables are not the model's.
  void restore(Trainer& trainer) const {
    Engine& engine = trainer.engine();
    for (const std::string& name : engine.variables())
      if (std::none_of(file_.tensors.begin(), file_.tensors.end(),
                       [&](const auto& t) { return t.first == name; }))
        refuse(fmt::format("lacks the variable '{}'", name));
    if (file_.tensors.size() != engine.variables().size())
      refuse("has variables that the model has not");
    for (const auto& [name, tensor] : file_.tensors) {
      Tensor have = engine.get(name);
      if (have.dtype() != tensor.dtype() || !(have.shape() == tensor.shape()))
        refuse(fmt::format("has '{}' as {}{}, the model as {}{}", name, name_of(tensor.dtype()),
                           tensor.shape().text(), name_of(have.dtype()), have.shape().text()));
      engine.set(name, tensor);
    }
    engine.set_step(static_cast<std::uint64_t>(step_));
  }

 private:
  // Returns true if the command line would accept these options.
  static bool is_sane(const TrainerOptions& t) {
    auto within = [](std::int64_t n, std::int64_t low, std::int64_t high) {
      return low <= n && n <= high;
    };
    const ModelOptions& m = t.model;
    const auto is_model = [&] {
      if (m.kind == kWindow)
        return within(m.context, 1, kMaxContext) && within(m.layers, 0, kMaxLayers) &&
               within(m.embedding, 1, kMaxEmbedding);
      if (m.kind == kTransformer)
        return within(m.context, 1, kMaxContext) && within(m.layers, 1, kMaxLayers) &&
               within(m.heads, 1, kMaxHidden) && m.hidden % m.heads == 0;
      return m.kind == kLstm && within(m.length, 1, kMaxLength) &&
             within(m.layers, 1, kMaxLayers) && within(m.embedding, 1, kMaxEmbedding);
    };
    return within(m.hidden, 1, kMaxHidden) && is_model() && within(t.batch, 1, kMaxBatch) &&
           within(t.replicas, 1, kMaxBatch) && within(t.steps, 0, kMaxSteps) &&
           std::isfinite(t.rate) && t.rate > 0;
  }

  Checkpoint(std::string path, TensorFile file) : path_(std::move(path)), file_(std::move(file)) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Code::failed_precondition, fmt::format("cannot resume: '{}' {}", path_, why));
  }
  template <class T>
  void parse(const char* name, T& value) const {
    auto it = file_.metadata.find(name);
    if (it == file_.metadata.end()) refuse(fmt::format("lacks the metadata '{}'", name));
    const std::string& s = it->second;
    if constexpr (std::is_same_v<T, std::string>) {
      value = s;
    } else {
      auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
      if (error != std::errc() || end != s.data() + s.size())
        refuse(fmt::format("has the metadata '{}' = '{}', which is no number", name, s));
    }
  }
  void check_given(const Options& options, const TrainerOptions& asked) const {
    std::map<std::string, std::string> in_file, on_line;
    TrainerOptions line = asked;
    line.model.kind = options.trainer.model.kind;  // whose options are compared
    fields(options.trainer,
           [&](const char* name, auto value) { in_file[name] = fmt::format("{}", value); });
    fields(line, [&](const char* name, auto value) { on_line[name] = fmt::format("{}", value); });
    on_line["model"] = asked.model.kind;
    for (const std::string& name : options.given) {
      if (name == "steps" || name == "seconds") continue;
      if (!in_file.contains(name))
        throw Error(Code::invalid_argument,
                    fmt::format("--{} is no option of the {} model in '{}'; leave it out to resume",
                                name, in_file["model"], path_));
      if (in_file[name] != on_line[name])
        throw Error(
            Code::invalid_argument,
            fmt::format(
                "--{} {} contradicts '{}', which was trained with {}; leave it out to resume", name,
                on_line[name], path_, in_file[name]));
    }
  }

  std::string path_;
  TensorFile file_;
  std::int64_t step_ = 0;
};

}  // namespace troupe::char_lm
