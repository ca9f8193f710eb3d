#include <troupe/autodiff/object_checkpoint.hpp>

#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/ops/graph/tracing.hpp>

namespace troupe {
namespace {

constexpr const char* kSame = "troupe.same:";
constexpr const char* kSlots = "/slots/";

void require_fit(const std::string& path, const Tensor& value, DType dtype, const Shape& shape) {
  if (value.dtype() == dtype && value.shape() == shape) return;
  throw Error(
      Code::invalid_argument,
      fmt::format("object '{}' is {}{}, and the file holds {}{} for it; nothing was restored", path,
                  name_of(dtype), shape.text(), name_of(value.dtype()), value.shape().text()));
}

// Keeps the keys of the scope's draws: reads and assignments of a checkpoint change none of them.
class SameDraws {
 public:
  explicit SameDraws(Eager& scope) : scope_(scope), before_(scope.random_state()) {}
  SameDraws(SameDraws&&) = delete;
  ~SameDraws() { scope_.set_random_state(before_); }

 private:
  Eager& scope_;
  const Eager::RandomState before_;
};

Tensor value_of(Eager& scope, const Variable& v) {
  const Tracing::Suspended untraced;
  const SameDraws same(scope);
  return scope.on_host(v.read());
}

void assign(Eager& scope, const Variable& v, const Tensor& value) {
  const Tracing::Suspended untraced;
  const SameDraws same(scope);
  v.assign(scope.constant(value));
}

/// The slots that an optimizer has made for a variable: name and variable.
std::map<std::string, Variable> slots_of(Eager& scope, const Optimizer& optimizer,
                                         const Variable& v) {
  const std::string prefix = v.name() + "/" + optimizer.name() + "/";
  std::map<std::string, Variable> out;
  const auto add = [&](const StateSpec& spec) {
    if (spec.kind == StateSpec::Kind::variable && spec.name.starts_with(prefix))
      out.emplace(spec.name.substr(prefix.size()), Variable(&scope, scope.declare(spec, Site())));
  };
  for (const StateSpec& spec : scope.states().specs()) add(spec);
  // no store here has states of other nodes
  const auto declared = scope.declared_states();
  for (const StateSpec& spec : std::vector<StateSpec>(declared.begin(), declared.end())) add(spec);
  return out;
}

}  // namespace

namespace detail {

bool SavedGraph::enter(const void* object, const std::type_info& type, const std::string& path,
                       int number) {
  const auto [it, is_new] = seen.emplace(std::tuple(object, std::type_index(type), number), path);
  if (!is_new) same.emplace(path, it->second);
  return is_new;
}

void SavedGraph::add(const Variable& v, const std::string& path) {
  if (v.state() >= 0 && enter(&v.reader(), typeid(Variable), path, v.state()))
    objects.push_back({path, &v});
}

void SavedGraph::add(const Optimizer& optimizer, const std::string& path) {
  if (enter(&optimizer, typeid(Optimizer), path)) optimizers.push_back({path, &optimizer});
}

void SavedGraph::add(Eager& scope, const std::string& path) {
  if (!enter(&scope, typeid(Eager), path)) return;
  objects.push_back(
      {path, nullptr,
       [&scope] {
         const Eager::RandomState r = scope.random_state();
         const auto signed_of = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
         return Tensor::of<std::int64_t>(
             {signed_of(r.seed), signed_of(r.step), signed_of(r.draws)});
       },
       [&scope, path](const Tensor& t, bool is_only_checked) {
         require_fit(path, t, DType::i64, Shape{3});
         if (is_only_checked) return;
         const auto* n = t.data<std::int64_t>();
         scope.set_random_state({static_cast<std::uint64_t>(n[0]), static_cast<std::uint64_t>(n[1]),
                                 static_cast<std::uint64_t>(n[2])});
       }});
}

void SavedGraph::add(Tensor& value, const std::string& path) {
  if (!enter(&value, typeid(Tensor), path) || !value.has_value()) return;
  objects.push_back({path, nullptr, [&value] { return value; },
                     [&value, path](const Tensor& t, bool is_only_checked) {
                       require_fit(path, t, value.dtype(), value.shape());
                       if (!is_only_checked) value = t;
                     }});
}

void SavedGraph::add(Expr& value, const std::string& path) {
  if (!enter(&value, typeid(Expr), path) || value.is_empty()) return;
  if (value.spec().is_list())
    throw Error(
        Code::unimplemented,
        fmt::format("object '{}' is a list, whose elements a checkpoint does not save; stack "
                    "them, or save a vector of them",
                    path));
  auto* scope = dynamic_cast<Eager*>(&value.reader());
  if (!scope)
    throw Error(Code::invalid_argument,
                fmt::format("object '{}' is an expression of a graph, which has no value to save; "
                            "save variables, or values of an eager scope",
                            path));
  objects.push_back({path, nullptr, [&value, scope] { return scope->on_host(value); },
                     [&value, scope, path](const Tensor& t, bool is_only_checked) {
                       require_fit(path, t, value.dtype(), value.shape());
                       if (!is_only_checked) value = scope->hold(Value(t));
                     }});
}

void SavedGraph::add(std::string& value, const std::string& path) {
  if (!enter(&value, typeid(std::string), path)) return;
  objects.push_back({path, nullptr,
                     [&value] {
                       return Tensor::of<std::uint8_t>(
                           std::vector<std::uint8_t>(value.begin(), value.end()),
                           Shape{static_cast<std::int64_t>(value.size())});
                     },
                     [&value, path](const Tensor& t, bool is_only_checked) {
                       require_fit(path, t, DType::u8, Shape{t.elements()});
                       if (is_only_checked) return;
                       const auto* bytes = t.data<std::uint8_t>();
                       value.assign(bytes, bytes + t.elements());
                     }});
}

void SavedGraph::add_number(void* value, DType dtype, const std::string& path) {
  if (!enter(value, typeid(DType), path)) return;
  objects.push_back({path, nullptr,
                     [value, dtype] {
                       Tensor t = Tensor::empty(dtype, Shape{1});
                       std::memcpy(t.raw_mutable(), value, t.bytes());
                       return t.reshaped(Shape{});
                     },
                     [value, dtype, path](const Tensor& t, bool is_only_checked) {
                       require_fit(path, t, dtype, Shape{});
                       if (!is_only_checked) std::memcpy(value, t.raw(), t.bytes());
                     }});
}

std::string key_text(float key) { return fmt::format("{}", key); }
std::string key_text(double key) { return fmt::format("{}", key); }
std::string key_text(long double key) { return fmt::format("{}", key); }

}  // namespace detail

void ObjectEdges::name_former(const std::string& edge, const std::string& former) {
  const std::string path = path_.empty() ? edge : path_ + "/" + edge;
  const auto [first, is_new] = formers_.emplace(former, path);
  if (is_new) graph_.former.emplace(path, former);
  else graph_.former.erase(first->second);
}

std::string ObjectEdges::next(const std::string& edge) {
  const std::string where = path_.empty() ? "the root" : "'" + path_ + "'";
  if (edge.empty() || edge.find('/') != std::string::npos)
    throw Error(
        Code::invalid_argument,
        fmt::format("an edge of {} is named '{}'; a name has at least one character, and no "
                    "'/'",
                    where, edge));
  if (!used_.insert(edge).second)
    throw Error(
        Code::invalid_argument,
        fmt::format("two edges of {} are named '{}'; give one of them another name", where, edge));
  return path_.empty() ? edge : path_ + "/" + edge;
}

// ---- saving

SavedGraph ObjectCheckpoint::look() const {
  SavedGraph graph;
  ObjectEdges root(graph, {});
  for (const auto& add : roots_) add(root);
  for (const SavedObject& o : graph.objects)
    if (o.variable && &o.variable->reader() != &scope_)
      throw Error(Code::invalid_argument,
                  fmt::format("variable '{}' at '{}' is not of the checkpoint's scope",
                              o.variable->name(), o.path));
  return graph;
}

void ObjectCheckpoint::save(const std::string& path) const {
  const TensorFile file = values();
  save_safetensors(path, file.tensors, file.metadata);
}

TensorFile ObjectCheckpoint::values() const {
  const SavedGraph graph = look();
  TensorFile file;
  NamedTensors& tensors = file.tensors;
  for (const SavedObject& o : graph.objects)
    tensors.emplace_back(o.path, o.variable ? value_of(scope_, *o.variable) : o.get());
  for (const SavedOptimizer& s : graph.optimizers)
    for (const SavedObject& o : graph.objects) {
      if (!o.variable) continue;
      for (const auto& [name, slot] : slots_of(scope_, *s.optimizer, *o.variable))
        tensors.emplace_back(s.path + kSlots + o.path + "/" + name, value_of(scope_, slot));
    }
  for (const auto& [other, first] : graph.same) file.metadata.emplace(kSame + other, first);
  return file;
}

// ---- restoring

Restoration ObjectCheckpoint::restore(const std::string& path) const {
  return restore(load_safetensors(path));
}

Restoration ObjectCheckpoint::restore(const TensorFile& file) const {
  Restoration r;
  r.look_ = [checkpoint = *this] { return checkpoint.look(); };
  r.scope_ = &scope_;
  r.values_.insert(file.tensors.begin(), file.tensors.end());
  for (const auto& [key, value] : file.metadata)
    if (key.starts_with(kSame)) r.same_.emplace(key.substr(std::string(kSame).size()), value);
  r.update();
  return r;
}

// True if the path leads to something in the file.
bool Restoration::holds(const std::string& path) const {
  const std::string below = path + "/";
  const auto leads = [&](const auto& entries) {
    const auto it = entries.lower_bound(below);
    return entries.contains(path) || (it != entries.end() && it->first.starts_with(below));
  };
  return leads(values_) || leads(same_);
}

// Follows the edges of a path in the file, where several may lead to one object.
std::string Restoration::in_file(const SavedGraph& graph, const std::string& path) const {
  std::string at;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string before = at.empty() ? "" : at + "/";
    at = before + path.substr(begin, end - begin);
    const auto former = graph.former.find(path.substr(0, end));
    if (former != graph.former.end() && !holds(at)) at = before + former->second;
    if (const auto it = same_.find(at); it != same_.end()) at = it->second;
    begin = end + 1;
  }
  return at;
}

