// Discovery: the name of a node and the nodes that it joins, from its environment. A cluster needs
// no configuration file and no shared file system: one address that answers is enough, because a
// joined node names the others.
//
//   Discovery d = discover(environment_of_process());
//   d.name, d.join                       // "worker-3", {"tcp://worker-0.troupe:7117"}
//
// Slurm:       every task of `srun troupe node` joins the first host of the step's node list.
// mpirun:      Open MPI and MPICH give a task's rank, but no addresses: TROUPE_JOIN does
//              (`mpirun -x`, MPICH's `-genv`), or a file. So within a job of Slurm, too.
// Kubernetes:  a StatefulSet names its pods NAME-0, NAME-1, …; with TROUPE_SERVICE, the headless
//              service, each joins NAME-0.SERVICE. (apps/ has the manifest.)
// By hand:     TROUPE_JOIN=ADDR,ADDR and TROUPE_NAME; `--join` and `--name` override all these.
// A file:      one address a line, `#` to the end of a line is a comment.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

inline constexpr int kDefaultPort = 7117;

struct Discovery {
  // `Slurm`, `Open MPI`, `MPICH`, `Kubernetes`, `environment` or empty: nothing was found
  std::string from;
  std::string name = {};               // empty: the host's name
  std::vector<std::string> join = {};  // addresses; empty: this node waits to be joined
  int rank = -1;                       // among the tasks of the launcher; -1: not given
  // number of ranks by MPI's variables, above `rank`; 0: not given
  int ranks = 0;
};

/// A variable of the environment; nothing if it is not set or empty.
using Environment = std::function<std::optional<std::string>(const char* name)>;
Environment environment_of_process();

/// Throws invalid_argument for a value that it cannot read, naming the variable.
Discovery discover(const Environment& environment);

/// The addresses in TROUPE_JOIN, with commas between them; none if it is not set. Throws
/// invalid_argument.
std::vector<std::string> joined_by(const Environment& environment);

/// Throws failed_precondition for a rank above 0 that would join no node: each would be a cluster
/// of its own.
void require_company(const Discovery& found);

/// Slurm's short form of host names: `gpu[01-03,7],login` is gpu01 gpu02 gpu03 gpu7 login. Throws
/// invalid_argument.
std::vector<std::string> expand_hosts(std::string_view list);

/// `HOST`, `HOST:PORT` or `tcp://HOST:PORT`, in full; other schemes as they are. Throws
/// invalid_argument.
std::string full_address(std::string_view address);

/// The addresses of a peer list. Throws not_found if it cannot be read, invalid_argument for a line
/// that is no address, and for more than 1 MiB.
std::vector<std::string> read_peer_list(const std::string& path);
/// Parses such a list from text; errors name `where` and the line.
std::vector<std::string> parse_peer_list(std::istream& text, const std::string& where);

}  // namespace troupe
