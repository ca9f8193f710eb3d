// Trains a character-level language model on a text, validates it on the last tenth, saves,
// resumes bit for bit, and writes a sample.
//
//   char_lm                                        # the King James Bible, a minute on two cores
//   char_lm --text book.txt --steps 2000 --save book.safetensors
//   char_lm --text book.txt --resume book.safetensors --steps 4000
//
// Test: --steps 30 --no-save --validate-characters 2000 --sample-chars 50
// Exit codes: 0 done; 2 the input is wrong, in a sentence that says what to do; 130 (SIGINT) and 143
// (SIGTERM) interrupted after saving; 1 Troupe's own fault.
// Test: --steps 40 --hidden 64 --validate-every 20 --no-save --sample-chars 40
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include <troupe/apps/examples/char_lm/checkpoint.hpp>
#include <troupe/apps/examples/char_lm/options.hpp>
#include <troupe/apps/examples/char_lm/progress.hpp>

using namespace troupe;
using namespace troupe::char_lm;

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

std::atomic<int> g_signal{0};  // publishes nothing but itself: the loop looks at it between steps

// The first signal asks the loop to stop; the second ends the process, as it would have.
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

class Job {
 public:
  explicit Job(Options options) : options_(std::move(options)), text_(load_text()) {}

  int run() {
    refuse_to_replace();
    std::optional<Checkpoint> checkpoint;
    if (!options_.resume.empty()) checkpoint = Checkpoint::load(options_.resume, options_, text_);
    prepare();
    Trainer trainer(text_, options_.trainer);
    if (checkpoint) {
      checkpoint->restore(trainer);
      first_ = step_ = checkpoint->step();
      progress_.line(fmt::format("{} continues after step {}", options_.resume, with_commas(step_)));
    }
    validation_ = trainer.validate(options_.validate_characters);
    report(trainer, 0);
    save_now(trainer);  // a disk that is full shows before the training, not after

    train(trainer);
    if (int number = g_signal.load(std::memory_order_relaxed)) return interrupted(number);
    finish(trainer);
    return 0;
  }

 private:
  Text load_text() const {
    if (options_.text.empty()) return Text::of(read_bible(), "the King James Bible");
    return Text::of(read_file(options_.text), fmt::format("'{}'", options_.text));
  }

  void refuse_to_replace() const {
    if (options_.saves && options_.resume.empty() && !options_.overwrites && std::filesystem::exists(options_.save))
      throw Error(Code::already_exists, fmt::format("'{0}' is there already: go on from it with --resume {0}, replace it with --overwrite, "
                                                    "or name another file with --save FILE", options_.save));
  }

  void prepare() {
    ModelOptions& m = options_.trainer.model;
    m.symbols = static_cast<std::int64_t>(text_.alphabet().size());
    if (text_.held_out_begin() <= m.context)
      throw Error(Code::invalid_argument, fmt::format("the text has {} characters, too few for a context of {}; give a longer text with "
                                                      "--text FILE or a smaller --context", text_.size(), m.context));
    order0_ = entropy(text_);
    order1_ = conditional_entropy(text_);
    progress_.line(fmt::format("{}: {} characters, {} different; the last {} are held out", options_.text.empty() ? "King James Bible" : options_.text,
                               with_commas(text_.size()), m.symbols, with_commas(text_.held_out_size())));
    progress_.line(fmt::format("entropy of the held-out part: order 0 {:.3f}, order 1 {:.3f} bits/char", order0_, order1_));
  }

  void train(Trainer& trainer) {
    std::int64_t interval = options_.validation_interval();
    Clock::time_point begin = Clock::now(), since = begin;
    std::int64_t since_step = step_;
    double paused = 0;  // validating and saving, which the speed leaves out
    while (step_ < options_.trainer.steps && !g_signal.load(std::memory_order_relaxed)) {
      loss_ = trainer.train(step_++);
      if (!std::isfinite(loss_)) refuse_divergence();
      if (options_.minutes > 0 && step_ - first_ == kMeasured) {
        plan(trainer, seconds_since(begin) / kMeasured);
        interval = options_.validation_interval();
      }
      double speed = speed_of(step_ - since_step, seconds_since(since));
      progress_.step(step_, options_.trainer.steps, loss_, validation_, speed);
      if (step_ % interval == 0 && step_ + interval / 2 < options_.trainer.steps) {
        Clock::time_point pause = Clock::now();
        validation_ = trainer.validate(options_.validate_characters);
        report(trainer, speed);
        save_now(trainer);
        paused += seconds_since(pause);
        since = Clock::now();
        since_step = step_;
      }
    }
    speed_ = speed_of(step_ - first_, seconds_since(begin) - paused);
    save_now(trainer);
  }

