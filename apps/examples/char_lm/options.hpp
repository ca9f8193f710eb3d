// The options of the command line.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <troupe/apps/examples/char_lm/trainers.hpp>

namespace troupe::char_lm {

inline constexpr std::int64_t kMaxContext = 1024, kMaxLength = 4096, kMaxEmbedding = 4096,
                              kMaxHidden = 16'384, kMaxLayers = 64, kMaxBatch = 1 << 20,
                              kMaxDevices = 1024, kMaxSteps = 1'000'000'000'000;

/// Dimensions of the transformer that a layout may split.
inline constexpr const char* kDimensions[] = {"batch", "length", "width",     "heads",
                                              "depth", "inner",  "vocabulary"};

/// Sizes with which each model learns most of the King James Bible in the default time on two
/// cores.
inline TrainerOptions defaults(const std::string& kind) {
  TrainerOptions t;
  t.model.kind = kind;
  if (kind == kWindow) {
    t.model.context = 16;
    t.model.embedding = 24;
    t.model.hidden = 512;
    t.model.layers = 2;
    t.batch = 512;
    t.rate = 3e-3;
  } else if (kind == kTransformer) {
    t.model.context = 64;
    t.model.hidden = 128;
    t.model.layers = 2;
    t.model.heads = 4;
    t.batch = 32;
    t.rate = 3e-3;
  } else {
    t.model.length = 64;
    t.model.embedding = 32;
    t.model.hidden = 256;
    t.model.layers = 1;
    t.batch = 32;
    t.rate = 8e-3;
  }
  return t;
}

struct Options {
  TrainerOptions trainer = defaults(kLstm);
  std::string program = "char_lm";  // as it was called
  std::string text;                 // empty: the King James Bible
  double seconds = 150;             // 0: as many steps as were asked for
  std::string save = "char_lm.safetensors";
  std::string resume;
  std::string records;  // a folder; empty: none
  bool saves = true;
  bool overwrites = false;
  bool checks = false;            // and trains nothing
  std::int64_t max_restarts = 0;  // from the last save, after a node was lost
  std::int64_t validate_every = 0;
  std::int64_t validate_characters = 16'384;
  std::int64_t sample_characters = 400;
  double temperature = 0.7;
  /// Options of the model and the reader that were given: a file that is resumed has its own.
  std::vector<std::string> given;
  /// Options, by name and value, that no file has and that were given beside text and cluster.
  std::vector<std::pair<std::string, std::string>> again;

