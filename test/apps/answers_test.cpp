// Not under asan and tsan: the text of the command line has no memory of its own.
// The verbs' output for answers that no node gives: one sentence, without control sequences for a
// terminal. The fuzzer of answers finds more of them.
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/cluster/transport/net/tcp_socket.hpp>
#include <troupe/test/process/as_node.hpp>
#include <troupe/test/process/node_process.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(answers_test)

namespace {

/// Sends the same answer to every client, for every request, and closes the connection.
class Saying {
 public:
  explicit Saying(std::string said)
      : listening_(listen_at("tcp://127.0.0.1:0", "")), thread_([this, said = std::move(said)] {
          for (;;) {
            pollfd one{listening_.fd.get(), POLLIN, 0};
            poll(&one, 1, -1);
            const OwnedDescriptor fd(accept4(listening_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (fd.get() < 0) return;
            send(fd.get(), said.data(), said.size(), MSG_NOSIGNAL);
            shutdown(fd.get(), SHUT_WR);
            for (char rest[256]; recv(fd.get(), rest, sizeof rest, 0) > 0;) {}
          }
        }) {}
  ~Saying() { shutdown(listening_.fd.get(), SHUT_RDWR); }  // which ends the wait
  std::string url() const { return "http" + listening_.address.substr(3); }

 private:
  ListeningSocket listening_;
  std::jthread thread_;
};

Outcome asked(std::vector<std::string> verb, const std::string& said) {
  AsNode node;
  node.server.set_pre_routing_handler([&](const httplib::Request&, httplib::Response& out) {
    out.set_content(said, "application/json");
    return httplib::Server::HandlerResponse::Handled;
  });
  const Folder folder;
  verb.insert(verb.begin(), binary());
  verb.insert(verb.end(), {"--node", node.start(), "--patience", "60"});
  return run(folder.path(), verb);
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_incomplete_answer_is_reported_in_a_sentence) {
  const std::string nested = R"({"nodes":[],"plans":)" + std::string(5'000'000, '[');
  for (const std::string& said :
       {std::string("{}"), std::string("[]"), std::string("nonsense"),
        std::string(R"({"nodes":[{"name":1}],"plans":[1],"verdicts":1})"), nested})
    for (const std::vector<std::string>& verb :
         std::vector<std::vector<std::string>>{{"ps"},
                                               {"inspect", "x"},
                                               {"graph"},
                                               {"diagnose"},
                                               {"top", "--watch", "0.1"},
                                               {"report", "a/1"},
                                               {"trace", "--out", "t"}}) {
      const Outcome o = asked(verb, said);
      BOOST_TEST(o.code == 1,
                 verb[0] << " " << said.substr(0, 50) << ": " << o.code << " " << o.out << o.error);
      BOOST_TEST(o.error.find("troupe: the answer of the node is not one of this version") !=
                     std::string::npos,
                 verb[0] << " " << said.substr(0, 50) << ": " << o.error);
    }
}

BOOST_AUTO_TEST_CASE(wrong_heads_are_reported_in_a_sentence) {
  const std::string endless(200'000, 'a'), ok = "HTTP/1.1 200 ",
                                           next = "HTTP/1.1 100 Continue\r\n\r\n";
  std::string fields = ok + "OK\r\n";
  while (fields.size() < 2'000'000) fields += "a:b\r\n";
  const std::string chunks =
      ok + "OK\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(2'000'000, '0');
  for (const std::string& said :
       {ok + endless, ok + endless + "\r\n\r\n", next + ok + endless + "\r\n\r\n", endless,
        ok + "OK\r\n\r\n[]", fields, chunks, std::string("SSH-2.0-OpenSSH_9\r\n"),
        ok + "OK\r\na:" + endless + endless + endless + endless + endless + endless}) {
    const Saying node(said);
    const Folder folder;
    const Outcome o =
        run(folder.path(), {binary(), "ps", "--node", node.url(), "--patience", "60"});
    BOOST_TEST(o.code == 1, said.substr(0, 50) << ": " << o.code << " " << o.out << o.error);
    BOOST_TEST(o.error.find(" is no node of Troupe") != std::string::npos, said.substr(0, 50)
                                                                               << ": " << o.error);
  }
}

BOOST_AUTO_TEST_CASE(fractions_that_fit_no_number_are_refused) {
  BOOST_TEST(asked({"diagnose"}, R"({"runs":1e30,"doing":[],"verdicts":[]})").code == 1);
  BOOST_TEST(asked({"diagnose"}, R"({"runs":2,"doing":[],"verdicts":[]})").out ==
             "nothing hangs; 2 runs are under way\n");
}

BOOST_AUTO_TEST_CASE(nothing_of_an_answer_acts_on_a_terminal) {
  for (const Outcome& o :
       {asked({"diagnose"}, R"({"runs":1,"doing":[],"verdicts":[{"run":"\u001b[31mX",)"
                            R"("text":"t\u001b]0;x\u0007"}]})"),
        asked({"metrics"}, "troupe\x1b[2J 1\n")}) {
    BOOST_TEST(!o.out.empty());
    BOOST_TEST(o.out.find('\x1b') == std::string::npos, o.out);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
