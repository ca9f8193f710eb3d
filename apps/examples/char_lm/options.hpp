// What the command line says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <troupe/apps/examples/char_lm/trainer.hpp>

namespace troupe::char_lm {

inline constexpr std::int64_t kMaxContext = 1024, kMaxEmbedding = 4096, kMaxHidden = 16'384, kMaxLayers = 64, kMaxBatch = 1 << 20,
                              kMaxSteps = 1'000'000'000'000;

struct Options {
  TrainerOptions trainer{.steps = 12'000, .rate = 3e-3};
  std::string text;  // empty: the King James Bible
  double minutes = 0;
  std::string save = "char_lm.safetensors";
  std::string resume;
  bool saves = true;
  bool overwrites = false;
  std::int64_t validate_every = 0;
  std::int64_t validate_characters = 16'384;
  std::int64_t sample_characters = 400;
  double temperature = 0.7;
  /// Options of the model and the reader that were given: a file that is resumed has its own.
  std::vector<std::string> given;
  bool has_steps = false;

  std::int64_t validation_interval() const { return validate_every > 0 ? validate_every : std::max<std::int64_t>(1, trainer.steps / 12); }
};

/// Fills `app` with the options; read them after `app.parse`.
inline void declare(CLI::App& app, Options& o) {
  ModelOptions& m = o.trainer.model;
  auto count = [](std::int64_t low, std::int64_t high) { return CLI::Range(low, high); };

  app.add_option("--text", o.text, "file to learn from, any bytes (default: the King James Bible from Debian's bible-kjv)")->type_name("FILE")->group("Text");

  const char* model = "Model (a resumed file has its own)";
  app.add_option("--context", m.context, "characters the model sees")->check(count(1, kMaxContext))->capture_default_str()->type_name("N")->group(model);
  app.add_option("--embedding", m.embedding, "numbers a character is turned into")->check(count(1, kMaxEmbedding))->capture_default_str()->type_name("N")->group(model);
  app.add_option("--hidden", m.hidden, "width of a hidden layer")->check(count(1, kMaxHidden))->capture_default_str()->type_name("N")->group(model);
  app.add_option("--layers", m.layers, "hidden layers; 0: a linear model")->check(count(0, kMaxLayers))->capture_default_str()->type_name("N")->group(model);
  app.add_option("--batch", o.trainer.batch, "characters predicted in one step")->check(count(1, kMaxBatch))->capture_default_str()->type_name("N")->group(model);
  app.add_option("--rate", o.trainer.rate, "Adam's learning rate after 100 steps; then it falls")->check(CLI::PositiveNumber)->capture_default_str()->type_name("R")->group(model);
  app.add_option("--seed", m.seed, "of the first weights, the reader and the sample")->capture_default_str()->type_name("N")->group(model);

  const char* length = "Length";
  auto* steps = app.add_option("--steps", o.trainer.steps, "steps of the whole training, those before a resume included")
                    ->check(count(0, kMaxSteps))->capture_default_str()->type_name("N")->group(length);
  app.add_option("--minutes", o.minutes, "instead of --steps: as many as fit into M minutes at the speed of the first ones")
      ->check(CLI::PositiveNumber)->type_name("M")->group(length)->excludes(steps);
  app.add_option("--validate-every", o.validate_every, "steps between validations and lines (default: a twelfth of all)")->check(count(1, 1'000'000'000))->type_name("N")->group(length);
  app.add_option("--validate-characters", o.validate_characters, "held-out characters of those validations; the last takes all")
      ->check(count(1, 1'000'000'000))->capture_default_str()->type_name("N")->group(length);
  app.add_option("--workers", o.trainer.workers, "threads; they change speed, never results (0: one a core)")->check(count(0, 1024))->capture_default_str()->type_name("N")->group(length);

  const char* files = "Files";
  auto* save = app.add_option("--save", o.save, "where weights, optimizer slots, step, seed and reader position go at every validation and at the end")
                   ->capture_default_str()->type_name("FILE")->group(files);
  app.add_flag("!--no-save", o.saves, "save nothing")->group(files)->excludes(save);
  app.add_flag("--overwrite", o.overwrites, "a new training may replace the file")->group(files);
  app.add_option("--resume", o.resume, "go on from this file, and save there unless --save says otherwise")->type_name("FILE")->group(files);

  const char* sample = "Sample";
  app.add_option("--sample-chars", o.sample_characters, "characters to write at the end")->check(count(0, 1'000'000))->capture_default_str()->type_name("N")->group(sample);
  app.add_option("--temperature", o.temperature, "below 1 the sample is more certain, above more varied")->check(CLI::Range(0.01, 100.0))->capture_default_str()->type_name("T")->group(sample);
}

/// What depends on which options were given.
inline void finish(const CLI::App& app, Options& o) {
  for (const char* name : {"context", "embedding", "hidden", "layers", "batch", "rate", "seed"})
    if (app.count(std::string("--") + name)) o.given.emplace_back(name);
  o.has_steps = app.count("--steps") > 0;
  if (!o.resume.empty() && !app.count("--save")) o.save = o.resume;
}

}  // namespace troupe::char_lm
