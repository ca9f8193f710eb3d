// troupe ops [NAME] [--device DEVICE]: the registered operations and the functions that are made of
// them, or all about one, or the primitives that a device has and lacks.
#include <troupe/apps/verbs/verbs.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/registry.hpp>
#include <troupe/function_text.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/suggest_name.hpp>

namespace troupe::verbs {

namespace {

/// The alternatives of AttrValue, in their order.
constexpr std::array<std::string_view, std::variant_size_v<AttrValue>> kAttrTypes = {
    "bool", "i64", "f64", "string", "dtype", "shape", "list of i64", "tensor", "object"};

std::string input_count(const OpDef& op) {
  if (op.max_inputs < 0) return fmt::format("{} or more", op.min_inputs);
  if (op.max_inputs > op.min_inputs) return fmt::format("{} to {}", op.min_inputs, op.max_inputs);
  return fmt::format("{}", op.min_inputs);
}

std::string effect(const OpDef& op) {
  switch (op.effect) {
    case Effect::none:
      return op.random ? "draws random numbers" : op.side_effect ? "acts on the world" : "none";
    case Effect::read: return "reads state";
    case Effect::write: return "writes state";
    case Effect::enqueue: return "enqueues";
    case Effect::dequeue: return "dequeues";
  }
  return "?";
}

void print_one(const OpDef& op) {
  fmt::print("{}: {}\n", op.name, op.doc);
  fmt::print("  inputs:    {}{}\n", input_count(op), op.commutative ? ", in any order" : "");
  for (const AttrSpec& attr : op.attrs)
    fmt::print("  attribute: {} ({}, {})\n", attr.name, kAttrTypes[attr.type],
               attr.fallback ? "default " + text_of(*attr.fallback) : "required");
  fmt::print("  pointwise: {}\n", op.pointwise ? "yes" : "no");
  fmt::print("  gradient:  {}\n", !op.differentiable ? "none, by definition"
                                  : op.gradient      ? "yes"
                                                     : "none yet");
  fmt::print("  effect:    {}\n", effect(op));
}

/// A function that users call, and its documentation.
struct Function {
  std::string name, doc, declaration;
};

/// The functions of <troupe/functions.hpp>: a declaration a line, behind lines that begin with ///;
/// the first of several with one text has it.
std::vector<Function> all_functions() {
  std::vector<Function> out;
  std::string doc;
  std::string_view text = kFunctionText;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with("///")) {
      doc += (doc.empty() ? "" : " ") +
             std::string(line.substr(std::min<std::size_t>(4, line.size())));
    } else if (const std::size_t bracket = line.find('('); bracket != std::string_view::npos) {
      const std::size_t before = line.rfind(' ', bracket);
      out.push_back(
          {std::string(line.substr(before + 1, bracket - before - 1)), doc, std::string(line)});
      doc.clear();
    }
  }
  std::sort(out.begin(), out.end(),
            [](const Function& a, const Function& b) { return a.name < b.name; });
  return out;
}

/// `layer_norm` is LayerNorm: the function of an op adds nothing to the op's documentation.
bool is_of_an_op(const Function& f) {
  std::string op;
  bool is_first = true;
  for (char c : f.name) {
    if (c != '_') op += is_first && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    is_first = c == '_';
  }
  const auto ops = all_ops();
  return std::any_of(ops.begin(), ops.end(), [&](const OpDef* def) { return def->name == op; });
}

/// Says whether there is one of that name.
bool print_function(const std::string& name) {
  bool found = false;
  for (const Function& f : all_functions()) {
    if (f.name != name) continue;
    fmt::print("{}: {}\n  {}\n", f.name, f.doc, f.declaration);
    found = true;
  }
  return found;
}

void print_all() {
  const auto ops = all_ops();
  std::size_t name = 0;
  for (const OpDef* op : ops) name = std::max(name, op->name.size());
  for (const OpDef* op : ops) {
    fmt::print("{:<{}}  {}", op->name, name, op->doc);
    if (op->max_inputs != 0) fmt::print(" Inputs: {}.", input_count(*op));
    for (std::size_t i = 0; i < op->attrs.size(); ++i)
      fmt::print("{}{}", i ? ", " : " Attributes: ", op->attrs[i].name);
    fmt::print("{}\n", op->attrs.empty() ? "" : ".");
  }
  std::vector<Function> functions = all_functions();
  std::erase_if(functions, is_of_an_op);
  for (const Function& f : functions) name = std::max(name, f.name.size());
  fmt::print("\nFunctions that are made of these, or call one of another name:\n");
  for (const Function& f : functions) fmt::print("{:<{}}  {}\n", f.name, name, f.doc);
  fmt::print("\n{} operations and {} functions; 'troupe ops NAME' describes one.\n", ops.size(),
             functions.size());
}

