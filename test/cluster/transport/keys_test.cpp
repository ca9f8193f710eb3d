// Keys of nodes, in files.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <troupe/cluster/transport/net/keys.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using troupe::test::refusal;

BOOST_AUTO_TEST_SUITE(keys_test, TROUPE_ONE_THREAD)

namespace {

// A place for keys, which is not there yet.
struct KeyFolder {
  // a user other than root looks, too
  KeyFolder() { BOOST_REQUIRE(::chmod(around.path().c_str(), 0755) == 0); }
  troupe::test::Folder around;
  std::filesystem::path path = around / "keys";
  void append(const char* file, const char* text) const {
    std::ofstream(path / file, std::ios::app) << text;
  }
};

unsigned mode_of(const std::filesystem::path& p) {
  struct ::stat about {};
  BOOST_REQUIRE(::stat(p.c_str(), &about) == 0);
  return about.st_mode & 0777;
}

}  // namespace

BOOST_AUTO_TEST_CASE(read_keys_returns_the_keys_that_were_made) {
  KeyFolder f;
  const KeyPair own = make_keys(f.path, "alpha");
  BOOST_TEST(is_key(own.public_key));
  BOOST_TEST(is_key(own.secret_key));
  const Keys keys = read_keys(f.path);
  BOOST_TEST(keys.own.public_key == own.public_key);
  BOOST_TEST(keys.own.secret_key == own.secret_key);
  BOOST_REQUIRE(keys.authorized.size() == 1u);
  BOOST_TEST(keys.authorized.at(own.public_key) == "alpha");
  BOOST_TEST(mode_of(f.path) == 0700u);
  BOOST_TEST(mode_of(f.path / "node.key") == 0600u);
}

BOOST_AUTO_TEST_CASE(a_key_is_never_overwritten) {
  KeyFolder f;
  const KeyPair own = make_keys(f.path, "alpha");
  refusal([&] { make_keys(f.path, "beta"); }, Code::already_exists);
  BOOST_TEST(read_keys(f.path).own.secret_key == own.secret_key);
}

BOOST_AUTO_TEST_CASE(others_are_authorized_once) {
  KeyFolder f;
  make_keys(f.path, "alpha");
  const KeyPair beta = generate_keys();
  authorize(f.path, beta.public_key, "beta, in the cellar");
  authorize(f.path, beta.public_key, "beta, in the cellar");
  const std::string why =
      refusal([&] { authorize(f.path, beta.public_key, "gamma"); }, Code::already_exists);
  BOOST_TEST(why.find("as 'beta, in the cellar'") != std::string::npos, why);
  const Keys keys = read_keys(f.path);
  BOOST_TEST(keys.authorized.size() == 2u);
  BOOST_TEST(keys.authorized.at(beta.public_key) == "beta, in the cellar");
  refusal([&] { authorize(f.path, "short", "x"); }, Code::invalid_argument);
}

