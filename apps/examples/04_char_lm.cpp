// Trains a character-level language model on a text, validates it on the last tenth, saves,
// resumes bit for bit, and writes a sample. The model is an LSTM whose loops over time, over the
// held-out part and over the characters it writes are in the graph.
//
//   char_lm                          # the King James Bible, two and a half minutes of training
//   char_lm --model window           # the last sixteen characters through two hidden layers
//   char_lm --text book.txt --steps 2000 --save book.safetensors
//   char_lm --text book.txt --resume book.safetensors --steps 4000
//   char_lm --records runs/1         # and tensorboard --logdir runs
//   char_lm --http 7200              # and a browser at http://127.0.0.1:7200/
//   char_lm --join tcp://127.0.0.1:7117 --nodes a,b,c   # three nodes of a cluster share each batch
//
// Exit codes: 0 done; 2 something given is wrong or out of reach, in a sentence that says what to
// do; 130 (SIGINT) and 143 (SIGTERM) interrupted after saving; 1 Troupe's own fault.
//
// Test: --steps 40 --hidden 64 --validate-every 20 --no-save --sample-chars 40
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <troupe/apps/examples/char_lm/checkpoint.hpp>
#include <troupe/apps/examples/char_lm/go_on.hpp>
#include <troupe/apps/examples/char_lm/options.hpp>
#include <troupe/apps/examples/char_lm/progress.hpp>

using namespace troupe;
using namespace troupe::char_lm;

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

std::atomic<int> g_signal{0};  // publishes nothing but itself: the loop looks at it between steps

// The first signal ends the loop after its step; the second ends the process, as without a handler.
void listen() {
  struct sigaction action {};
  action.sa_handler = [](int number) { g_signal.store(number, std::memory_order_relaxed); };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

// A sample of bytes that may be anything, so that no terminal is upset.
std::string printable(std::string s) {
  for (char& c : s)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F) c = '?';
  return s;
}

// Exit status 1 if the printed text has not arrived.
int written() {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return 0;
  fmt::print(stderr, "char_lm: standard output cannot be written\n");
  return 1;
}

class Job {
 public:
  explicit Job(Options options) : options_(std::move(options)), text_(load_text()) {}

  int run() {
    refuse_to_replace();
    std::optional<Checkpoint> checkpoint;
    if (!options_.resume.empty()) checkpoint = Checkpoint::load(options_.resume, options_, text_);
    prepare();
    if (options_.checks) return 0;
    if (!options_.records.empty()) records_.emplace(options_.records);
    else if (options_.trainer.cluster.http >= 0) records_.emplace();
    std::unique_ptr<Trainer> trainer = make_trainer(text_, options_.trainer);
    nodes_ = options_.trainer.cluster.nodes.size();
    if (InspectionServer* page = trainer->page()) show_on(*page);
    if (checkpoint) {
      checkpoint->restore(*trainer);
      first_ = step_ = checkpoint->step();
      progress_.line(
          fmt::format("{} continues after step {}", options_.resume, with_commas(step_)));
    }
    listen();  // from here on there is something to save
    validation_ = trainer->validate(options_.validate_characters);
    report(0);
    save_now(*trainer);  // a disk that is full shows before the training, not after

    for (std::int64_t restarts = 0; !trainer || !train(*trainer);) go_on(trainer, restarts);
    if (int number = g_signal.load(std::memory_order_relaxed)) return interrupted(number);
    finish(*trainer);
    return 0;
  }

 private:
  Text load_text() const {
    if (options_.text.empty()) return Text::of(read_bible(), "the King James Bible");
    return Text::of(read_file(options_.text), fmt::format("'{}'", options_.text));
  }

  void refuse_to_replace() const {
    if (!options_.saves) return;
    // a place that cannot be looked at is one where nothing can be written, which is said then
    std::error_code unseen;
    auto is = [&](const std::string& other) {
      return !other.empty() &&
             (options_.save == other || std::filesystem::equivalent(options_.save, other, unseen));
    };
    auto refuse = [&](const char* why) {
      throw Error(Code::invalid_argument,
                  fmt::format("cannot save '{}': {} with --save FILE", options_.save, why));
    };
    if (std::filesystem::is_directory(options_.save, unseen)) refuse("it is a folder; name a file");
    if (is(options_.text)) refuse("it is the text to learn from; name another file");
    if (options_.overwrites || is(options_.resume) ||
        !std::filesystem::exists(options_.save, unseen))
      return;
    const std::string resumes =
        options_.resume.empty()
            ? fmt::format("go on from it with --resume {}, ", shell_word(options_.save))
            : "";
    throw Error(Code::already_exists,
                fmt::format("'{}' is there already: {}replace it with --overwrite, or name another "
                            "file with --save FILE",
                            options_.save, resumes));
  }

