#include <troupe/devices/list/list_walk.hpp>

#include <utility>
#include <vector>

namespace troupe {

void each_tensor(const Value& value, const std::function<void(const Tensor&)>& f) {
  if (value.kind() == Value::Kind::tensor) return f(value.tensor());
  if (!value.is_list()) return;
  struct Open {
    List list;
    std::int64_t next;
  };
  std::vector<Open> open{{value.list(), 0}};
  while (!open.empty()) {
    Open& top = open.back();
    if (top.next == top.list.length()) {
      open.pop_back();
      continue;
    }
    Value element = top.list.read(top.next++);
    if (element.is_list()) open.push_back({std::move(element.list()), 0});
    else if (element.kind() == Value::Kind::tensor) f(element.tensor());
  }
}

Value with_tensors(const Value& value, Swapper* swapper,
                   const std::function<Tensor(const Tensor&)>& f) {
  if (value.kind() == Value::Kind::tensor) return f(value.tensor());
  if (!value.is_list()) return value;
  struct Open {
    List from, to;
    std::int64_t next;
  };
  std::vector<Open> open;
  const auto begin = [&](List from) {
    List to(from.dtype(), from.element_shape(), from.depth());
    if (from.is_saved()) to.mark_saved(swapper);
    to.grow(from.length());
    open.push_back({std::move(from), std::move(to), 0});
  };
  begin(value.list());
  for (;;) {
    Open& top = open.back();
    if (top.next == top.from.length()) {
      List made = std::move(top.to);
      open.pop_back();
      if (open.empty()) return made;
      open.back().to.put(open.back().next++, std::move(made));
      continue;
    }
    Value element = top.from.peek(top.next);
    if (element.is_list()) {
      begin(std::move(element.list()));
      continue;
    }
    if (element.has_value())
      top.to.put(top.next, element.kind() == Value::Kind::tensor ? Value(f(element.tensor()))
                                                                 : std::move(element));
    ++top.next;
  }
}

}  // namespace troupe
