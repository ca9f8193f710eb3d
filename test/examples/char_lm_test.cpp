// Not under asan and tsan: trainings take minutes there, on parts that other suites run.
// The main job: it learns, resumes bit for bit at any worker count, and answers bad input in a
// sentence with exit code 2, earlier files intact.
#include <troupe/test/support/process.hpp>

#include <sys/stat.h>

#include <cmath>
#include <random>
#include <regex>
#include <set>

#include <fmt/format.h>

#include <troupe/apps/examples/char_lm/window_reader.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/test/apps/terminal.hpp>
#include <troupe/test/support/gpu.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(char_lm_test)

namespace {

// Sentences of a small language, in which words predict the next one.
std::string a_text(unsigned seed = 1) {
  const char* subjects[] = {"the cat", "a dog", "the old king", "my shadow"};
  const char* verbs[] = {"watches", "follows", "remembers", "paints"};
  const char* objects[] = {"the river", "a stone", "the moon", "nobody"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < 12'000)
    text += fmt::format("{} {} {}.\n", subjects[random() % 4], verbs[random() % 4],
                        objects[random() % 4]);
  return text;
}

const std::string kText = "text.txt";

// Small ones of both models.
const std::vector<std::string> kLstm{"--model", "lstm",     "--hidden", "24",      "--embedding",
                                     "6",       "--length", "12",       "--batch", "8"};
const std::vector<std::string> kWindow{"--model", "window",    "--hidden", "24",      "--embedding",
                                       "6",       "--context", "6",        "--batch", "32"};

struct Place : Folder {
  Place() { write_file(*this / kText, a_text()); }
  std::vector<std::string> command(std::vector<std::string> more,
                                   const std::vector<std::string>& model = kLstm) const {
    std::vector<std::string> all{example("char_lm"), "--text", kText, "--sample-chars", "20"};
    all.insert(all.end(), model.begin(), model.end());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome lm(std::vector<std::string> more, const std::vector<std::string>& model = kLstm) const {
    return run(path(), command(std::move(more), model));
  }
  // With the model that is in the file.
  Outcome resume(std::vector<std::string> more) const { return lm(std::move(more), {}); }
  // Exit code 2, one sentence with these parts, and every file as it was.
  void refuses(const std::vector<std::string>& command,
               std::initializer_list<std::string> parts) const {
    std::map<std::string, std::string> before = contents();
    Outcome o = run(path(), command);
    std::string all;
    for (const std::string& a : command) all += a + " ";
    BOOST_TEST(o.code == 2, all << "\n" << o.out << o.error);
    BOOST_TEST(o.error.rfind("char_lm: ", 0) == 0u, all << "\n" << o.error);
    BOOST_TEST(std::count(o.error.begin(), o.error.end(), '\n') == 1, all << "\n" << o.error);
    for (const std::string& p : parts)
      BOOST_TEST((o.error.find(p) != std::string::npos), "'" << p << "' is not in: " << o.error);
    BOOST_TEST((contents() == before), all << ": files changed");
  }
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const std::string& name : files()) all[name] = read_file(*this / name);
    return all;
  }
};

double number_after(const std::string& text, const std::string& words) {
  std::size_t at = text.rfind(words);
  return at == std::string::npos ? NAN : std::strtod(text.c_str() + at + words.size(), nullptr);
}

// Is a tmpfs ours to mount, in a mount namespace of our own?
std::string unshare() {
  for (const char* how : {"unshare -m", "unshare -rm"})
    if (std::system(
            fmt::format("{} mount -t tmpfs -o size=1m none /tmp >/dev/null 2>&1", how).c_str()) ==
        0)
      return how;
  return {};
}

struct Mountable {
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
    boost::test_tools::assertion_result result(!unshare().empty());
    result.message() << "no tmpfs can be mounted here";
    return result;
  }
};

// Root reads every file; user 65534 does not.
std::vector<std::string> without_rights(std::vector<std::string> command) {
  if (geteuid() == 0)
    command.insert(command.begin(),
                   {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"});
  return command;
}

struct RunsWithoutRights {
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
    const std::string help = fmt::format(
        "'{}' >/dev/null 2>&1", fmt::join(without_rights({example("char_lm"), "--help"}), "' '"));
    boost::test_tools::assertion_result result(std::system(help.c_str()) == 0);
    result.message() << "nobody but root can start the program where it lies";
    return result;
  }
};

}  // namespace