  // Before anything is saved over what was good.
  [[noreturn]] void refuse_divergence() const {
    throw Error(Code::failed_precondition,
                fmt::format("the loss is no number any more after step {}: start again with a lower --rate than {}{}", step_, options_.trainer.rate,
                            options_.saves ? fmt::format("; '{}' is as it was at the last line above", options_.save) : ""));
  }

  // --minutes, in steps at the speed so far. The rate's fall follows, and is saved.
  void plan(Trainer& trainer, double seconds_a_step) {
    auto more = static_cast<std::int64_t>(options_.minutes * 60 / seconds_a_step);
    options_.trainer.steps = first_ + std::max(more, kMeasured);
    trainer.set_steps(options_.trainer.steps);
  }

  double speed_of(std::int64_t steps, double seconds) const {
    return seconds > 0 ? static_cast<double>(steps * options_.trainer.batch) / seconds : 0;
  }

  void report(const Trainer&, double speed) {
    std::string text = fmt::format("step {:>7} of {}", with_commas(step_), with_commas(options_.trainer.steps));
    if (step_ > first_) text += fmt::format("  loss {:.3f}", loss_);
    text += fmt::format("  validation {:.3f} bits/char", validation_);
    if (speed > 0) text += fmt::format("  {} chars/s", with_commas(static_cast<std::int64_t>(speed)));
    progress_.line(text);
  }

  void save_now(Trainer& trainer) {
    if (options_.saves) save(options_.save, trainer, text_, step_);
  }

  int interrupted(int number) {
    progress_.line(fmt::format("stopped after step {} of {}", with_commas(step_), with_commas(options_.trainer.steps)));
    if (options_.saves)
      progress_.line(fmt::format("go on with: char_lm{} --resume {}", options_.text.empty() ? "" : " --text " + options_.text, options_.save));
    else progress_.line("nothing was saved, because of --no-save");
    return 128 + number;
  }

  void finish(Trainer& trainer) {
    validation_ = trainer.validate(text_.held_out_size());
    report(trainer, speed_);
    progress_.line(fmt::format("validation over the whole held-out part: {:.3f} bits/char, {:.3f} {} its order-1 entropy of {:.3f}", validation_,
                               std::abs(order1_ - validation_), validation_ < order1_ ? "below" : "above", order1_));
    if (options_.saves) progress_.line(fmt::format("saved to {}", options_.save));
    if (options_.sample_characters > 0)
      progress_.line("\na sample:\n\n" + printable(trainer.sample(options_.sample_characters, options_.temperature)));
  }

  static constexpr std::int64_t kMeasured = 50;  // steps after which --minutes is planned: within the warm-up

  Options options_;
  Text text_;
  Progress progress_;
  double order0_ = 0, order1_ = 0;
  std::int64_t first_ = 0, step_ = 0;
  double loss_ = 0, validation_ = 0, speed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains a character-level language model on a text, and writes a sample of what it has learnt.\n"
               "Ctrl-C stops after the step, saves, and says how to go on.", "char_lm"};
  Options options;
  declare(app, options);
  try {
    app.parse(argc, argv);
    finish(app, options);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "char_lm: {}; see char_lm --help\n", e.what());
    return 2;
  }
  try {
    listen();
    return Job(std::move(options)).run();
  } catch (const Error& e) {
    fmt::print(stderr, "char_lm: {}\n", e.what());
    return e.code() == Code::internal ? 1 : 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "char_lm: {}\n", e.what());
    return 1;
  }
}