  void prepare() {
    ModelOptions& m = options_.trainer.model;
    m.symbols = static_cast<std::int64_t>(text_.alphabet().size());
    if (std::string why = too_short(text_, options_.trainer); !why.empty())
      throw Error(Code::invalid_argument, why);
    order0_ = entropy(text_);
    order1_ = conditional_entropy(text_);
    progress_.line(fmt::format("{}: {} characters, {} different; the last {} are held out",
                               options_.text.empty() ? "King James Bible" : options_.text,
                               with_commas(text_.size()), m.symbols,
                               with_commas(text_.held_out_size())));
    progress_.line(
        fmt::format("entropy of the held-out part: order 0 {:.3f}, order 1 {:.3f} bits/char",
                    order0_, order1_));
  }

  void show_on(InspectionServer& page) {
    page.serve(*records_);
    progress_.line(fmt::format("to be seen at {}", page.address()));
  }

  // False: a node was lost, and `lost_` has why, or there are more nodes, and `lost_` is fine.
  bool train(Trainer& trainer) {
    bool is_planned = options_.seconds == 0;
    if (!is_planned) options_.trainer.steps = first_ + kMeasured;
    Clock::time_point begin = Clock::now(), since = begin;
    std::int64_t since_characters = 0, last_line = first_;
    double paused = 0;  // validating and saving, which the speed leaves out
    const auto count = [&] {
      trained_ += seconds_since(begin) - paused;
      characters_ += trainer.characters();
    };
    // The steps after a restart get the rest of the time.
    const auto leave_rest = [&] {
      count();
      if (options_.seconds > 0)
        options_.seconds = std::max(1.0, options_.seconds - (seconds_since(begin) - paused));
      return false;
    };
    while (step_ < options_.trainer.steps && !g_signal.load(std::memory_order_relaxed)) {
      try {
        loss_ = trainer.train(step_++);
      } catch (const Error& e) {
        if (e.code() != Code::unavailable && e.code() != Code::not_found) throw;
        lost_ = Status(e);
        return leave_rest();
      }
      if (records_) records_->scalar("loss", step_, loss_);
      if (!std::isfinite(loss_)) refuse_divergence();
      if (!is_planned && step_ - first_ == kMeasured)
        is_planned = plan(trainer, seconds_since(begin));
      double speed = speed_of(trainer.characters() - since_characters, seconds_since(since));
      progress_.step(step_, options_.trainer.steps, loss_, validation_, speed);
      if (records_)
        records_->progress({.step = step_,
                            .steps = is_planned ? options_.trainer.steps : 0,
                            .loss = loss_,
                            .validation = validation_,
                            .rate = speed,
                            .unit = "characters"});
      const std::int64_t interval = options_.validation_interval();
      if (is_planned && step_ >= last_line + interval &&
          step_ + interval / 2 < options_.trainer.steps) {
        Clock::time_point pause = Clock::now();
        validation_ = trainer.validate(options_.validate_characters);
        if (options_.seconds > 0)
          plan(trainer, seconds_since(begin) - paused - seconds_since(pause));
        report(speed);
        save_now(trainer);
        paused += seconds_since(pause);
        lost_ = Status();
        if (options_.max_restarts > 0 && step_ < options_.trainer.steps && trainer.has_more_nodes())
          return leave_rest();
        since = Clock::now();
        since_characters = trainer.characters();
        last_line = step_;
      }
    }
    count();
    speed_ = speed_of(characters_, trained_);
    save_now(trainer);
    return true;
  }

  // Goes on from the last save, because a step that ended with a loss may have updated some of the
  // weights: with the node if it comes back soon, else with those that are there.
  void go_on(std::unique_ptr<Trainer>& trainer, std::int64_t& restarts) {
    if (lost_.ok()) {
      progress_.line(fmt::format("step {}: more nodes are there", with_commas(step_)));
    } else {
      if (restarts == options_.max_restarts) refuse_loss(lost_);
      ++restarts;
      progress_.line(fmt::format("step {}: {}; restart {} of {} from '{}'", with_commas(step_),
                                 lost_.message(), restarts, options_.max_restarts, options_.save));
    }
    TrainerOptions& o = options_.trainer;
    if (trainer)
      for (const std::string& address : trainer->addresses())
        if (std::find(o.cluster.join.begin(), o.cluster.join.end(), address) ==
            o.cluster.join.end())
          o.cluster.join.push_back(address);
    trainer.reset();
    o.cluster.goes_on = true;
    Options as_saved = options_;
    as_saved.given.clear();
    const Checkpoint checkpoint = Checkpoint::load(options_.save, as_saved, text_);
    try {
      trainer = make_trainer(text_, o);
      checkpoint.restore(*trainer);
      if (InspectionServer* page = trainer->page()) show_on(*page);
      first_ = step_ = checkpoint.step();
      progress_.line(fmt::format("{} continues after step {} on {} of {} nodes", options_.save,
                                 with_commas(step_), trainer->nodes().size(), nodes_));
    } catch (const Error& e) {
      if (e.code() != Code::unavailable && e.code() != Code::not_found) throw;
      lost_ = Status(e);
      trainer.reset();
    }
  }

  // Throws before a save replaces the last good file.
  [[noreturn]] void refuse_divergence() const {
    throw Error(
        Code::failed_precondition,
        fmt::format("the loss is no number any more after step {}: start again with a lower --rate "
                    "than {}{}",
                    step_, options_.trainer.rate,
                    options_.saves
                        ? fmt::format("; '{}' is as it was at the last line above", options_.save)
                        : ""));
  }