void Restoration::take_slots(const SavedGraph& graph, bool is_only_checked) {
  for (const SavedOptimizer& s : graph.optimizers)
    for (const SavedObject& o : graph.objects) {
      if (!o.variable) continue;
      const std::string prefix = in_file(graph, s.path) + kSlots + in_file(graph, o.path) + "/";
      if (is_only_checked)
        for (const auto& [name, slot] : slots_of(*scope_, *s.optimizer, *o.variable))
          if (!values_.contains(prefix + name))
            missing_.push_back(s.path + kSlots + o.path + "/" + name);
      auto entry = values_.lower_bound(prefix);
      if (entry == values_.end() || !entry->first.starts_with(prefix)) continue;
      if (slots_of(*scope_, *s.optimizer, *o.variable).empty()) {
        // a step that is not taken makes the slots
        const Tracing::Suspended untraced;
        const Eager::Looking dry(*scope_);
        s.optimizer->apply({scope_->zeros(o.variable->dtype(), o.variable->shape())},
                           {*o.variable});
      }
      const std::map<std::string, Variable> slots = slots_of(*scope_, *s.optimizer, *o.variable);
      for (; entry != values_.end() && entry->first.starts_with(prefix); ++entry) {
        const auto slot = slots.find(entry->first.substr(prefix.size()));
        if (slot == slots.end()) continue;
        // no path begins with '/'; objects that shared one entry have slots of their own
        const std::string restored = kSlots + slot->second.name();
        if (restored_.contains(restored)) continue;
        require_fit(entry->first, entry->second, slot->second.dtype(), slot->second.shape());
        if (is_only_checked) continue;
        assign(*scope_, slot->second, entry->second);
        restored_.insert(restored);
        used_.insert(entry->first);
      }
    }
}