// ---- what a device has

std::vector<Primitive> all_primitives() {
  std::vector<Primitive> all;
  for (int p = 0; p <= static_cast<int>(Primitive::recurrent_gradient); ++p)
    all.push_back(static_cast<Primitive>(p));
  return all;
}

/// The dtypes on which a device runs a primitive.
std::vector<DType> dtypes_of(const Primitives& primitives, Primitive p) {
  std::vector<DType> all;
  for (int i = 0; i < kDTypes; ++i)
    if (const auto type = static_cast<DType>(i); primitives.has(p, type)) all.push_back(type);
  return all;
}

std::string text_of_dtypes(const std::vector<DType>& types) {
  if (types.empty()) return "none: the host runs it";
  std::string text;
  for (const DType type : types) text += (text.empty() ? "" : " ") + std::string(name_of(type));
  return types.size() == kDTypes ? "all dtypes" : text;
}

/// The primitives of an op that a device lacks for all dtypes: then the host runs the op.
std::string lacking(const Primitives& primitives, const OpDef& op) {
  std::string names;
  for (const Primitive p : op.primitives)
    if (dtypes_of(primitives, p).empty())
      names += (names.empty() ? "" : ", ") + std::string(name_of(p));
  return names;
}

/// Throws Misuse with the reason if the device does not exist.
std::unique_ptr<Device> device_of(std::string name) {
  if (name.find(':') == std::string::npos) name += ":0";
  try {
    return make_device(name, {});
  } catch (const Error& e) { throw Misuse(e.what()); }
}

void print_device(const Device& device) {
  const Primitives& primitives = device.primitives();
  fmt::print("Primitives of {}, by dtype:\n", device.name());
  for (const Primitive p : all_primitives())
    fmt::print("  {:<24}{}\n", name_of(p), text_of_dtypes(dtypes_of(primitives, p)));
  std::size_t fallbacks = 0;
  const auto ops = all_ops();
  for (const OpDef* op : ops) {
    const std::string names = lacking(primitives, *op);
    if (names.empty()) continue;
    if (fallbacks++ == 0) fmt::print("\nOperations that the host runs in its place:\n");
    fmt::print("  {:<24}{}\n", op->name, names);
  }
  fmt::print("\n{} runs {} of {} operations; the host runs {}.\n", device.name(),
             ops.size() - fallbacks, ops.size(), fallbacks);
}

void print_on_device(const OpDef& op, const Device& device) {
  const std::string names = lacking(device.primitives(), op);
  fmt::print("  on {}:  {}\n", device.name(),
             names.empty() ? "yes" : fmt::format("no, on the host: it lacks {}", names));
  for (const Primitive p : op.primitives)
    fmt::print("    {}: {}\n", name_of(p), text_of_dtypes(dtypes_of(device.primitives(), p)));
}

}  // namespace

int ops(const std::string& name, const std::string& device_name) {
  const std::unique_ptr<Device> device = device_name.empty() ? nullptr : device_of(device_name);
  if (name.empty()) {
    if (device) print_device(*device);
    else print_all();
    return 0;
  }
  const auto ops = all_ops();
  if (const auto op =
          std::find_if(ops.begin(), ops.end(), [&](const OpDef* def) { return def->name == name; });
      op != ops.end()) {
    print_one(**op);
    if (device) print_on_device(**op, *device);
    return 0;
  }
  if (print_function(name)) return 0;
  const std::vector<Function> functions = all_functions();
  std::vector<std::string_view> names;
  for (const OpDef* op : ops) names.push_back(op->name);
  for (const Function& f : functions) names.push_back(f.name);
  throw Misuse(fmt::format("there is no op '{}'{} ('troupe ops' lists them all)", name,
                           did_you_mean(name, names)));
}

}  // namespace troupe::verbs
