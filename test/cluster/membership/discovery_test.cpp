// Not under tsan: one thread steps the simulation.
// Discovery: settings that a node derives from its environment.
#include <boost/test/unit_test.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include <troupe/cluster/membership/discovery.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using troupe::test::refusal;

BOOST_AUTO_TEST_SUITE(discovery_test, TROUPE_ONE_THREAD)

namespace {

using Strings = std::vector<std::string>;

Environment of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(host_lists_of_slurm) {
  BOOST_TEST(
      expand_hosts("gpu[01-03,7],login") == Strings({"gpu01", "gpu02", "gpu03", "gpu7", "login"}),
      boost::test_tools::per_element());
  BOOST_TEST(expand_hosts("solo") == Strings({"solo"}), boost::test_tools::per_element());
  BOOST_TEST(expand_hosts("r[1-2]n[08-10]") ==
                 Strings({"r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"}),
             boost::test_tools::per_element());
  BOOST_TEST(expand_hosts("a[099-101]-ib") == Strings({"a099-ib", "a100-ib", "a101-ib"}),
             boost::test_tools::per_element());
  for (const char* wrong : {"", "a,,b", "a[1-", "a]", "a[2-1]", "a[x]", "a[]", "a[1-99999999]",
                            "n[0-999]m[0-999]", "a[9223372036854775807]"})
    BOOST_CHECK_THROW(expand_hosts(wrong), Error);
  std::string deep = "a";  // each bracket would be a call within a call
  for (int i = 0; i < 30'000; ++i) deep += "[1]";
  BOOST_CHECK_THROW(expand_hosts(deep), Error);
}

BOOST_AUTO_TEST_CASE(addresses_in_full) {
  BOOST_TEST(full_address("a") == "tcp://a:7117");
  BOOST_TEST(full_address("a:80") == "tcp://a:80");
  BOOST_TEST(full_address("tcp://10.0.0.1:5") == "tcp://10.0.0.1:5");
  BOOST_TEST(full_address("tcp://a.b") == "tcp://a.b:7117");
  BOOST_TEST(full_address("[::1]:9") == "tcp://[::1]:9");
  BOOST_TEST(full_address("[::1]") == "tcp://[::1]:7117");
  BOOST_TEST(full_address("inproc://x") == "inproc://x");
  for (const char* wrong : {"", ":80", "a:", "a:b", "a:70000", "a b", "a:1:2", "tcp://", "::1"})
    BOOST_CHECK_THROW(full_address(wrong), Error);
}

// As `tcp://$(POD_IP):7117` becomes in clusters of either kind.
BOOST_AUTO_TEST_CASE(an_ipv6_address_without_brackets_is_named) {  // H12
  BOOST_TEST(full_address("tcp://[10.0.0.1]:5") == "tcp://10.0.0.1:5");
  BOOST_TEST(full_address("[10.0.0.1]") == "tcp://10.0.0.1:7117");
  const std::pair<const char*, const char*> cases[] = {
      {"tcp://fd00::1", "tcp://[fd00::1]:7117"},
      {"fd00::1", "tcp://[fd00::1]:7117"},
      {"tcp://fd00::1:7117", "tcp://[fd00::1]:7117"},
      {"tcp://fd00::1:72000", "tcp://[fd00::1]:72000"},
      {"tcp://fe80::1%eth0", "tcp://[fe80::1%eth0]:7117"},
      {"tcp://1:2:3:4:5:6:7:8", "tcp://[1:2:3:4:5:6:7:8]:7117"},
      {"tcp://1:2:3:4:5:6:7:8:9", "tcp://[1:2:3:4:5:6:7:8]:9"}};
  for (const auto& [given, remedy] : cases) {
    std::string why;
    try {
      static_cast<void>(full_address(given));
    } catch (const Error& e) { why = e.what(); }
    BOOST_TEST(why ==
               fmt::format("'{}' has an IPv6 address without brackets; write {}", given, remedy));
  }
}

BOOST_AUTO_TEST_CASE(from_slurm) {
  const Discovery first = discover(
      of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NODELIST", "c[1-4]"}, {"SLURM_JOB_NAME", "train"}}));
  BOOST_TEST(first.from == "Slurm");
  BOOST_TEST(first.name == "train-0");
  BOOST_TEST(first.join.empty());
  const Discovery third = discover(of(
      {{"SLURM_PROCID", "2"}, {"SLURM_STEP_NODELIST", "c[1-4]"}, {"SLURM_JOB_NODELIST", "other"}}));
  BOOST_TEST(third.name == "task-2");
  BOOST_TEST(third.rank == 2);
  BOOST_TEST(third.join == Strings({"tcp://c1:7117"}), boost::test_tools::per_element());
  BOOST_TEST(refusal(
                 [] {
                   discover(of({{"SLURM_PROCID", "1"}}));
                 },
                 Code::invalid_argument)
                 .find("SLURM_JOB_NODELIST") != std::string::npos);
  BOOST_TEST(refusal(
                 [] {
                   discover(of({{"SLURM_PROCID", "x"}, {"SLURM_JOB_NODELIST", "a"}}));
                 },
                 Code::invalid_argument) == "SLURM_PROCID='x' is no rank");
  BOOST_TEST(refusal(
                 [] {
                   discover(of({{"SLURM_PROCID", "1"}, {"SLURM_JOB_NODELIST", "a["}}));
                 },
                 Code::invalid_argument)
                 .starts_with("SLURM_JOB_NODELIST: "));
  // A job may be called what no node can be.
  BOOST_TEST(discover(of({{"SLURM_PROCID", "0"},
                          {"SLURM_JOB_NODELIST", "a"},
                          {"SLURM_JOB_NAME", "my job/*\tv2"}}))
                 .name == "my-job---v2-0");
}

BOOST_AUTO_TEST_CASE(from_mpirun_with_an_address) {
  const Discovery open =
      discover(of({{"OMPI_COMM_WORLD_RANK", "3"}, {"TROUPE_JOIN", "head, tcp://spare:1"}}));
  BOOST_TEST(open.from == "Open MPI");
  BOOST_TEST(open.name == "rank-3");
  BOOST_TEST(open.join == Strings({"tcp://head:7117", "tcp://spare:1"}),
             boost::test_tools::per_element());
  BOOST_TEST(discover(of({{"PMI_RANK", "1"}})).from == "MPICH");
}

BOOST_AUTO_TEST_CASE(ranks_of_mpi_that_make_no_sense) {
  for (const auto& [rank, size] : {std::pair{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   std::pair{"PMI_RANK", "PMI_SIZE"}}) {
    const auto why = [&](const char* r, const char* s) {
      return refusal([&] { discover(of({{rank, r}, {size, s}})); }, Code::invalid_argument);
    };
    for (const char* wrong : {"x", "-1", "4.5", "9999999"})
      BOOST_TEST(why("1", wrong) == std::string(size) + "='" + wrong + "' is no number of ranks");
    for (const char* few : {"0", "3", "4"})
      BOOST_TEST(why("4", few) == std::string("there is no rank 4 of ") + size + "='" + few + "'");
  }
}

// All processes that mpirun starts on a machine have the SLURM_PROCID of the process that started
// mpirun there. If Slurm itself speaks PMI, it gives one rank twice.
BOOST_AUTO_TEST_CASE(from_mpirun_within_a_job_of_slurm) {
  for (const auto& [rank, from] :
       {std::pair{"OMPI_COMM_WORLD_RANK", "Open MPI"}, std::pair{"PMI_RANK", "MPICH"}}) {
    const Discovery d =
        discover(of({{"SLURM_PROCID", "0"}, {"SLURM_JOB_NODELIST", "c[1-4]"}, {rank, "3"}}));
    BOOST_TEST(d.from == from);
    BOOST_TEST(d.name == "rank-3");
    BOOST_TEST(d.join.empty());
  }
  const Discovery slurm =
      discover(of({{"SLURM_PROCID", "2"}, {"SLURM_STEP_NODELIST", "c[1-4]"}, {"PMI_RANK", "2"}}));
  BOOST_TEST(slurm.from == "Slurm");
  BOOST_TEST(slurm.join == Strings({"tcp://c1:7117"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(from_kubernetes) {
  const auto pod = [](const char* name) {
    return of({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
               {"TROUPE_SERVICE", "troupe.ml.svc"},
               {"HOSTNAME", name}});
  };
  BOOST_TEST(discover(pod("worker-0")).join.empty());
  const Discovery d = discover(pod("big-worker-12"));
  BOOST_TEST(d.from == "Kubernetes");
  BOOST_TEST(d.name == "big-worker-12");
  BOOST_TEST(d.join == Strings({"tcp://big-worker-0.troupe.ml.svc:7117"}),
             boost::test_tools::per_element());
  BOOST_TEST(
      refusal([&] { discover(pod("worker")); }, Code::invalid_argument).find("StatefulSet") !=
      std::string::npos);
  for (const char* lacks : {"KUBERNETES_SERVICE_HOST", "HOSTNAME"}) {
    std::map<std::string, std::string> all{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"},
                                           {"TROUPE_SERVICE", "troupe"},
                                           {"HOSTNAME", "worker-1"}};
    all.erase(lacks);
    BOOST_TEST(refusal([&] { discover(of(all)); }, Code::invalid_argument)
                   .starts_with(std::string("TROUPE_SERVICE is set, but not ") + lacks));
  }
}

BOOST_AUTO_TEST_CASE(by_hand_or_not_at_all) {
  BOOST_TEST(discover(of({})).from.empty());
  BOOST_TEST(discover(of({{"HOSTNAME", "laptop-1"}})).from.empty());
  const Discovery d = discover(of({{"TROUPE_NAME", "me"}, {"TROUPE_JOIN", "a"}}));
  BOOST_TEST(d.from == "environment");
  BOOST_TEST(d.name == "me");
  BOOST_TEST(refusal(
                 [] {
                   discover(of({{"TROUPE_JOIN", "a:b"}}));
                 },
                 Code::invalid_argument)
                 .starts_with("TROUPE_JOIN: 'a:b': 'b' is no port"));
}

BOOST_AUTO_TEST_CASE(a_list_of_peers_in_a_file) {
  const troupe::test::Folder folder;
  const std::filesystem::path path = folder / "peers";
  std::ofstream(path) << "# two machines\nalpha\n\n  beta:99  # the old one\r\n";
  BOOST_TEST(read_peer_list(path) == Strings({"tcp://alpha:7117", "tcp://beta:99"}),
             boost::test_tools::per_element());
  std::ofstream(path) << "\xEF\xBB\xBF"
                         "alpha\r\nbeta\r\n";  // as Windows' Notepad writes it
  BOOST_TEST(read_peer_list(path) == Strings({"tcp://alpha:7117", "tcp://beta:7117"}),
             boost::test_tools::per_element());
  std::ofstream(path) << "alpha\nnot an address\n";
  BOOST_TEST(refusal([&] { read_peer_list(path); }, Code::invalid_argument)
                 .find(":2: 'not an address' is no address") != std::string::npos);
  std::ofstream(path) << std::string(1 << 20, '\n');
  BOOST_TEST(read_peer_list(path).empty());
  std::ofstream(path) << std::string((1 << 20) + 1, '\n');
  BOOST_TEST(
      refusal([&] { read_peer_list(path); }, Code::invalid_argument).find("is longer than 1 MiB") !=
      std::string::npos);
  std::filesystem::remove(path);
  BOOST_TEST(refusal([&] { read_peer_list(path); }, Code::not_found).find("cannot be read") !=
             std::string::npos);
}

// Otherwise each would silently be a cluster of its own.
BOOST_AUTO_TEST_CASE(ranks_of_mpi_without_peers_are_refused) {
  for (const auto& [rank, size, way] :
       {std::tuple{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                   "mpirun -x TROUPE_JOIN=HOST:7117"},
        std::tuple{"PMI_RANK", "PMI_SIZE", "mpirun -genv TROUPE_JOIN HOST:7117"}}) {
    const std::string why = refusal(
        [&] {
          require_company(discover(of({{rank, "1"}, {size, "2"}})));
        },
        Code::failed_precondition);
    BOOST_TEST(why.find("rank 1 of 2") != std::string::npos);
    BOOST_TEST(why.find(way) != std::string::npos, why);
    require_company(discover(of({{rank, "0"}, {size, "2"}})));  // the node that the others join
    require_company(discover(of({{rank, "0"}, {size, "1"}})));
    require_company(discover(of({{rank, "1"}, {size, "2"}, {"TROUPE_JOIN", "head"}})));
    const std::string of_how_many = refusal(
        [&] {
          require_company(discover(of({{rank, "1"}})));
        },
        Code::failed_precondition);
    BOOST_TEST(of_how_many.starts_with("this is rank 1, and"));
  }
  require_company(discover(of({})));
}

BOOST_AUTO_TEST_CASE(a_folder_is_no_list_of_peers) {
  const std::string why = refusal([] { read_peer_list("/"); }, Code::not_found);
  BOOST_TEST(why.find("it is a folder") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
