// Checkpoints of objects: variables, optimizers, lists, random generators and a user's state as a
// graph whose edges have names. A file is matched by edges, so that names of variables may differ.
//
//   struct Layer {
//     Variable w, b;
//     void objects(ObjectEdges& to) { to.add("w", w).add("b", b); }
//   };
//   ObjectCheckpoint checkpoint(scope);
//   checkpoint.add("layers", layers).add("optimizer", adam).add("random", scope);
//   checkpoint.save("run.safetensors");
//   Restoration r = checkpoint.restore("run.safetensors");
//   if (!r.is_complete()) std::puts(r.text().c_str());
//
// The file is a safetensors file (ops/format/safetensors.hpp) with an entry for each object that
// holds a value, named after the edges that lead to it: `layers/0/w`. An object that several paths
// lead to is saved once; the others are metadata `troupe.same:PATH`. An optimizer's slots are saved
// beside it, by the path of their variable: `optimizer/slots/layers/0/w/m`.
// Objects that come to be after `restore` get their values when the program calls
// `Restoration::update`; slots are made at once. `values` and `restore` take the entries without a
// file: LocalCheckpoints (cluster/checkpoint) has them with a manifest and checksums.
// **Threads**: one at a time; let no run change variables meanwhile. **Ownership**: the checkpoint
// refers to the objects that it was given, which must outlive it; it looks at them anew each time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/format/safetensors.hpp>

namespace troupe {

class ObjectEdges;

namespace detail {

/// An object that holds one value. `set` throws invalid_argument, without a change, if it cannot.
struct SavedObject {
  std::string path;
  const Variable* variable = nullptr;  // null: a value of the host
  std::function<Tensor()> get = {};
  std::function<void(const Tensor&, bool is_only_checked)> set = {};
};
struct SavedOptimizer {
  std::string path;
  const Optimizer* optimizer;
};

/// All objects that a root leads to, each once, and the other paths to them.
struct SavedGraph {
  std::vector<SavedObject> objects;
  std::vector<SavedOptimizer> optimizers;
  std::map<std::string, std::string> same;  // path to the path of the object's first one
  // path to its last edge as files of earlier versions name it: a key that is no integer
  std::map<std::string, std::string> former;
  // the path of each object, by address and type (a struct begins where its first member does); of
  // a variable, by scope and number
  std::map<std::tuple<const void*, std::type_index, int>, std::string> seen;

  /// True if the object is new; else notes that `path` leads to it too.
  bool enter(const void* object, const std::type_info& type, const std::string& path,
             int number = 0);
  void add(const Variable& v, const std::string& path);
  void add(Eager& scope, const std::string& path);
  void add(const Optimizer& optimizer, const std::string& path);
  void add(Tensor& value, const std::string& path);
  /// An eager tensor; an empty one is not there yet.
  void add(Expr& value, const std::string& path);
  void add(std::string& value, const std::string& path);
  void add_number(void* value, DType dtype, const std::string& path);
};

/// True for a T that `std::begin` goes over and whose elements are objects.
template <class T>
concept ListOfObjects = requires(T& list) {
  list.begin();
  list.end();
  list.size();
}
&&!std::is_convertible_v<T, std::string> && !std::is_same_v<T, Tensor>;

template <class T>
concept MapOfObjects = ListOfObjects<T> && requires {
  typename T::key_type;
  typename T::mapped_type;
};

/// The shortest digits that read back as the number.
std::string key_text(float key);
std::string key_text(double key);
std::string key_text(long double key);

template <class T>
concept TupleOfObjects = requires {
  std::tuple_size<T>::value;
};

template <class T>
concept PointerToObject = requires(T& p) {
  *p;
  static_cast<bool>(p);
};

}  // namespace detail

/// The named edges of one object.
class ObjectEdges {
 public:
  ObjectEdges(detail::SavedGraph& graph, std::string path)
      : graph_(graph), path_(std::move(path)) {}

  /// An edge to a variable, an optimizer, an eager scope (its random draws), a tensor, eager value,
  /// number or string, a struct with `void objects(ObjectEdges&)`, a vector, array, pair, tuple or
  /// pointer of these, a map from names or numbers, or an optional one; an empty one is not there
  /// yet. Throws invalid_argument for a name that is empty,
  /// has a '/', or was used.
  template <class T>
  ObjectEdges& add(const std::string& edge, T& object) {
    visit(object, next(edge));
    return *this;
  }

 private:
  std::string next(const std::string& edge);
  // Unless two edges have one former name, which no file has then.
  void name_former(const std::string& edge, const std::string& former);