// Otherwise it would be read as another name, or as a key that was never authorized.
BOOST_AUTO_TEST_CASE(authorizing_keeps_mode_and_link) {
  KeyFolder f;
  make_keys(f.path, "alpha");
  const std::filesystem::path elsewhere = f.around / "list";
  std::filesystem::rename(f.path / "authorized", elsewhere);
  std::filesystem::create_symlink(elsewhere, f.path / "authorized");
  BOOST_REQUIRE(::chmod(elsewhere.c_str(), 0600) == 0);
  authorize(f.path, generate_keys().public_key, "beta");
  BOOST_TEST(std::filesystem::is_symlink(f.path / "authorized"));
  BOOST_TEST(mode_of(elsewhere) == 0600u);
  BOOST_TEST(read_keys(f.path).authorized.size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_name_stays_within_its_line) {
  KeyFolder f;
  const std::string more = "beta\n" + generate_keys().public_key + " gamma";
  for (const std::string& name : {more, std::string("a # b"), std::string(" a"), std::string("a "),
                                  std::string("\x1b[31m")}) {
    refusal([&] { make_keys(f.path, name); }, Code::invalid_argument);
    BOOST_TEST(!std::filesystem::exists(f.path / "node.key"));
  }
  make_keys(f.path, "alpha");
  refusal([&] { authorize(f.path, generate_keys().public_key, more); }, Code::invalid_argument);
  BOOST_TEST(read_keys(f.path).authorized.size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_secret_that_others_can_read_is_refused) {
  KeyFolder f;
  make_keys(f.path, "alpha");
  ::chmod((f.path / "node.key").c_str(), 0640);
  const std::string why = refusal([&] { read_keys(f.path); }, Code::failed_precondition);
  BOOST_TEST(why.find("chmod 600") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(keys_that_others_can_write_to_are_refused) {  // H10
  KeyFolder f;
  make_keys(f.path, "alpha");
  const std::string list = f.path / "authorized", key = f.path / "node.key";
  const auto why = [&] { return refusal([&] { read_keys(f.path); }, Code::failed_precondition); };
  const auto contains = [](const std::string& all, const std::string& part) {
    return all.find(part) != std::string::npos;
  };
  const std::string above = f.path.parent_path().string();  // whose entries could be replaced
  for (const auto& [path, before] : std::vector<std::pair<std::string, ::mode_t>>{
           {list, 0644}, {f.path.string(), 0700}, {above, 0755}})
    for (const ::mode_t others_write : {0020u, 0002u}) {
      BOOST_REQUIRE(::chmod(path.c_str(), before | others_write) == 0);
      BOOST_TEST(contains(why(), "chmod go-w " + path + "'"), why());
      BOOST_REQUIRE(::chmod(path.c_str(), before) == 0);
    }
  BOOST_TEST(read_keys(f.path).authorized.size() == 1u);
  // The list that a running node reads again.
  BOOST_REQUIRE(::chmod(list.c_str(), 0664) == 0);
  refusal([&] { read_authorized(f.path); }, Code::failed_precondition);
  BOOST_REQUIRE(::chmod(list.c_str(), 0644) == 0);
  // A link: where it leads to counts too.
  const std::filesystem::path other = f.around / "other";
  std::filesystem::create_directory(other);
  std::filesystem::rename(list, other / "list");
  std::filesystem::create_symlink(other / "list", list);
  BOOST_REQUIRE(::chmod(other.c_str(), 0777) == 0);
  BOOST_TEST(contains(why(), "chmod go-w " + std::filesystem::canonical(other).string() + "'"),
             why());
  // In a folder with the sticky bit only an entry's owner replaces it: kubelet mounts secrets so.
  BOOST_REQUIRE(::chmod(other.c_str(), 01777) == 0);
  BOOST_REQUIRE(::chmod(f.path.c_str(), 01777) == 0);
  BOOST_TEST(read_keys(f.path).authorized.size() == 1u);
  if (::geteuid() != 0) return;
  constexpr ::uid_t kNobody = 65534;
  BOOST_REQUIRE(::chown((other / "list").c_str(), kNobody, kNobody) == 0);
  BOOST_TEST(contains(why(), "belongs to user 65534"), why());
}

// As kubelet puts a secret into a pod: root's, for the group that the pod runs as.
BOOST_AUTO_TEST_CASE(keys_that_root_gives_a_group_to_read_are_read) {
  if (::geteuid() != 0) return;
  constexpr ::uid_t kNobody = 65534;
  KeyFolder f;
  make_keys(f.path, "alpha");
  ::chmod(f.path.c_str(), 0755);
  const std::string file = f.path / "node.key";
  const auto as_nobody = [&](::mode_t mode, ::uid_t owner) {
    BOOST_REQUIRE(::chown(file.c_str(), owner, kNobody) == 0);
    BOOST_REQUIRE(::chmod(file.c_str(), mode) == 0);
    const ::gid_t group = ::getegid();
    BOOST_REQUIRE(::setegid(kNobody) == 0);
    BOOST_REQUIRE(::seteuid(kNobody) == 0);
    std::string why;
    try {
      read_keys(f.path);
    } catch (const Error& e) { why = e.what(); }
    BOOST_REQUIRE(::seteuid(0) == 0);
    BOOST_REQUIRE(::setegid(group) == 0);
    return why;
  };
  BOOST_TEST(as_nobody(0440, 0) == "");
  BOOST_TEST(as_nobody(0640, 0) == "");
  BOOST_TEST(as_nobody(0660, 0).find("chmod 640") != std::string::npos);
  BOOST_TEST(as_nobody(0444, 0).find("chmod 640") != std::string::npos);
  BOOST_TEST(as_nobody(0440, kNobody).find("chmod 600") != std::string::npos);
  BOOST_TEST(as_nobody(0400, 0) == file + " cannot be read: Permission denied");
  BOOST_TEST(as_nobody(0400, kNobody) == "");
}

BOOST_AUTO_TEST_CASE(damage_is_named_with_its_place) {
  KeyFolder f;
  refusal([&] { read_keys(f.path); }, Code::not_found);
  make_keys(f.path, "alpha");
  f.append("authorized", "\n# a comment\nnot-a-key gamma\n");
  const std::string why = refusal([&] { read_keys(f.path); }, Code::data_loss);
  BOOST_TEST(why.find("authorized:5: 'not-a-key' is no public key") != std::string::npos, why);
}

BOOST_AUTO_TEST_CASE(a_pipe_is_refused_without_waiting_for_its_writer) {
  KeyFolder f;
  make_keys(f.path, "alpha");
  for (const char* name : {"authorized", "node.key"}) {
    const std::filesystem::path file = f.path / name, aside = f.path / "aside";
    std::filesystem::rename(file, aside);
    BOOST_REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    BOOST_TEST(refusal([&] { read_keys(f.path); }, Code::failed_precondition)
                   .find(fmt::format("{} is not a file", file.string())) != std::string::npos);
    std::filesystem::rename(aside, file);
  }
  BOOST_TEST(read_keys(f.path).authorized.size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_pair_that_does_not_belong_together_is_refused) {
  KeyFolder f;
  make_keys(f.path, "alpha");
  const std::string line = "public " + generate_keys().public_key + "\n";
  f.append("node.key", line.c_str());
  refusal([&] { read_keys(f.path); }, Code::data_loss);
  f.append("node.key", "private x\n");
  BOOST_TEST(refusal([&] { read_keys(f.path); }, Code::data_loss).find("node.key:5 is neither") !=
             std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
