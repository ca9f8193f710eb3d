// The verbs of the binary `troupe`, one file each: a function of the verb's arguments that prints
// to stdout and returns the process's exit status, 0 for done and 1 if it found a problem
// (`diagnose`: 3 if a run hangs).
//
//   int version() { ...; return 0; }
//
// To add one: a file here, a declaration below, and its flags in apps/main.cpp. The command-line
// parser is known to main alone, because it takes seconds to compile.
#pragma once

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe {

class ClusterNode;

}  // namespace troupe

namespace troupe::verbs {

/// A wrong command line: main prints the message, which names the remedy, and exits with 2.
struct Misuse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns an error's message for people. If an answer is malformed, the message says that, and not
/// which field was missing in it.
std::string sentence_of(const std::exception& error);

/// Examines this machine and runs a small graph on the engine.
int doctor();
/// Lists the registered operations or, if `name` is not empty, tells all about that one. With a
/// device, such as `gpu` or `gpu:0`: which primitives it has, and which operations the host runs in
/// its place.
int ops(const std::string& name, const std::string& device);
int version();
struct RunFlags {
  std::string file;                    // made by `save` (cluster/protocol/saved_function.hpp)
  std::vector<std::string> arguments;  // numbers, or FILE.safetensors:NAME
  std::string out = {};                // a safetensors file; empty: standard output
  int workers = 1;
  bool describe = false;  // lists arguments, results and variables, and runs nothing
};
/// Runs a saved function once.
int run_function(const RunFlags& flags);
struct KeygenOptions {
  std::string folder = "keys";
  std::string name = {};       // node's name; empty: the host's
  std::string authorize = {};  // a public key that may connect; empty: make a pair
};
/// Makes a node's keys, or lets another one connect.
int keygen(const KeygenOptions& options);

inline constexpr const char* kNoFlight = "none";

struct NodeFlags {
  std::string listen = "tcp://127.0.0.1:7117";
  std::vector<std::string> join;
  std::string peers;  // a file with more addresses
  std::string name;   // empty: from the environment, else the host's
  int workers = 0;
  int patience = 10;            // seconds
  std::string keys;             // a folder; empty: none, and loopback only
  std::string labels = {};      // key=value,key=value
  std::string http = {};        // PORT or HOST:PORT of the inspection server; empty: none
  std::string http_token = {};  // file with the token that requests must carry; empty: none
  std::string log = "text";     // or `json`: one object a line on stderr
  // a folder, see EngineOptions::flight; kNoFlight: none; empty: the state folder of services and
  // users
  std::string flight = {};
  // a folder for shards of checkpoints; empty: 'checkpoints/NAME' in that of a service, else none
  std::string state = {};
  double suspect_after = 1.5;  // seconds from a suspicion until the node is declared dead
  int standalone = 0;  // so many nodes, as processes of this machine; 0: this process is one
};
/// A node of a cluster, until SIGTERM or SIGINT.
int node(const NodeFlags& flags);
/// Several, each a process of its own, until SIGTERM or SIGINT.
int standalone(const NodeFlags& flags);

/// Flags of the verbs that are a node of a cluster for as long as they take.
struct GuestFlags {
  // nodes of the cluster; none: from TROUPE_JOIN, else the node on this machine
  std::vector<std::string> join;
  std::string keys;   // a folder; empty: none
  int patience = 10;  // seconds, to be connected
};

struct ClearFlags {
  std::string container;
  std::vector<std::string> on;  // nodes that are to drop the container
  GuestFlags guest;
};
/// Drops the states of a container (ClusterNode::clear_container).
int clear(const ClearFlags& flags);

struct OperateFlags {
  std::string what;  // cancel: a run; drain: a node
  GuestFlags guest;
};
/// Cancels a run (ClusterNode::cancel_run).
int cancel(const OperateFlags& flags);
/// Has a node take no new partitions, and exit when its runs have ended (ClusterNode::drain).
int drain(const OperateFlags& flags);

struct TrainingFlags {
  std::string name;   // attach: the training's
  bool json = false;  // runs: one array on a line
  GuestFlags guest;
};
/// Lists the trainings that a cluster knows by name (training_runs).
int runs(const TrainingFlags& flags);
/// Shows the progress of one until it has ended, or SIGINT.
int attach(const TrainingFlags& flags);

struct CheckpointFlags {
  std::string action;  // list, show, verify, export
  std::string folder;
  std::vector<std::string> with;  // folders of other nodes, for shards that are not in `folder`
  std::int64_t step = -1;         // -1: the newest; verify: all
  std::string to;                 // export: the file to write
  std::vector<std::string> only;  // export: names of variables, or of their scopes; empty: all
  bool json = false;
};
/// Lists, shows, verifies or exports the checkpoints of a training (CheckpointFolder, NodeFolders).
int checkpoint(const CheckpointFlags& flags);

/// This machine's.
std::string host_name();
/// Calls `use` with a node that joins a cluster for one verb: it is named after the verb, and
/// listens nowhere. Throws Misuse for a wrong address, key folder or argument of `use`, and
/// runtime_error for any other Error.
void as_guest(const std::string& verb, const GuestFlags& flags,
              const std::function<void(ClusterNode& here)>& use);

struct Endpoint {
  std::string host;
  int port = 0;
};
/// `PORT`, which is on loopback, or `HOST:PORT`. Throws Misuse.
Endpoint endpoint(const std::string& text);

/// Returns the contents of a token file; empty if `file` is. Throws Misuse if the file is missing
/// or too short to protect anything.
std::string token_of(const std::string& file);

/// Flags of the verbs that ask a running node (cluster/inspect/INSPECTION.md): they print to a
/// terminal in colour, to a pipe plainly.
struct LookFlags {
  std::string node = "http://127.0.0.1:7200";  // URL of the inspection server
  std::string token;                           // a file
  // the node's answer, unchanged; top, and trace to a file: an object on a line
  bool json = false;
  int patience = 3;  // seconds for an answer, from its question to its end
  double every = 1;  // top: asks every so many seconds
  // again every so many seconds, until SIGINT; 0: once (top on a terminal: as `every` says)
  double watch = 0;
  std::string what;  // inspect: an actor's id or name; graph: a plan's id; report: a run's id
  bool dot = false;  // graph: for Graphviz
  int seconds = 1;   // trace
  std::string out;   // trace and report: the file; empty: standard output
};
int ps(const LookFlags& flags);
int top(const LookFlags& flags);
int inspect(const LookFlags& flags);
int graph(const LookFlags& flags);
/// 3 if a run hangs.
int diagnose(const LookFlags& flags);
int trace(const LookFlags& flags);
int metrics(const LookFlags& flags);
/// A run, as one HTML file.
int report(const LookFlags& flags);
struct WatchFlags {
  std::string query;             // the name of a standing query
  std::string trace = {};        // a file; empty: the node of LookFlags
  double window = 1;             // seconds
  std::string level = "strong";  // middle, weak
};
/// A standing query over the engine's own events: once over a file, else until SIGINT.
int watch(const WatchFlags& flags, const LookFlags& look);
struct QueryFlags {
  std::string query;                 // a text, or a file that has it
  std::vector<std::string> sources;  // NAME=FILE
  std::string time = "time";         // column of times
  std::string unit = "s";            // s, ms, us, ns: that times are in
  std::string level = "strong";      // middle, weak
  long long memory = 0;              // M at level weak, in units of time
  bool changes = false, json = false, explain = false;
  std::vector<std::string> on;  // nodes that run the operators; none: this process
  int partitions = 1;           // on each of them
  GuestFlags guest;             // if there are such nodes
};
/// A query in CEDR's language over files of events.
int query(const QueryFlags& flags);
struct DependencyFlags {
  std::string trace;  // a file
  std::vector<std::string> kinds = {"kernel", "firing", "send", "receive"};
  double support = 0;                  // seconds; 0: chosen by the length of the trace
  double level = 0.05;                 // false edges among those shown, at most
  std::string family = "exponential";  // delays' density
  bool changes = false;                // change points too
  bool truth = false;                  // precision and recall
  bool dot = false, json = false;
};
/// Prints the dependences between the events of a trace.
int dependencies(const DependencyFlags& flags);
/// A script that completes the command line, for `bash`, `zsh` or `fish`.
struct Completed {
  struct Flag {
    std::vector<std::string> names;    // --out, -o
    std::vector<std::string> choices;  // allowed values; empty: any
    bool takes_value = false, may_lack_value = false, is_file = false;
  };
  std::string verb;
  std::vector<std::string> choices;  // allowed words behind the verb; empty: any
  std::vector<Flag> flags;
};
int completions(const std::string& shell, const std::vector<Completed>& verbs);

}  // namespace troupe::verbs