using boost::unit_test::precondition;

BOOST_AUTO_TEST_CASE(the_reader_shows_every_character_once_an_epoch) {
  for (std::int64_t n : {1, 2, 3, 5, 16, 17, 1000, 4097}) {
    char_lm::Order order(10, 10 + n, 7);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int64_t> seen;
      for (std::int64_t i = 0; i < n; ++i) seen.insert(order[epoch * n + i]);
      BOOST_TEST(static_cast<std::int64_t>(seen.size()) == n);
      BOOST_TEST(*seen.begin() == 10);
      BOOST_TEST(*seen.rbegin() == 10 + n - 1);
    }
  }
  char_lm::Order a(0, 1000, 1), b(0, 1000, 2);
  int same = 0, in_place = 0, again = 0;
  for (int i = 0; i < 1000; ++i) {
    same += a[i] == b[i];
    in_place += a[i] == i;
    again += a[i] == a[1000 + i];
  }
  BOOST_TEST(same < 10);
  BOOST_TEST(in_place < 10);
  BOOST_TEST(again < 10);
}

// In bits: of the last tenth alone, of each symbol and of each after the one before it.
BOOST_AUTO_TEST_CASE(entropies_are_those_computed_by_hand) {
  const auto entropies = [](const std::string& text) {
    const char_lm::Text t = char_lm::Text::of(text, "a text");
    return std::pair(char_lm::entropy(t), char_lm::conditional_entropy(t));
  };
  const auto tolerance = boost::test_tools::tolerance(1e-12);
  std::string alternating;
  while (alternating.size() < 200) alternating += "ab";
  const auto [one, nothing] = entropies(alternating);
  BOOST_TEST(one == 1.0, tolerance);
  BOOST_TEST(nothing == 0.0);
  // Six a and three b; of eight pairs aa and ab are three each, a bit apiece, and ba, which is
  // certain, two.
  const auto [order0, order1] = entropies(std::string(81, 'c') + "aabaabaab");
  BOOST_TEST(order0 == std::log2(3.) - 2. / 3, tolerance);
  BOOST_TEST(order1 == 0.75, tolerance);
  // a is followed by b once and by c three times, and so the four others are certain: 4/8 (2 - 3/4
  // log2 3).
  const auto [even, uneven] = entropies(std::string(81, 'd') + "abacacaca");
  BOOST_TEST(even == (5 * std::log2(9. / 5) + std::log2(9.) + 3 * std::log2(3.)) / 9, tolerance);
  BOOST_TEST(uneven == 0.5 * (2 - 0.75 * std::log2(3.)), tolerance);
}

BOOST_AUTO_TEST_CASE(it_learns, *precondition(Built{"char_lm"})) {
  for (const auto& model : {kLstm, kWindow}) {
    Place place;
    Outcome o = place.lm({"--steps", "400", "--rate", "0.01"}, model);
    BOOST_REQUIRE_MESSAGE(o.code == 0, o.out << o.error);
    double order1 = number_after(o.out, "order-1 entropy of "),
           bits = number_after(o.out, "held-out part: ");
    double first = number_after(
        o.out.substr(0, o.out.find("bits/char\nstep", o.out.find("step       0"))), "validation ");
    BOOST_TEST(first > 4);
    BOOST_TEST(bits < order1 - 0.2, o.out);
    BOOST_TEST((o.out.find("the " + model[1] + " model after ") != std::string::npos), o.out);
    BOOST_TEST((o.out.find("a sample:") != std::string::npos));
    BOOST_TEST((o.out.find("chars/s") != std::string::npos));
    BOOST_TEST((place.files() == std::vector<std::string>{"char_lm.safetensors", kText}));
  }
}

