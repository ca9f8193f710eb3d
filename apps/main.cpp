// The single binary `troupe`: a verb, its flags, an exit status.
//
//   troupe doctor
//
// Exit status: 0 done, 1 the verb found a problem, 2 the command line is wrong, 3 a run hangs.
#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/apps/verbs/verbs.hpp>
#include <troupe/ops/graph/suggest_name.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/prctl.h>

namespace {

using namespace troupe::verbs;

constexpr int kMisuse = 2;

// Not by fmt::print, which throws if stderr is full or closed: the exit status shows the error all
// the same. `message` may quote any bytes of the command line.
void complain(const std::string& message) {
  std::fputs(fmt::format("troupe: {}\n", printable(message)).c_str(), stderr);
}

int misuse(const std::string& message) {
  complain(message);
  return kMisuse;
}

// Opens /dev/null in place of a closed standard input, output or error. Otherwise the next file or
// socket that is opened would take its number and receive the program's output. /dev/null is opened
// for the other direction, so that reads and writes fail as before.
void occupy_closed_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    // the lowest that is free: fd
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
}

/// Explains in one sentence the error in the command line and its remedy.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    verbs.push_back(verb->get_name());
  if (app.get_subcommands().empty()) {
    const auto unknown = app.remaining();
    if (!unknown.empty() && unknown[0].starts_with('-'))
      return fmt::format("there is no flag '{}'; run 'troupe --help' for those there are",
                         unknown[0]);
    const std::string all = fmt::format("{}", fmt::join(verbs, ", "));
    if (unknown.empty()) return fmt::format("name a verb: {}; 'troupe --help' describes them", all);
    const std::string like = troupe::did_you_mean(unknown[0], {verbs.begin(), verbs.end()});
    return fmt::format("there is no verb '{}'{} the verbs are {}", unknown[0],
                       like.empty() ? ";" : like, all);
  }
  const std::string verb = app.get_subcommands()[0]->get_name();
  const auto unknown = app.get_subcommands()[0]->remaining();
  if (verb == "trace" && std::any_of(unknown.begin(), unknown.end(), [](const std::string& word) {
        return word.starts_with("--watch");
      }))
    return "'trace' takes no --watch: a trace covers one span of --seconds; run 'troupe trace "
           "--help' for its flags";
  return fmt::format("{}; run 'troupe {} --help' for the flags of '{}'", error.what(), verb, verb);
}

/// The flags of a verb, and the words that may stand behind them.
Completed completed(const CLI::App& verb) {
  Completed c{verb.get_name(), {}, {}};
  for (const CLI::Option* option : verb.get_options()) {
    const std::string type = option->get_type_name();  // TEXT:{json,text}, where there is a choice
    std::vector<std::string> choices;
    if (const auto open = type.find('{'); open != std::string::npos)
      choices = CLI::detail::split(type.substr(open + 1, type.find('}') - open - 1), ',');
    if (option->get_positional()) {
      if (c.choices.empty()) c.choices = choices;
      continue;
    }
    auto& flag = c.flags.emplace_back();
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    flag.choices = choices;
    flag.takes_value = option->get_items_expected_max() > 0;
    flag.may_lack_value = option->get_items_expected_min() == 0;
    flag.is_file = type.starts_with("FILE") || type.starts_with("DIR");
  }
  return c;
}