  bool has_given(const std::string& name) const {
    return std::find(given.begin(), given.end(), name) != given.end();
  }
  std::int64_t validation_interval() const {
    return validate_every > 0 ? validate_every : std::max<std::int64_t>(1, trainer.steps / 12);
  }
};

/// The options by which a model is made, by their names on the command line and in files: those
/// that it has.
void fields(auto& t, auto&& visit) {
  visit("model", t.model.kind);
  if (t.model.kind == kWindow || t.model.kind == kTransformer) visit("context", t.model.context);
  else visit("length", t.model.length), visit("replicas", t.replicas);
  if (t.model.kind != kTransformer) visit("embedding", t.model.embedding);
  else visit("heads", t.model.heads);
  visit("hidden", t.model.hidden);
  visit("layers", t.model.layers);
  visit("batch", t.batch);
  visit("rate", t.rate);
  visit("seed", t.model.seed);
  visit("steps", t.steps);
}

/// Fills `app` with the options; read them after `app.parse`.
inline void declare(CLI::App& app, Options& o) {
  ModelOptions& m = o.trainer.model;
  auto count = [](std::int64_t low, std::int64_t high) { return CLI::Range(low, high); };
  const CLI::Validator positive(
      [](const std::string& given) {
        double value = 0;
        const bool is_number = CLI::detail::lexical_cast(given, value);
        return is_number && std::isfinite(value) && value > 0
                   ? std::string()
                   : fmt::format("'{}' is no positive number", given);
      },
      "POSITIVE");
  const CLI::Validator whole(
      [](const std::string& given) {
        std::uint64_t value = 0;
        const auto [end, failed] =
            std::from_chars(given.data(), given.data() + given.size(), value);
        return failed == std::errc() && end == given.data() + given.size()
                   ? std::string()
                   : fmt::format("'{}' is no whole number from 0 to 18446744073709551615", given);
      },
      "");
  const CLI::Validator number(
      [](const std::string& given) {
        return std::isnan(std::strtod(given.c_str(), nullptr))
                   ? fmt::format("'{}' is no number", given)
                   : std::string();
      },
      "");

  app.add_option(
         "--text", o.text,
         "file to learn from, any bytes (default: the King James Bible from Debian's bible-kjv)")
      ->type_name("FILE")
      ->group("Text");

  const char* model = "Model (a resumed file has its own)";
  app.add_option("--model", m.kind,
                 "lstm: reads streams of text with a memory; window: sees the last characters "
                 "only; transformer: attends to them, over a mesh of devices if asked to")
      ->check(CLI::IsMember({kLstm, kWindow, kTransformer}))
      ->capture_default_str()
      ->type_name("NAME")
      ->group(model);
  auto add = [&](const char* name, auto& value, const std::string& what,
                 const CLI::Validator& check, const char* type = "N") {
    app.add_option(name, value, what)->check(check)->type_name(type)->group(model);
  };
  auto both = [](auto lstm, auto window) {
    return fmt::format(" (lstm: {}, window: {})", lstm, window);
  };
  auto three = [](auto lstm, auto window, auto transformer) {
    return fmt::format(" (lstm: {}, window: {}, transformer: {})", lstm, window, transformer);
  };
  const TrainerOptions l = defaults(kLstm), w = defaults(kWindow), t = defaults(kTransformer);
  add("--length", m.length,
      fmt::format("lstm: characters of a stream in one step, about, and so how far gradients go "
                  "back ({}); the first steps take fewer",
                  l.model.length),
      count(1, kMaxLength));
  add("--context", m.context,
      fmt::format("characters the model sees (window: {}, transformer: {})", w.model.context,
                  t.model.context),
      count(1, kMaxContext));
  add("--embedding", m.embedding,
      "numbers a character is turned into" + both(l.model.embedding, w.model.embedding),
      count(1, kMaxEmbedding));
  add("--hidden", m.hidden,
      "width of a hidden layer" + three(l.model.hidden, w.model.hidden, t.model.hidden),
      count(1, kMaxHidden));
  add("--layers", m.layers,
      "hidden layers; window, 0: a linear model" +
          three(l.model.layers, w.model.layers, t.model.layers),
      count(0, kMaxLayers));
  add("--heads", m.heads,
      fmt::format("transformer: heads of attention; they divide --hidden ({})", t.model.heads),
      count(1, kMaxHidden));
  add("--batch", o.trainer.batch,
      "lstm: streams read side by side; window: characters predicted in one step; transformer: "
      "windows read in one step" +
          three(l.batch, w.batch, t.batch),
      count(1, kMaxBatch));
  add("--rate", o.trainer.rate,
      "Adam's learning rate after 100 steps; then it falls" + three(l.rate, w.rate, t.rate),
      positive, "R");
  add("--replicas", o.trainer.replicas,
      "lstm: parts of a batch that are computed apart; they decide the result, the nodes that they "
      "go to do not (default: one a node)",
      count(1, kMaxBatch));
  app.add_option("--seed", m.seed, "seed of the first weights, the reader and the sample")
      ->check(whole)
      ->capture_default_str()
      ->type_name("N")
      ->group(model);

  const char* length = "Length";
  auto* steps = app.add_option("--steps", o.trainer.steps,
                               "steps of the whole training, those before a resume included")
                    ->check(count(0, kMaxSteps))
                    ->type_name("N")
                    ->group(length);
  app.add_option("--seconds", o.seconds,
                 "instead of --steps: train for so long, validations and saving not counted; a "
                 "resumed training goes on for so long")
      ->check(positive)
      ->capture_default_str()
      ->type_name("S")
      ->group(length)
      ->excludes(steps);
  app.add_option("--validate-every", o.validate_every,
                 "steps between validations and lines (default: a twelfth of all)")
      ->check(count(1, 1'000'000'000))
      ->type_name("N")
      ->group(length);
  app.add_option("--validate-characters", o.validate_characters,
                 "held-out characters of those validations; the last takes all")
      ->check(count(1, 1'000'000'000))
      ->capture_default_str()
      ->type_name("N")
      ->group(length);
  app.add_option("--device", o.trainer.device,
                 "the device of this process: gpu:0, say, or gpu for the first (default: cpu:0)")
      ->type_name("NAME")
      ->group(length);
  app.add_option("--workers", o.trainer.workers,
                 "threads; they change speed, never results (0: one a core)")
      ->check(count(0, 1024))
      ->capture_default_str()
      ->type_name("N")
      ->group(length);

  app.add_flag(
         "--check", o.checks,
         "look at the options, the text and the files to resume or replace, and train nothing")
      ->group(length);

  const char* mesh = "Mesh (transformer)";
  auto* shape = app.add_option("--mesh", o.trainer.mesh,
                               "axes of a mesh of devices, of this process or of --nodes: "
                               "rows:2;cols:2, say; the last axis stays on one node")
                    ->type_name("SHAPE")
                    ->group(mesh);
  auto* layout =
      app.add_option("--layout", o.trainer.layout,
                     fmt::format("dimensions to split along axes: batch:rows;heads:cols, say. "
                                 "Dimensions are {}. It changes no result but by rounding",
                                 fmt::join(kDimensions, ", ")))
          ->type_name("RULES")
          ->group(mesh)
          ->needs(shape);
  shape->needs(layout);

  const char* cluster = "Cluster";
  ClusterOptions& c = o.trainer.cluster;
  auto* join =
      app.add_option("--join", c.join, "address of a node of a cluster, which knows the others")
          ->type_name("ADDRESS")
          ->group(cluster);
  auto* nodes =
      app.add_option("--nodes", c.nodes,
                     "names of the nodes that share each batch; weights and files stay here")
          ->delimiter(',')
          ->type_name("NAME,NAME,...")
          ->group(cluster)
          ->needs(join);
  join->needs(nodes);
  app.add_option("--keys", c.keys, "folder of keys, as of `troupe node --keys`")
      ->type_name("DIR")
      ->group(cluster)
      ->needs(nodes);

  app.add_option("--max-restarts", o.max_restarts,
                 "go on from the last save so often after a node was lost: with it, if it is back "
                 "within ten seconds, else without it")
      ->check(count(0, 1'000'000))
      ->capture_default_str()
      ->type_name("N")
      ->group(cluster)
      ->needs(nodes);

  const char* files = "Files";
  auto* save = app.add_option("--save", o.save,
                              "file of weights, optimizer slots, step, seed and reader position; "
                              "written at every validation and at the end")
                   ->capture_default_str()
                   ->type_name("FILE")
                   ->group(files);
  app.add_flag_callback(
         "--no-save", [&o] { o.saves = false; }, "save nothing")
      ->group(files)
      ->excludes(save);
  app.add_flag("--overwrite", o.overwrites, "a file that is there already may be replaced")
      ->group(files);
  app.add_option("--resume", o.resume,
                 "resume from this file, and save there unless --save is given")
      ->type_name("FILE")
      ->group(files);

  app.add_option("--records", o.records,
                 "folder for TensorBoard's event files: loss, validation, speed and the sample")
      ->type_name("DIR")
      ->group(files);

  app.add_option("--http", o.trainer.cluster.http,
                 "port on this machine where a browser sees the training; 0: any that is free")
      ->check(CLI::Range(0, 65535))
      ->type_name("PORT")
      ->group(files);

  const char* sample = "Sample";
  app.add_option("--sample-chars", o.sample_characters, "characters to write at the end")
      ->check(count(0, 1'000'000))
      ->capture_default_str()
      ->type_name("N")
      ->group(sample);
  app.add_option("--temperature", o.temperature,
                 "below 1 the sample is more certain, above more varied")
      ->check(number)
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str()
      ->type_name("T")
      ->group(sample);

  app.footer(
      "Exit status: 0 done; 1 a node is lost or out of reach, standard output cannot be written, "
      "or "
      "Troupe's own fault; 2 something given\n"
      "is wrong (an option, the text, a file, a disk), and a sentence names the remedy; 130 and "
      "143 "
      "interrupted by Ctrl-C and by SIGTERM,\n"
      "after saving.");
}

/// Throws CLI::ValidationError if a mesh or a layout is none, or names what the model lacks.
inline void check_mesh(const TrainerOptions& t) {
  if (t.mesh.empty()) return;
  const auto refuse = [](const char* option, const std::string& why) {
    throw CLI::ValidationError(fmt::format("{}: {}", option, why));
  };
  try {
    const mesh::Dims axes = mesh::parse_dims(t.mesh);
    std::int64_t size = 1;
    for (const mesh::Dim& axis : axes)
      if ((size *= axis.size) > kMaxDevices || axis.size > kMaxDevices)
        refuse("--mesh", fmt::format("'{}' has more than {} places", t.mesh, kMaxDevices));
    const mesh::Layout layout(t.layout);
    for (const auto& [dimension, axis] : layout.rules()) {
      const std::string name = dimension.starts_with("slots/") ? dimension.substr(6) : dimension;
      if (std::find(std::begin(kDimensions), std::end(kDimensions), name) == std::end(kDimensions))
        refuse("--layout", fmt::format("the model has no dimension '{}'; it has {}", name,
                                       fmt::join(kDimensions, ", ")));
      if (std::none_of(axes.begin(), axes.end(), [&](const auto& a) { return a.name == axis; }))
        refuse("--layout", fmt::format("--mesh {} has no axis '{}'", t.mesh, axis));
    }
  } catch (const Error& e) { refuse("--mesh or --layout", e.what()); }
}

/// Completes options that depend on which others were given. Throws CLI::ValidationError if they
/// contradict each other.
inline void finish(const CLI::App& app, Options& o) {
  // An empty value comes from an unset variable of the shell, and does not mean a missing option.
  for (const char* name : {"--text", "--join", "--nodes", "--keys", "--save", "--resume",
                           "--records", "--device", "--mesh", "--layout"})
    for (const std::string& value : app.get_option(name)->results())
      if (value.empty())
        throw CLI::ValidationError(
            fmt::format("{} is empty: give it a value, or leave it out", name));
  if (o.trainer.device == "gpu") o.trainer.device = "gpu:0";
  for (const char* name :
       {"--workers", "--device", "--validate-every", "--validate-characters", "--records", "--http",
        "--sample-chars", "--temperature", "--max-restarts", "--mesh", "--layout"})
    if (app.count(name)) o.again.emplace_back(name, app.get_option(name)->results().front());
  for (const char* name : {"model", "length", "context", "embedding", "hidden", "layers", "heads",
                           "batch", "rate", "replicas", "seed", "steps", "seconds"})
    if (app.count(std::string("--") + name)) o.given.emplace_back(name);
  if (o.has_given("steps")) o.seconds = 0;
  if (o.max_restarts > 0 && !o.saves)
    throw CLI::ValidationError("--max-restarts goes on from the last save: leave --no-save out");
  check_mesh(o.trainer);
  if (!o.resume.empty() && !app.count("--save")) o.save = o.resume;
  if (!o.resume.empty()) return;

  ModelOptions& m = o.trainer.model;
  struct Owned {
    const char *name, *models;  // it belongs to these
  };
  for (const auto& [name, models] :
       {Owned{"length", "lstm"}, Owned{"replicas", "lstm"}, Owned{"context", "window transformer"},
        Owned{"embedding", "lstm window"}, Owned{"heads", "transformer"}})
    if (o.has_given(name) && std::string(models).find(m.kind) == std::string::npos)
      throw CLI::ValidationError(fmt::format("--{} belongs to --model {}, not to {}", name,
                                             fmt::join(CLI::detail::split(models, ' '), " and "),
                                             m.kind));
  if (m.kind != kTransformer && !o.trainer.mesh.empty())
    throw CLI::ValidationError(
        fmt::format("--mesh belongs to --model transformer, not to {}", m.kind));
  if (m.kind == kWindow && !o.trainer.cluster.nodes.empty())
    throw CLI::ValidationError(
        "--nodes belongs to --model lstm and transformer: the window model trains in one process");
  if (m.kind == kTransformer && !o.trainer.cluster.nodes.empty() && o.trainer.mesh.empty())
    throw CLI::ValidationError("--nodes needs --mesh and --layout, which assign the work to nodes");
  if (m.kind != kWindow && o.has_given("layers") && m.layers == 0)
    throw CLI::ValidationError(
        fmt::format("--layers 0 belongs to --model window; the {} needs one or more", m.kind));
  auto choose = [&](const char* name, auto& value, auto otherwise) {
    if (!o.has_given(name)) value = otherwise;
  };
  const TrainerOptions d = defaults(m.kind);
  choose("length", m.length, d.model.length);
  choose("context", m.context, d.model.context);
  choose("embedding", m.embedding, d.model.embedding);
  choose("hidden", m.hidden, d.model.hidden);
  choose("layers", m.layers, d.model.layers);
  choose("heads", m.heads, d.model.heads);
  choose("batch", o.trainer.batch, d.batch);
  choose("rate", o.trainer.rate, d.rate);
  choose("replicas", o.trainer.replicas,
         std::max<std::int64_t>(1, static_cast<std::int64_t>(o.trainer.cluster.nodes.size())));
  if (m.kind == kTransformer && m.hidden % m.heads != 0)
    throw CLI::ValidationError(
        fmt::format("--heads {} do not divide --hidden {}", m.heads, m.hidden));
}

}  // namespace troupe::char_lm