// However fast or slow it goes, steps are planned: the rate falls to its end and the file says how
// many.
BOOST_AUTO_TEST_CASE(a_training_for_some_seconds_ends_and_can_be_resumed,
                     *precondition(Built{"char_lm"})) {
  Place place;
  Outcome o = place.lm({"--seconds", "0.2"});
  BOOST_REQUIRE_MESSAGE(o.code == 0, o.out << o.error);
  TensorFile file = load_safetensors(place / "char_lm.safetensors");
  BOOST_TEST(file.metadata.at("step") == file.metadata.at("steps"));
  BOOST_TEST(std::stoi(file.metadata.at("steps")) >= 50);
  o = place.resume({"--resume", "char_lm.safetensors", "--seconds", "0.2", "--save", "longer"});
  BOOST_REQUIRE_MESSAGE(o.code == 0, o.out << o.error);
  BOOST_TEST(std::stoi(load_safetensors(place / "longer").metadata.at("step")) >=
             std::stoi(file.metadata.at("step")) + 50);
}

BOOST_AUTO_TEST_CASE(a_gpu_learns_what_a_cpu_learns, *precondition(Built{"char_lm"})) {
  if (!has_gpu()) {
    BOOST_TEST_MESSAGE("skipped: a_gpu_learns_what_a_cpu_learns (no gpu:0)");
    return;
  }
  for (const auto& model : {kLstm, kWindow}) {
    Place place;
    const auto loss = [&](const std::string& device, const std::string& file) {
      const Outcome o =
          place.lm({"--steps", "10", "--seed", "9", "--device", device, "--save", file}, model);
      BOOST_REQUIRE_MESSAGE(o.code == 0, o.out << o.error);
      return load_safetensors(place / file);
    };
    const TensorFile cpu = loss("cpu:0", "cpu"), gpu = loss("gpu", "gpu");
    BOOST_REQUIRE(cpu.tensors.size() == gpu.tensors.size());
    for (const auto& [name, tensor] : cpu.tensors) {
      const Tensor& other = gpu.at(name);
      for (std::int64_t i = 0; i < tensor.elements(); ++i)
        BOOST_REQUIRE_SMALL(tensor.at(i) - other.at(i), 1e-3);
    }
  }
}