  // A node of the cluster, after which weights may have been updated in part.
  [[noreturn]] void refuse_loss(const Status& e) const {
    throw Error(
        e.code(),
        fmt::format("{}{}", e.message(),
                    options_.saves ? fmt::format("; '{0}' is as it was at the last line above: go "
                                                 "on with --resume {0} over the nodes that "
                                                 "are left, or start with --max-restarts",
                                                 options_.save)
                                   : ""));
  }

  // --seconds, in steps at the speed so far; once more at each line, as speed may change. The
  // rate's fall follows, and is saved.
  bool plan(Trainer& trainer, double seconds) {
    const double begin = trainer.work_before(first_), done = trainer.work_before(step_) - begin;
    options_.trainer.steps =
        std::max(step_, trainer.step_after(begin + done * options_.seconds / seconds));
    trainer.set_steps(options_.trainer.steps);
    return true;
  }

  static double speed_of(std::int64_t characters, double seconds) {
    return seconds > 0 ? static_cast<double>(characters) / seconds : 0;
  }

  void report(double speed) {
    std::string text = fmt::format("step {:>7}", with_commas(step_));
    if (options_.trainer.steps > 0)
      text += fmt::format(" of {}", with_commas(options_.trainer.steps));
    if (step_ > first_) text += fmt::format("  loss {:.3f}", loss_);
    text += fmt::format("  validation {:.3f} bits/char", validation_);
    if (speed > 0)
      text += fmt::format("  {} chars/s", with_commas(static_cast<std::int64_t>(speed)));
    progress_.line(text);
    if (!records_) return;
    records_->scalar("validation/bits_per_character", step_, validation_);
    if (speed > 0) records_->scalar("speed/characters_per_second", step_, speed);
  }

  void save_now(Trainer& trainer) {
    if (options_.saves) save(options_.save, trainer, text_, step_);
  }

  int interrupted(int number) {
    progress_.line(fmt::format("stopped after step {} of {}", with_commas(step_),
                               with_commas(options_.trainer.steps)));
    // and the file has the steps
    const bool is_planned = options_.seconds == 0 || step_ - first_ >= kMeasured;
    if (!is_planned && options_.has_given("seconds"))
      options_.again.emplace_back("--seconds", fmt::format("{}", options_.seconds));
    if (options_.saves) progress_.line("go on with: " + go_on_with(options_));
    else progress_.line("nothing was saved, because of --no-save");
    return 128 + number;
  }

  void finish(Trainer& trainer) {
    validation_ = trainer.validate(text_.held_out_size());
    report(speed_);
    progress_.line(fmt::format("the {} model after {:.0f} seconds of training, {} characters",
                               options_.trainer.model.kind, trained_, with_commas(characters_)));
    progress_.line(
        fmt::format("validation over the whole held-out part: {:.3f} bits/char, {:.3f} {} its "
                    "order-1 entropy of {:.3f}",
                    validation_, std::abs(order1_ - validation_),
                    validation_ < order1_ ? "below" : "above", order1_));
    if (options_.saves) progress_.line(fmt::format("saved to {}", options_.save));
    progress_.line(fmt::format("checksum of the weights: {:016x}", checksum(trainer)));
    if (options_.sample_characters == 0) return;
    const std::string sample =
        printable(trainer.sample(options_.sample_characters, options_.temperature));
    progress_.line("\na sample:\n\n" + sample);
    if (records_) records_->text("sample", step_, sample);
  }

  // steps after which --seconds is planned: within the warm-up
  static constexpr std::int64_t kMeasured = 50;

  Options options_;
  Text text_;
  Progress progress_;
  std::optional<Records> records_;
  std::size_t nodes_ = 0;  // at the start
  Status lost_;            // why a step has ended without a node
  double order0_ = 0, order1_ = 0;
  std::int64_t first_ = 0, step_ = 0;
  double loss_ = 0, validation_ = 0, speed_ = 0;
  double trained_ = 0;           // seconds, those of repeated steps too
  std::int64_t characters_ = 0;  // in these seconds
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Trains a character-level language model on a text, and writes a sample of the result.\n"
      "Ctrl-C stops after the step, saves, and prints how to resume.",
      "char_lm"};
  Options options;
  if (argc > 0) options.program = argv[0];
  declare(app, options);
  try {
    app.parse(argc, argv);
    finish(app, options);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return written();
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "char_lm: {}; see char_lm --help\n", e.what());
    return 2;
  }
  try {
    const int status = Job(std::move(options)).run();
    return status == 0 ? written() : status;
  } catch (const Error& e) {
    fmt::print(stderr, "char_lm: {}\n", e.what());
    const bool is_from_outside = e.code() == Code::internal || e.code() == Code::unavailable ||
                                 e.code() == Code::deadline_exceeded;
    return is_from_outside ? 1 : 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "char_lm: {}\n", e.what());
    return 1;
  }
}
