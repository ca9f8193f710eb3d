#include <troupe/actors/runtime/printer.hpp>

#include <iostream>

#include <caf/atom.hpp>
#include <caf/message_handler.hpp>

namespace troupe {

void Printer::receive_control(caf::mailbox_element& element) {
  auto& content = element.content();
  if (content.match_elements<caf::add_atom, caf::actor_id, std::string>())
    return add(content.get_as<caf::actor_id>(1), content.get_as<std::string>(2));
  if (content.match_elements<caf::flush_atom, caf::actor_id>())
    return flush(content.get_as<caf::actor_id>(1));
  if (content.match_elements<caf::delete_atom, caf::actor_id>())
    return flush(content.get_as<caf::actor_id>(1));
  InboxActor::receive_control(element);
}

void Printer::add(caf::actor_id who, const std::string& text) {
  auto& line = lines_[who];
  line += text;
  if (!line.empty() && line.back() == '\n') flush(who);
}

void Printer::flush(caf::actor_id who) {
  const auto found = lines_.find(who);
  if (found == lines_.end()) return;
  std::cout << found->second << std::flush;
  lines_.erase(found);
}

void Printer::ended(const caf::error&) {
  while (!lines_.empty()) flush(lines_.begin()->first);
}

}  // namespace troupe
