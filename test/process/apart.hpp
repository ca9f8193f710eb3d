// A private network and mount namespace for tests.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include <cstdlib>
#include <string>

#include <boost/test/unit_test.hpp>

#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/test/support/process.hpp>

namespace troupe::test {

/// A precondition: may we, and can the kernel?
struct Permitted {
  std::string command;
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
    const auto works = [](const std::string& c) {
      return std::system(("unshare -n -m sh -c \"" + c + "\" >/dev/null 2>&1").c_str()) == 0;
    };
    boost::test_tools::assertion_result result(works("ip link add x type veth peer name y") &&
                                               works(command));
    result.message() << "this system does not permit: " << command;
    return result;
  }
};

/// Returns the output of a command, which must succeed.
inline std::string shell(const std::string& command) {
  Folder folder;
  const Outcome o = run(folder.path(), {"/bin/sh", "-c", command});
  BOOST_REQUIRE_MESSAGE(o.code == 0, command << ": " << o.error);
  return o.out;
}

/// This thread, and what it starts, in a network and a mount namespace of their own.
class Apart {
 public:
  Apart()
      : net_(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)),
        mounts_(open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC)), here_(fs::current_path()) {
    BOOST_REQUIRE(unshare(CLONE_NEWNET | CLONE_NEWNS) == 0);
    shell(
        "mount --make-rprivate / && mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip "
        "link set lo up && echo 1 >/proc/sys/net/ipv4/ip_forward");
  }
  ~Apart() {
    // threads that have begun here may still wait for something
    BOOST_TEST(unshare(CLONE_FS) == 0);
    BOOST_TEST(setns(net_.get(), CLONE_NEWNET) == 0);
    BOOST_TEST(setns(mounts_.get(), CLONE_NEWNS) == 0);
    fs::current_path(here_);
  }

 private:
  OwnedDescriptor net_, mounts_;
  fs::path here_;
};

}  // namespace troupe::test