  template <class T>
  void visit(T& object, const std::string& path) {
    if constexpr (std::is_same_v<std::remove_const_t<T>, Variable>) {
      graph_.add(object, path);
    } else if constexpr (std::is_base_of_v<Optimizer, T>) {
      graph_.add(static_cast<const Optimizer&>(object), path);
    } else if constexpr (std::is_same_v<T, Eager> || std::is_same_v<T, Tensor> ||
                         std::is_same_v<T, std::string> || std::is_same_v<T, Expr>) {
      graph_.add(object, path);
    } else if constexpr (std::is_arithmetic_v<T> && !std::is_const_v<T>) {
      graph_.add_number(&object, dtype_of<T>, path);
    } else if constexpr (requires(ObjectEdges & to) { object.objects(to); }) {
      if (!graph_.enter(&object, typeid(T), path)) return;
      ObjectEdges inner(graph_, path);
      object.objects(inner);
    } else if constexpr (detail::MapOfObjects<T>) {
      if (!graph_.enter(&object, typeid(T), path)) return;
      ObjectEdges inner(graph_, path);
      for (auto& [key, part] : object) {
        if constexpr (std::is_floating_point_v<typename T::key_type>) {
          inner.name_former(detail::key_text(key), std::to_string(key));
          inner.add(detail::key_text(key), part);
        } else if constexpr (std::is_arithmetic_v<typename T::key_type>) {
          inner.add(std::to_string(key), part);
        } else {
          inner.add(key, part);
        }
      }
    } else if constexpr (detail::TupleOfObjects<T>) {
      if (!graph_.enter(&object, typeid(T), path)) return;
      ObjectEdges inner(graph_, path);
      std::size_t i = 0;
      std::apply([&](auto&... part) { (inner.add(std::to_string(i++), part), ...); }, object);
    } else if constexpr (detail::ListOfObjects<T>) {
      if (!graph_.enter(&object, typeid(T), path)) return;
      ObjectEdges inner(graph_, path);
      std::size_t i = 0;
      for (auto& part : object) inner.add(std::to_string(i++), part);
    } else if constexpr (detail::PointerToObject<T>) {
      if (object) visit(*object, path);
    } else {
      static_assert(detail::kNever<T>,
                    "a checkpoint saves variables, optimizers, eager scopes, tensors, numbers and "
                    "strings, and structs with `void objects(ObjectEdges& to)` that names them");
    }
  }

  detail::SavedGraph& graph_;
  const std::string path_;
  std::set<std::string> used_;
  std::map<std::string, std::string> formers_;  // former names, to the edge's path
};

/// The outcome of `ObjectCheckpoint::restore`, and values that wait for their objects.
class Restoration {
 public:
  /// Paths of objects that the file has no value for; they keep their values.
  const std::vector<std::string>& missing() const { return missing_; }
  /// Paths of values in the file that no object took yet.
  std::vector<std::string> left_over() const;
  bool is_complete() const { return missing_.empty() && left_over().empty(); }
  /// `missing: a/w; left over: b`; empty if complete.
  std::string text() const;
  /// Gives objects that came to be since their values. Throws as `restore` does.
  void update();

 private:
  friend class ObjectCheckpoint;
  std::function<detail::SavedGraph()> look_;
  Eager* scope_ = nullptr;
  std::map<std::string, Tensor> values_;     // in the file
  std::map<std::string, std::string> same_;  // in the file
  std::set<std::string> used_;               // names in the file
  std::set<std::string> restored_;           // paths of objects
  std::vector<std::string> missing_;

  bool holds(const std::string& path) const;
  std::string in_file(const detail::SavedGraph& graph, const std::string& path) const;
  void take_slots(const detail::SavedGraph& graph, bool is_only_checked);
};

class ObjectCheckpoint {
 public:
  /// The variables are those of `scope`, which must outlive the checkpoint.
  explicit ObjectCheckpoint(Eager& scope) : scope_(scope) {}

  /// Adds an edge of the root, as `ObjectEdges::add` does.
  template <class T>
  ObjectCheckpoint& add(const std::string& edge, T& object) {
    roots_.push_back([edge, &object](ObjectEdges& to) { to.add(edge, object); });
    return *this;
  }
  /// Throws the errors of `save_safetensors`.
  void save(const std::string& path) const;
  /// Returns the entries and the metadata of a file.
  TensorFile values() const;
  /// Sets the objects that the file has values for. A value of another dtype or shape throws
  /// invalid_argument, naming the object, and changes nothing. Throws also the errors of
  /// `load_safetensors`.
  Restoration restore(const std::string& path) const;
  /// Restores from values that are read already.
  Restoration restore(const TensorFile& file) const;

 private:
  detail::SavedGraph look() const;

  Eager& scope_;
  std::vector<std::function<void(ObjectEdges&)>> roots_;
};

}  // namespace troupe
