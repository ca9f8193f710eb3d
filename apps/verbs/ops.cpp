// troupe ops [NAME]: the registered operations, or all about one.
#include <troupe/apps/verbs/verbs.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <troupe/devices/error.hpp>
#include <troupe/ops/op.hpp>

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
    case Effect::none: return op.random ? "draws random numbers" : op.side_effect ? "acts on the world" : "none";
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
  fmt::print("  gradient:  {}\n", !op.differentiable ? "none, by definition" : op.gradient ? "yes" : "none yet");
  fmt::print("  effect:    {}\n", effect(op));
}

void print_all() {
  const auto ops = all_ops();
  std::size_t name = 0;
  for (const OpDef* op : ops) name = std::max(name, op->name.size());
  for (const OpDef* op : ops) {
    fmt::print("{:<{}}  {}", op->name, name, op->doc);
    if (op->max_inputs != 0) fmt::print(" Inputs: {}.", input_count(*op));
    for (std::size_t i = 0; i < op->attrs.size(); ++i) fmt::print("{}{}", i ? ", " : " Attributes: ", op->attrs[i].name);
    fmt::print("{}\n", op->attrs.empty() ? "" : ".");
  }
  fmt::print("\n{} operations; 'troupe ops NAME' tells all about one.\n", ops.size());
}

}  // namespace

int ops(const std::string& name) {
  if (name.empty()) {
    print_all();
    return 0;
  }
  try {
    print_one(find_op(name));
    return 0;
  } catch (const Error& error) {
    throw Misuse(fmt::format("{} ('troupe ops' lists them all)", error.what()));
  }
}

}  // namespace troupe::verbs