void Restoration::update() {
  const SavedGraph graph = look_();
  missing_.clear();
  for (const bool is_only_checked : {true, false}) {
    for (const SavedObject& o : graph.objects) {
      const std::string name = in_file(graph, o.path);
      const auto value = values_.find(name);
      if (value == values_.end()) {
        if (is_only_checked) missing_.push_back(o.path);
        continue;
      }
      if (restored_.contains(o.path)) continue;
      if (o.variable) require_fit(o.path, value->second, o.variable->dtype(), o.variable->shape());
      else o.set(value->second, is_only_checked);
      if (is_only_checked) continue;
      if (o.variable) assign(*scope_, *o.variable, value->second);
      restored_.insert(o.path);
      used_.insert(name);
    }
    take_slots(graph, is_only_checked);
  }
}

std::vector<std::string> Restoration::left_over() const {
  std::vector<std::string> out;
  for (const auto& [name, value] : values_)
    if (!used_.contains(name)) out.push_back(name);
  return out;
}

std::string Restoration::text() const {
  std::vector<std::string> parts;
  const std::vector<std::string> rest = left_over();
  if (!missing_.empty()) parts.push_back(fmt::format("missing: {}", fmt::join(missing_, ", ")));
  if (!rest.empty()) parts.push_back(fmt::format("left over: {}", fmt::join(rest, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace troupe