// The child cannot run ahead of what is read of its output, so the signal finds it in the middle.
BOOST_AUTO_TEST_CASE(interrupted_and_resumed_is_uninterrupted_bit_for_bit,
                     *precondition(Built{"char_lm"})) {
  for (const auto& model : {kLstm, kWindow}) {
    Place place;
    BOOST_REQUIRE(
        place.lm({"--steps", "200", "--seed", "9", "--workers", "1", "--save", "whole"}, model)
            .code == 0);
    BOOST_REQUIRE(
        place.lm({"--steps", "200", "--seed", "9", "--workers", "2", "--save", "whole2"}, model)
            .code == 0);
    BOOST_TEST((read_file(place / "whole") == read_file(place / "whole2")),
               "one worker and two differ");

    for (auto [first, then] : {std::pair("2", "1"), std::pair("1", "2")}) {
      Process process(
          place.path(),
          place.command({"--steps", "200", "--seed", "9", "--workers", first, "--save", "part",
                         "--overwrite", "--validate-every", "1", "--validate-characters", "10"},
                        model));
      BOOST_REQUIRE(process.read_until("step      40 of 200"));
      process.interrupt(SIGINT);
      Outcome o = process.finish();
      BOOST_TEST(o.code == 130, o.out << o.error);
      BOOST_TEST((o.out.find("go on with: ") != std::string::npos), o.out);
      const std::string again = fmt::format(
          " --text text.txt --resume part --workers {} --validate-every 1 --validate-characters 10 "
          "--sample-chars 20\n",
          first);
      BOOST_TEST((o.out.find(again) != std::string::npos), o.out);
      BOOST_TEST(o.out.find('\x1b') == std::string::npos);  // a bar is for terminals
      double stopped =
          std::strtod(load_safetensors(place / "part").metadata.at("step").c_str(), nullptr);
      BOOST_TEST(stopped >= 40);
      BOOST_TEST(stopped < 200);

      o = place.resume({"--resume", "part", "--workers", then});
      BOOST_TEST(o.code == 0, o.out << o.error);
      BOOST_TEST((read_file(place / "part") == read_file(place / "whole")),
                 model[1] << ", stopped after step " << stopped);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_finished_training_can_be_prolonged_or_sampled,
                     *precondition(Built{"char_lm"})) {
  Place place;
  BOOST_REQUIRE(place.lm({"--steps", "20"}).code == 0);
  std::string before = read_file(place / "char_lm.safetensors");
  Outcome o = place.resume({"--resume", "char_lm.safetensors"});
  BOOST_TEST(o.code == 0, o.error);
  BOOST_TEST((o.out.find("a sample:") != std::string::npos));
  BOOST_TEST((read_file(place / "char_lm.safetensors") == before));
  o = place.resume({"--resume", "char_lm.safetensors", "--steps", "40", "--save", "longer"});
  BOOST_TEST(o.code == 0, o.error);
  BOOST_TEST(load_safetensors(place / "longer").metadata.at("step") == "40");
  BOOST_TEST((read_file(place / "char_lm.safetensors") == before));
}

BOOST_AUTO_TEST_CASE(a_training_that_diverges_keeps_what_was_good,
                     *precondition(Built{"char_lm"})) {
  for (const auto& model : {kLstm, kWindow}) {
    Place place;
    Outcome o = place.lm({"--steps", "200", "--rate", "1e38"}, model);
    BOOST_TEST(o.code == 2, o.out << o.error);
    BOOST_TEST((o.error.find("lower --rate than 1e+38") != std::string::npos), o.error);
    TensorFile file = load_safetensors(place / "char_lm.safetensors");
    for (const auto& [name, tensor] : file.tensors)
      for (std::int64_t i = 0; i < tensor.elements(); ++i)
        BOOST_REQUIRE_MESSAGE(std::isfinite(tensor.at(i)),
                              name << " at step " << file.metadata["step"]);
  }
}

// Its first step is drawn, and then ten a second at most.
BOOST_AUTO_TEST_CASE(a_terminal_has_a_bar, *precondition(Built{"char_lm"})) {
  Place place;
  const auto command = [&](const std::string& steps) {
    std::vector<std::string> all{example("char_lm"), "--text", place / kText,
                                 "--steps",          steps,    "--no-save",
                                 "--sample-chars",   "0"};
    all.insert(all.end(), kLstm.begin(), kLstm.end());
    return all;
  };
  Terminal wide(command("30000"), 24, 120);
  BOOST_REQUIRE(wide.read_until("[#"));
  const std::regex first(
      R"(\r\x1b\[K\[\.{30}\] 1/30,000  loss \d+\.\d\d  validation \d+\.\d\d bits/char  [\d,]+ )"
      R"(chars/s\r)");
  BOOST_TEST(std::regex_search(wide.seen(), first), wide.seen());
  wide.signal(SIGINT);
  BOOST_TEST(wide.finish() == 130);
  const std::string all = wide.rest();
  // a line, "step ..." or "stopped ...", where the bar was
  BOOST_TEST(all.substr(all.rfind("\x1b[K") + 3).starts_with("st"), all);
  BOOST_TEST((all.find("nothing was saved, because of --no-save") != std::string::npos), all);

  Terminal narrow(command("5"), 24, 40);
  BOOST_TEST(narrow.finish() == 0);
  const std::string cut = narrow.rest();
  // 39 columns
  BOOST_TEST(std::regex_search(cut, std::regex(R"(\r\x1b\[K 1/5  loss [^\r]{28}\r)")), cut);
}

BOOST_AUTO_TEST_CASE(help_names_every_option, *precondition(Built{"char_lm"})) {
  Place place;
  Outcome o = run(place.path(), {example("char_lm"), "--help"});
  BOOST_TEST(o.code == 0);
  for (const char* option : {"--text",           "--model",
                             "--length",         "--context",
                             "--embedding",      "--hidden",
                             "--layers",         "--batch",
                             "--rate",           "--seed",
                             "--steps",          "--seconds",
                             "--validate-every", "--validate-characters",
                             "--workers",        "--device",
                             "--check",          "--join",
                             "--nodes",          "--keys",
                             "--save",           "--no-save",
                             "--overwrite",      "--resume",
                             "--records",        "--http",
                             "--sample-chars",   "--temperature"})
    BOOST_TEST((o.out.find(std::string("\n  ") + option + " ") != std::string::npos), option);
  BOOST_TEST((o.out.find("Exit status: 0 done; 1 ") != std::string::npos), o.out);
  BOOST_TEST((o.out.find("{false}") == std::string::npos), o.out);
}

// The checks of scripts/demo before it starts nodes.
BOOST_AUTO_TEST_CASE(arguments_are_checked_without_training, *precondition(Built{"char_lm"})) {
  Place place;
  const Outcome o = place.lm({"--check"});
  BOOST_TEST(o.code == 0, o.error);
  BOOST_TEST((place.files() == std::vector<std::string>{kText}));
  place.refuses({example("char_lm"), "--check", "--rate", "fast"}, {"--rate"});
  place.refuses({example("char_lm"), "--check", "--text", "nowhere"}, {"nowhere"});
  write_file(place / "char_lm.safetensors", "something else");
  place.refuses(place.command({"--check"}), {"char_lm.safetensors", "--overwrite"});
}

BOOST_AUTO_TEST_CASE(wrong_command_lines, *precondition(Built{"char_lm"})) {
  Place place;
  std::string lm = example("char_lm");
  place.refuses({lm, "--learn-faster"}, {"--learn-faster", "--help"});
  place.refuses({lm, "--steps", "many"}, {"--steps", "many"});
  place.refuses({lm, "--steps", "-1"}, {"--steps"});
  place.refuses({lm, "--hidden", "0"}, {"--hidden"});
  place.refuses({lm, "--steps", "5", "--seconds", "1"}, {"--steps", "--seconds"});
  place.refuses({lm, "--seconds", "0"}, {"--seconds"});
  for (const char* seed : {"-1", "18446744073709551616", "1.5", "x"})
    place.refuses({lm, "--seed", seed}, {"--seed", "no whole number"});
  place.refuses({lm, "--temperature", "nan"}, {"--temperature", "'nan' is no number"});
  for (const char* rate : {"nan", "inf", "0", "-1"})
    place.refuses({lm, "--rate", rate}, {"--rate", "no positive number"});
  place.refuses({lm, "--model", "oracle"}, {"--model", "lstm", "window"});
  place.refuses({lm, "--context", "8"}, {"--context belongs to --model window"});
  place.refuses({lm, "--model", "window", "--length", "8"}, {"--length belongs to --model lstm"});
  place.refuses({lm, "--layers", "0"}, {"--layers 0", "--model window"});
  place.refuses({lm, "--text"}, {"--text"});
  // A variable of the shell that is not set.
  for (const std::string file : {"--text", "--resume", "--save", "--records"})
    place.refuses({lm, file, ""}, {file + " is empty", "--help"});
  place.refuses({lm, "--join", "", "--nodes", "a"}, {"--join is empty"});
  place.refuses({lm, "--join", "tcp://127.0.0.1:1", "--nodes", ""}, {"--nodes is empty"});
  place.refuses({lm, "--join", "tcp://127.0.0.1:1", "--nodes", "a", "--keys", ""},
                {"--keys is empty"});
}

BOOST_AUTO_TEST_CASE(texts_that_cannot_be_learnt, *precondition(Built{"char_lm"})) {
  Place place;
  std::string lm = example("char_lm");
  place.refuses({lm, "--text", "nobody.txt"}, {"nobody.txt", "No such file", "--text FILE"});
  place.refuses({lm, "--text", "."}, {"directory", "--text FILE"});
  place.refuses({lm, "--text", "/dev/zero"}, {"device", "--text FILE"});
  write_file(place / "empty.txt", "");
  place.refuses({lm, "--text", "empty.txt"}, {"empty.txt", "is empty", "--text FILE"});
  write_file(place / "a.txt", std::string(5000, 'a'));
  place.refuses({lm, "--text", "a.txt"}, {"a.txt", "one character", "--text FILE"});
  write_file(place / "short.txt", "too short");
  place.refuses({lm, "--text", "short.txt"}, {"9 characters", "--text FILE", "--batch"});
  place.refuses({lm, "--model", "window", "--text", "short.txt"},
                {"9 characters", "--text FILE", "--context"});
  // opens, but cannot be read
  place.refuses({lm, "--text", "/proc/self/mem"}, {"/proc/self/mem", "Input/output error"});
  place.refuses({"/usr/bin/env", "PATH=/nowhere", lm}, {"apt install bible-kjv", "--text FILE"});
}

BOOST_AUTO_TEST_CASE(a_text_without_permission,
                     *precondition(Built{"char_lm"}) * precondition(RunsWithoutRights{})) {
  Place place;
  fs::permissions(place.path(), fs::perms(0755));
  fs::permissions(place / kText, fs::perms(0644));
  const Outcome o = run(place.path(), without_rights(place.command({"--check"})));
  BOOST_TEST(o.code == 0, o.error);
  fs::permissions(place / kText, fs::perms::none);
  place.refuses(without_rights(place.command({})), {kText, "Permission denied"});
  fs::permissions(place / kText, fs::perms::owner_all);
}

// It is not waited for; `timeout` ends with 124 what waits. A pipe that has a writer is a text as
// any other.
BOOST_AUTO_TEST_CASE(a_pipe_without_a_writer, *precondition(Built{"char_lm"})) {
  Place place;
  Folder elsewhere;  // a folder in which contents are not compared
  const std::string pipe = elsewhere / "pipe";
  BOOST_REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const std::vector<std::string> lm{"/usr/bin/timeout", "60", example("char_lm")};
  const auto refuses = [&](std::vector<std::string> more,
                           std::initializer_list<std::string> parts) {
    more.insert(more.begin(), lm.begin(), lm.end());
    place.refuses(more, parts);
  };
  refuses({"--text", pipe}, {pipe, "a pipe without a writer", "--text FILE"});
  refuses({"--text", kText, "--resume", pipe}, {pipe, "no regular file"});
  const Outcome o =
      run(place.path(),
          {"/bin/sh", "-c",
           fmt::format("cat {} | '{}' --text /dev/stdin --check", kText, example("char_lm"))});
  BOOST_TEST(o.code == 0, o.error);
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_resumed, *precondition(Built{"char_lm"})) {
  Place place;
  std::string lm = example("char_lm");
  BOOST_REQUIRE(place.lm({"--steps", "5", "--save", "good"}).code == 0);
  std::string good = read_file(place / "good");
  auto resume = [&](const std::string& file) {
    return std::vector<std::string>{lm, "--text", kText, "--resume", file};
  };

  place.refuses(resume("nobody"), {"nobody", "No such file"});
  place.refuses({lm, "--text", kText, "--resume", "good", "--steps", "4"}, {"step 5 already", "4"});
  write_file(place / "cut", good.substr(0, good.size() - 100));
  place.refuses(resume("cut"), {"'cut'", "truncated"});
  std::string bad = good;
  bad[bad.size() / 2] ^= 4;
  write_file(place / "bad", bad);
  place.refuses(resume("bad"), {"'bad'", "corrupted", "checksum"});
  write_file(place / "noise", a_text());
  place.refuses(resume("noise"), {"'noise'", "no safetensors file"});

  save_safetensors(place / "foreign", {{"w", Tensor::scalar(1.f)}});
  place.refuses(resume("foreign"), {"'foreign'", "not saved by this program"});
  TensorFile file = load_safetensors(place / "good");
  auto variant = [&](auto change, std::initializer_list<std::string> parts) {
    TensorFile copy = file;
    change(copy);
    save_safetensors(place / "variant", copy.tensors, copy.metadata);
    place.refuses(resume("variant"), parts);
  };
  variant([](TensorFile& f) { f.metadata.erase("step"); }, {"lacks the metadata 'step'"});
  variant([](TensorFile& f) { f.metadata["step"] = "5x"; }, {"no number"});
  variant([](TensorFile& f) { f.metadata["step"] = "6"; }, {"contradicts itself"});
  variant([](TensorFile& f) { f.metadata["hidden"] = "999999999999"; }, {"out of all proportion"});
  variant([](TensorFile& f) { f.metadata["hidden"] = "25"; }, {"f32[96]", "f32[100]"});
  variant([](TensorFile& f) { f.tensors.pop_back(); }, {"lacks the variable"});
  variant([](TensorFile& f) { f.tensors.emplace_back("more", Tensor::scalar(1.f)); },
          {"the model has not"});

  variant([](TensorFile& f) { f.metadata["model"] = "oracle"; }, {"out of all proportion"});
  variant([](TensorFile& f) { f.metadata["format"] = "troupe char_lm 1"; },
          {"an earlier version", "--overwrite", "--save FILE"});

  write_file(place / "other.txt", a_text(2));
  place.refuses({lm, "--text", "other.txt", "--resume", "good"}, {"'good'", "another text"});
  place.refuses({lm, "--text", kText, "--resume", "good", "--hidden", "48"},
                {"--hidden 48", "'good'", "24"});
  place.refuses({lm, "--text", kText, "--resume", "good", "--model", "window"},
                {"--model window", "'good'", "lstm"});
  place.refuses({lm, "--text", kText, "--resume", "good", "--context", "6"},
                {"--context", "'good'", "lstm"});
  // Weights of one model under the other's name.
  BOOST_REQUIRE(place.lm({"--steps", "5", "--save", "window"}, kWindow).code == 0);
  place.refuses({lm, "--text", kText, "--resume", "window", "--model", "lstm"},
                {"--model lstm", "'window'"});
  TensorFile window = load_safetensors(place / "window");
  variant([&](TensorFile& f) { f.tensors = window.tensors; }, {"lacks the variable", "lstm1"});
}

BOOST_AUTO_TEST_CASE(places_where_nothing_can_be_saved, *precondition(Built{"char_lm"})) {
  Place place;
  BOOST_REQUIRE(place.lm({"--steps", "5", "--save", "mine"}).code == 0);
  place.refuses(place.command({"--save", "mine"}),
                {"'mine' is there already", "--resume", "--overwrite"});
  place.refuses(place.command({"--save", "."}), {"'.': it is a folder", "--save FILE"});
  place.refuses(place.command({"--save", "no/where"}), {"no/where", "No such file"});
  place.refuses(place.command({"--save", ".", "--overwrite"}), {"it is a folder"});
}

BOOST_AUTO_TEST_CASE(files_that_are_not_replaced, *precondition(Built{"char_lm"})) {
  Place place;
  BOOST_REQUIRE(place.lm({"--steps", "5", "--save", "good"}).code == 0);
  // The text, by any name.
  fs::create_symlink(kText, place / "link");
  for (const std::string& text : {kText, "./" + kText, std::string("link")}) {
    place.refuses(place.command({"--save", text, "--overwrite"}),
                  {"'" + text + "': it is the text to learn from", "--save FILE"});
    place.refuses(place.command({"--resume", "good", "--save", text, "--overwrite"}, {}),
                  {"it is the text to learn from"});
  }
  // A file unrelated to the resumed one.
  write_file(place / "precious", "something else");
  place.refuses(place.command({"--resume", "good", "--save", "precious"}, {}),
                {"'precious' is there already: replace it with --overwrite", "--save FILE"});
  BOOST_TEST(place.resume({"--resume", "good", "--save", "./good", "--steps", "7"}).code == 0);
  BOOST_TEST(load_safetensors(place / "good").metadata.at("step") == "7");
  BOOST_TEST(place.resume({"--resume", "good", "--save", "precious", "--overwrite"}).code == 0);
  BOOST_TEST((read_file(place / "precious") == read_file(place / "good")));
}

BOOST_AUTO_TEST_CASE(a_full_disk, *precondition(Built{"char_lm"}) * precondition(Mountable{})) {
  Place place;
  fs::create_directory(place / "disk");
  std::string lm = fmt::format("'{}' --text {} --length 12 --batch 8 --steps 5 --save disk/lm",
                               example("char_lm"), kText);
  write_file(place / "script",
             "mount -t tmpfs -o size=1m none disk || exit 90\n" + lm + " --hidden 16 || exit 91\n" +
                 "cp disk/lm before\n" +  // then a model of about 4 MB
                 lm + " --overwrite --hidden 512\n" + "code=$?\n" +
                 "cmp disk/lm before || exit 92\n[ \"$(ls disk)\" = lm ] || exit 93\nexit $code\n");
  Outcome o = run(place.path(), {"/bin/sh", "-c", "exec " + unshare() + " sh script"});
  BOOST_TEST(o.code == 2, o.out << o.error);
  for (const char* part :
       {"char_lm: cannot save 'disk/lm'", "the disk is full", "bytes are needed", "make room"})
    BOOST_TEST((o.error.find(part) != std::string::npos),
               "'" << part << "' is not in: " << o.error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