int run(int argc, char** argv) {
  // A CLI11 range accepts text that is no number, and an option accepts an empty value:
  // `--authorize "$KEY"` of a variable that is not set.
  const CLI::Validator number(
      [](const std::string& given) {
        return std::isnan(std::strtod(given.c_str(), nullptr))
                   ? fmt::format("'{}' is no number", given)
                   : std::string();
      },
      "");
  const CLI::Validator something(
      [](const std::string& given) {
        return given.empty() ? std::string("it is given nothing, ''") : std::string();
      },
      "");
  const CLI::Validator folder_or_none(
      [](const std::string& given) {
        std::error_code unknown;
        return given == kNoFlight || std::filesystem::is_directory(given, unknown)
                   ? std::string()
                   : fmt::format("there is no folder '{}'", given);
      },
      "");
  constexpr int kDay = 86'400;
  CLI::App app("Troupe: a tensor dataflow engine whose unit of execution is an actor.", "troupe");
  app.require_subcommand(0, 1);
  app.footer("Exit status: 0 done, 1 failed, 2 wrong command line, 3 a run hangs.");
  app.set_version_flag("--version", "troupe " TROUPE_VERSION, "Print the version and exit");
  int status = 0;

  app.add_subcommand("version",
                     "Print the version, the compiler and the libraries it was built with")
      ->callback([&] { status = version(); });

  app.add_subcommand("doctor",
                     "Examine this machine and test the engine (exit status 1: a test fails)")
      ->callback([&] { status = doctor(); });

  std::string op, ops_device;
  CLI::App* ops_verb = app.add_subcommand(
      "ops", "List the operations and the functions made of them, or describe one");
  ops_verb->add_option("NAME", op, "An operation, such as MatMul, or a function, such as einsum");
  ops_verb
      ->add_option("--device", ops_device,
                   "List the primitives of this device, and the operations that it lacks")
      ->type_name("DEVICE");
  ops_verb->callback([&] { status = ops(op, ops_device); });

  KeygenOptions keys;
  CLI::App* keygen_verb = app.add_subcommand(
      "keygen", "Make the keys of a node, or authorize another node's public key");
  keygen_verb->add_option("--keys", keys.folder, "The folder of keys")
      ->type_name("DIR")
      ->capture_default_str()
      ->check(something);
  keygen_verb->add_option("--name", keys.name, "The node the key belongs to (default: this host)")
      ->type_name("NAME");
  keygen_verb
      ->add_option("--authorize", keys.authorize, "A public key that may connect from now on")
      ->type_name("KEY")
      ->check(something);
  keygen_verb->callback([&] { status = keygen(keys); });

  NodeFlags of_node;
  CLI::App* node_verb =
      app.add_subcommand("node", "Make this machine a node of a cluster, until SIGTERM");
  node_verb
      ->add_option("--listen", of_node.listen,
                   "Address for other nodes; port 0: any; large payload: the next port")
      ->capture_default_str();
  node_verb->add_option("--join", of_node.join,
                        "Nodes to join (default: from Slurm, Kubernetes or TROUPE_JOIN)");
  node_verb->add_option("--peers", of_node.peers, "A file of such addresses, one a line")
      ->type_name("FILE");
  node_verb->add_option("--name", of_node.name,
                        "Its name in the cluster (default: the machine's name)");
  node_verb->add_option("--workers", of_node.workers, "Threads that compute; 0: one a core")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  node_verb->add_option("--patience", of_node.patience, "Seconds to wait for a node to join")
      ->capture_default_str()
      ->check(CLI::Range(0, kDay));
  node_verb
      ->add_option("--keys", of_node.keys,
                   "Folder of its keys, made by 'troupe keygen' (none: loopback only)")
      ->type_name("DIR")
      ->envname("TROUPE_KEYS");
  node_verb->add_option("--labels", of_node.labels, "Labels that placement by others sees")
      ->type_name("KEY=VALUE,...");
  node_verb
      ->add_option("--http", of_node.http,
                   "Serve inspections here; a port alone: on loopback; 0: any free port")
      ->type_name("[HOST:]PORT");
  node_verb
      ->add_option("--http-token-file", of_node.http_token,
                   "File of the token of requests; needed unless --http is on loopback")
      ->type_name("FILE")
      ->envname("TROUPE_HTTP_TOKEN_FILE");
  node_verb
      ->add_option("--log", of_node.log,
                   "The format of the log on stderr: text, or json, an object a line")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  node_verb
      ->add_option("--flight", of_node.flight,
                   "Folder for flight records of failed runs, or 'none'")
      ->type_name("DIR")
      ->check(folder_or_none);
  node_verb
      ->add_option("--state", of_node.state,
                   "Folder for checkpoint shards (default: below $STATE_DIRECTORY)")
      ->type_name("DIR")
      ->check(something);
  node_verb
      ->add_option("--suspect-after", of_node.suspect_after,
                   "Seconds until a killed node is declared dead")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(number)
      ->check(CLI::Range(0.1, 3600.0));
  node_verb
      ->add_option("--standalone", of_node.standalone,
                   "Start this many nodes of one cluster on this machine, a process each")
      ->type_name("N")
      ->check(CLI::Range(1, 256));
  node_verb->callback([&] { status = node(of_node); });

  // Verbs that are nodes of a cluster while they run. Not by `envname`: some share the flags, and
  // CLI11 would set them from the environment also for verbs that were not called.
  const auto joins = [](CLI::App* verb, GuestFlags& guest) {
    if (const char* said = std::getenv("TROUPE_KEYS"); said && *said) guest.keys = said;
    verb->add_option("--join", guest.join,
                     "Nodes to connect to (default: TROUPE_JOIN or tcp://127.0.0.1:7117)")
        ->allow_extra_args(false);
    verb->add_option("--keys", guest.keys,
                     "Keys that the nodes have authorized (none: loopback only; Env:TROUPE_KEYS)")
        ->type_name("DIR");
    verb->add_option("--patience", guest.patience, "Seconds to wait for a connection to the nodes")
        ->capture_default_str()
        ->check(CLI::Range(0, kDay));
  };

  ClearFlags of_clear;
  CLI::App* clear_verb =
      app.add_subcommand("clear", "Drop the variables of a container on nodes of a cluster");
  clear_verb->add_option("CONTAINER", of_clear.container, "The container's name")->required();
  clear_verb->add_option("--on", of_clear.on, "A node that drops it; may be given several times")
      ->required()
      ->type_name("NODE")
      ->allow_extra_args(false);
  joins(clear_verb, of_clear.guest);
  clear_verb->callback([&] { status = clear(of_clear); });

  OperateFlags of_operate;
  const auto operates = [&](const char* name, const char* help, const char* what,
                            const char* what_help, int (*verb)(const OperateFlags&)) {
    CLI::App* app_of = app.add_subcommand(name, help);
    app_of->add_option(what, of_operate.what, what_help)->required()->check(something);
    joins(app_of, of_operate.guest);
    app_of->callback([&of_operate, &status, verb] { status = verb(of_operate); });
  };
  operates("cancel", "Cancel a run, on all its nodes", "RUN",
           "Its id, such as a/17, as 'ps' lists it", cancel);
  operates("drain", "Make a node refuse new partitions, and exit when its runs have ended", "NODE",
           "Its name", drain);

  TrainingFlags of_training;
  const auto trains = [&](const char* name, const char* help, int (*verb)(const TrainingFlags&)) {
    CLI::App* app_of = app.add_subcommand(name, help);
    joins(app_of, of_training.guest);
    app_of->callback([&of_training, &status, verb] { status = verb(of_training); });
    return app_of;
  };
  trains("runs", "List the trainings of a cluster: driver, progress, checkpoints", runs)
      ->add_flag("--json", of_training.json, "An array on a line");
  trains("attach", "Show the progress of a training until it has ended", attach)
      ->add_option("RUN", of_training.name, "Its name, as 'runs' lists it")
      ->required()
      ->check(something);

  LookFlags look;
  // Not by `envname`: verbs share the two, and CLI11 would set them from the environment also for
  // verbs that were not called.
  if (const char* said = std::getenv("TROUPE_HTTP"); said && *said) look.node = said;
  if (const char* said = std::getenv("TROUPE_HTTP_TOKEN_FILE"); said && *said) look.token = said;
  const auto looks = [&](const char* name, const char* what, int (*verb)(const LookFlags&)) {
    CLI::App* app_of = app.add_subcommand(name, what);
    app_of
        ->add_option("--node", look.node,
                     "The node to ask: the address of its --http (Env:TROUPE_HTTP)")
        ->type_name("URL")
        ->capture_default_str();
    app_of
        ->add_option("--token-file", look.token,
                     "File of the token for the node (Env:TROUPE_HTTP_TOKEN_FILE)")
        ->type_name("FILE");
    app_of->add_option("--patience", look.patience, "Seconds to wait for an answer")
        ->capture_default_str()
        ->check(CLI::Range(1, kDay));
    app_of->callback([&look, &status, verb] { status = verb(look); });
    return app_of;
  };
  const auto repeats = [&](CLI::App* verb, const char* json = "The node's answer, unchanged") {
    verb->add_flag("--json", look.json, json);
    verb->add_option("--watch", look.watch, "Repeat at this interval, in seconds, until SIGINT")
        ->type_name("SECONDS")
        ->expected(0, 1)
        ->default_str("1")
        ->check(number)
        ->check(CLI::Range(0.05, 86'400.0));
    return verb;
  };
  repeats(looks("ps", "List the cluster's nodes, plans and runs", ps));
  CLI::App* top_verb =
      repeats(looks("top", "Show nodes, plans, runs and the busiest actors on a full screen", top),
              "The node's answer and the work since the last one, an object a line");
  top_verb->add_option("--every", look.every, "The interval of requests, in seconds")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(number)
      ->check(CLI::Range(0.05, 86'400.0))
      ->excludes(top_verb->get_option("--watch"));
  repeats(looks("inspect", "Describe one actor", inspect))
      ->add_option("ACTOR", look.what, "The actor's id, such as a/3:12, or its name")
      ->required();
  CLI::App* graph_verb =
      repeats(looks("graph", "List the actors of a plan, and the edges between them", graph));
  graph_verb->add_option("PLAN", look.what, "The plan's id, such as a/3 (default: the newest)");
  graph_verb->add_flag("--dot", look.dot, "For Graphviz")
      ->excludes(graph_verb->get_option("--json"));
  repeats(
      looks("diagnose", "Name the runs that hang, and why; exit status 3 if any does", diagnose));
  CLI::App* trace_verb =
      looks("trace", "Record a trace of all nodes, in the format of Chrome and Perfetto", trace);
  trace_verb->add_option("--seconds", look.seconds, "The length of the trace, in seconds")
      ->capture_default_str()
      ->check(CLI::Range(1, 60));
  trace_verb->add_option("-o,--out", look.out, "The file to write (default: standard output)")
      ->type_name("FILE");
  trace_verb->add_flag("--json", look.json, "Print a summary of the file as an object on a line");
  repeats(looks("metrics", "Print a node's metrics for Prometheus; --json: as families of samples",
                metrics));
  CLI::App* report_verb =
      looks("report", "Write a run as one HTML file: plan, timeline, loops and memory", report);
  report_verb
      ->add_option("RUN", look.what, "Id of a run that is active or ended recently, such as a/17")
      ->required();
  report_verb->add_option("-o,--out", look.out, "The file to write (default: standard output)")
      ->type_name("FILE");

  WatchFlags of_watch;
  CLI::App* watch_verb =
      looks("watch", "Run a standing query over the events of a node, or of a trace", nullptr);
  watch_verb->add_option("QUERY", of_watch.query, "Name of a standing query")
      ->required()
      ->type_name(
          "TEXT:{activity,waits,stalled-edges,silent-nodes,missed-heartbeat,membership,stragglers,"
          "queue-growth,alert-once}");
  watch_verb->add_option("TRACE", of_watch.trace, "A file of 'troupe trace' (default: ask a node)")
      ->type_name("FILE");
  watch_verb->add_option("--window", of_watch.window, "Seconds that a row of the output covers")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(number)
      ->check(CLI::Range(0.001, 86'400.0));
  watch_verb->add_option("--level", of_watch.level, "Wait for late events, or revise rows")
      ->capture_default_str()
      ->check(CLI::IsMember({"strong", "middle", "weak"}));
  watch_verb->add_flag("--json", look.json, "Changes of rows, an object on a line");
  watch_verb->callback([&] { status = watch(of_watch, look); });

  QueryFlags of_query;
  CLI::App* query_verb =
      app.add_subcommand("query", "Run a query over files of events, in CEDR's language");
  query_verb->add_option("QUERY", of_query.query, "The query, or a file with it")
      ->required()
      ->type_name("FILE|TEXT")
      ->check(something);
  query_verb
      ->add_option("--source", of_query.sources,
                   "CSV or JSON lines with the events of this name; may be repeated")
      ->type_name("NAME=FILE")
      ->allow_extra_args(false);
  query_verb
      ->add_option("--time", of_query.time,
                   "The column of times, if there are no columns begin and end")
      ->type_name("COLUMN")
      ->capture_default_str();
  query_verb->add_option("--unit", of_query.unit, "Unit of times")
      ->capture_default_str()
      ->check(CLI::IsMember({"s", "ms", "us", "ns"}));
  query_verb->add_option("--level", of_query.level, "Wait for late events, or revise rows")
      ->capture_default_str()
      ->check(CLI::IsMember({"strong", "middle", "weak"}));
  query_verb
      ->add_option("--memory", of_query.memory, "The time for which state is kept at level weak")
      ->type_name("TIME")
      ->capture_default_str()
      ->check(CLI::Range(0LL, 1'000'000'000'000'000'000LL));
  query_verb->add_flag("--changes", of_query.changes,
                       "Each inserted and retracted row, not the final rows");
  query_verb->add_flag("--json", of_query.json, "Rows as JSON lines, not as CSV");
  query_verb->add_flag("--explain", of_query.explain, "Print the plan, an operator a line");
  CLI::Option* query_on = query_verb
                              ->add_option("--on", of_query.on,
                                           "A node that runs operators; may be given several times")
                              ->type_name("NODE")
                              ->allow_extra_args(false);
  query_verb
      ->add_option("--partitions", of_query.partitions, "Copies of the operators on each node")
      ->capture_default_str()
      ->check(CLI::Range(1, 64))
      ->needs(query_on);
  joins(query_verb, of_query.guest);
  for (const char* flag : {"--join", "--patience"}) query_verb->get_option(flag)->needs(query_on);
  query_verb->callback([&] { status = query(of_query); });

  CheckpointFlags of_checkpoint;
  CLI::App* checkpoint_verb =
      app.add_subcommand("checkpoint", "List, show, verify or export a training's checkpoints");
  checkpoint_verb->add_option("ACTION", of_checkpoint.action, "list, show, verify or export")
      ->required()
      ->check(CLI::IsMember({"list", "show", "verify", "export"}));
  checkpoint_verb->add_option("DIR", of_checkpoint.folder, "The folder of checkpoints")
      ->required()
      ->type_name("DIR");
  checkpoint_verb
      ->add_option("--step", of_checkpoint.step,
                   "The checkpoint's step (default: the newest; verify: all)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  checkpoint_verb->add_option("--to", of_checkpoint.to, "export: the file to write")
      ->type_name("FILE");
  checkpoint_verb
      ->add_option("--only", of_checkpoint.only, "export: variables, or whole scopes (all)")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  checkpoint_verb
      ->add_option("--with", of_checkpoint.with, "Folders of other nodes, which have more shards")
      ->type_name("DIR,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  checkpoint_verb->add_flag("--json", of_checkpoint.json, "list, show: JSON on a line");
  checkpoint_verb->callback([&] { status = checkpoint(of_checkpoint); });

  DependencyFlags of_dependencies;
  CLI::App* dependencies_verb = app.add_subcommand(
      "dependencies", "Find dependences between the events of a trace, by their times");
  dependencies_verb->add_option("TRACE", of_dependencies.trace, "A file of 'troupe trace'")
      ->required()
      ->type_name("FILE");
  dependencies_verb
      ->add_option("--kind", of_dependencies.kinds, "Kinds of events that are channels")
      ->type_name("KIND,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  dependencies_verb
      ->add_option("--support", of_dependencies.support,
                   "Longest delay (0: a hundredth of the trace, at most 1 s)")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(number)
      ->check(CLI::Range(0.0, 86'400.0));
  dependencies_verb
      ->add_option("--level", of_dependencies.level, "The permitted share of false edges")
      ->capture_default_str()
      ->check(number)
      ->check(CLI::Range(0.0, 1.0));
  dependencies_verb->add_option("--family", of_dependencies.family, "Density of delays")
      ->capture_default_str()
      ->check(
          CLI::IsMember({"exponential", "gamma", "lognormal", "uniform", "histogram", "mixture"}));
  dependencies_verb->add_flag("--changes", of_dependencies.changes,
                              "Also find when dependences changed");
  dependencies_verb->add_flag("--truth", of_dependencies.truth,
                              "Precision and recall against the tokens of the trace");
  CLI::Option* dependencies_dot =
      dependencies_verb->add_flag("--dot", of_dependencies.dot, "For Graphviz");
  dependencies_verb
      ->add_flag("--json", of_dependencies.json, "Channels and edges as one object on a line")
      ->excludes(dependencies_dot);
  dependencies_verb->callback([&] { status = dependencies(of_dependencies); });

  RunFlags of_run;
  CLI::App* run_verb = app.add_subcommand("run", "Run a function that a program has saved");
  run_verb->add_option("FILE", of_run.file, "A file of a saved function")
      ->required()
      ->type_name("FILE");
  run_verb->add_option("ARGUMENT", of_run.arguments, "1,2,3 or FILE.safetensors:NAME")
      ->type_name("VALUE");
  run_verb->add_option("--out,-o", of_run.out, "Write the results to a safetensors file")
      ->type_name("FILE");
  run_verb->add_option("--workers", of_run.workers, "Threads that execute it")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  run_verb->add_flag("--describe", of_run.describe, "List arguments, results and variables");
  run_verb->callback([&] { status = run_function(of_run); });

  std::string shell;
  CLI::App* completions_verb =
      app.add_subcommand("completions", "Print a script that completes the command line");
  completions_verb->add_option("SHELL", shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completions_verb->callback([&] {
    std::vector<Completed> verbs;
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
      verbs.push_back(completed(*verb));
    status = completions(shell, verbs);
  });

  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::RequiredError("a verb");
    return status;
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : misuse(explain(app, error));
  } catch (const Misuse& error) {
    return misuse(error.what());
  } catch (const std::exception& error) {
    complain(sentence_of(error));
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  occupy_closed_streams();
  // A process started as /proc/self/exe, as --standalone's nodes are, would be `exe` to ps and
  // pkill.
  prctl(PR_SET_NAME, program_invocation_short_name);
  const int status = run(argc, argv);
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
  complain("the output cannot be written: standard output is full or closed");
  return status == 0 ? 1 : status;
}
