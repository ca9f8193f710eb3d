#include <troupe/cluster/node/operations.hpp>

#include <utility>

#include <fmt/format.h>

namespace troupe {

void Operations::cancel(const std::string& owner, std::uint64_t run) {
  OperateNode m;
  m.action = OperateNode::Action::cancel;
  m.node = owner;
  m.run = run;
  ask(std::move(m));
}

std::size_t Operations::drain(const std::string& node) {
  OperateNode m;
  m.action = OperateNode::Action::drain;
  m.node = node;
  return ask(std::move(m)).states;
}

RequestTable::Reply Operations::ask(OperateNode m) {
  RequestTable::Reply reply;
  if (m.node == node_.self.name) {
    static_cast<Answer&>(reply) = done_here(m);
  } else {
    Peer to = node_.view.find(m.node);
    for (const std::string& name : node_.view.names())
      if (to == 0 && name != node_.self.name) to = node_.view.find(name);
    if (to == 0) throw Error(Code::unavailable, "no node of the cluster is connected");
    m.request = node_.requests.add(to);
    send(node_.transport, to, m);
    reply = node_.requests.await(m.request);
  }
  reply.status.throw_if_error();
  return reply;
}

void Operations::handle(Peer from, OperateNode&& m) {
  if (m.node != node_.self.name) return pass_on(from, std::move(m));
  node_.quota.submit(from, 0, [this, m = std::move(m)] { return done_here(m); });
}

void Operations::pass_on(Peer from, OperateNode&& m) {
  Answer answer;
  answer.request = m.request;
  try {
    if (m.is_passed_on)
      throw Error(Code::not_found, fmt::format("a request for node '{}' came to node '{}'", m.node,
                                               node_.self.name));
    const Peer to = node_.view.peer_of(m.node);
    if (passed_on_.fetch_add(1, std::memory_order_relaxed) >= kMostPassedOn) {
      passed_on_.fetch_sub(1, std::memory_order_relaxed);
      throw Error(Code::resource_exhausted,
                  fmt::format("{} requests wait for other nodes; ask again later", kMostPassedOn));
    }
    m.is_passed_on = true;
    m.request =
        node_.requests.add(to, {}, [this, from, answer](RequestTable::Reply&& reply) mutable {
          passed_on_.fetch_sub(1, std::memory_order_relaxed);
          answer.status = reply.status;
          answer.states = reply.states;
          send(node_.transport, from, answer);
        });
    return send(node_.transport, to, m);
  } catch (...) { answer.status = Status::from_current_exception(); }
  send(node_.transport, from, answer);
}

Answer Operations::done_here(const OperateNode& m) {
  Answer answer;
  answer.request = m.request;
  try {
    if (m.action == OperateNode::Action::cancel) {
      node_.engine.cancel(m.run);
    } else {
      is_draining_.store(true, std::memory_order_relaxed);
      node_.view.drain();
      plans_.drain();
      eager_.drain();
      answer.states = node_.engine.in_flight();
    }
  } catch (...) { answer.status = Status::from_current_exception(); }
  return answer;
}

bool Operations::is_drained() const { return is_draining() && node_.engine.in_flight() == 0; }

}  // namespace troupe
