// troupe run: runs a function that a program has saved (cluster/protocol/saved_function.hpp).
//
//   troupe run step.safetensors 0.5,1.5 inputs.safetensors:y --out results.safetensors
//
// An argument is numbers, separated by commas, or a tensor of a safetensors file. Results go to
// standard output, one on a line, or to a file under the names 0, 1, ...
#include <troupe/apps/verbs/verbs.hpp>

#include <charconv>
#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/protocol/saved_function.hpp>
#include <troupe/devices/base/representable.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/format/safetensors.hpp>

namespace troupe::verbs {
namespace {

constexpr const char* kFileEnding = ".safetensors";

std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> out;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    std::size_t used = 0;
    double value = 0;
    try {
      value = std::stod(part, &used);
    } catch (const std::exception&) { used = 0; }
    if (used == 0 || used != part.size())
      throw Misuse(
          fmt::format("'{}' is no number; give numbers separated by commas, or "
                      "FILE{}:NAME",
                      part, kFileEnding));
    out.push_back(value);
    begin = end + 1;
  }
  return out;
}

// The numbers, if all are whole ones of type T.
template <class T>
std::optional<std::vector<T>> whole_numbers_in(const std::string& text) {
  std::vector<T> out;
  for (const char *at = text.data(), *end = at + text.size();; ++at) {
    const auto [stop, error] = std::from_chars(at, end, out.emplace_back());
    if (error != std::errc() || (stop != end && *stop != ',')) return {};
    if (stop == end) return out;
    at = stop;
  }
}

std::string element_of(const Tensor& t, std::int64_t i) {
  if (t.dtype() == DType::string)
    return fmt::format("\"{}\"", printable(std::string(t.data<StringRef>()[i].view())));
  if (t.dtype() == DType::boolean) return fmt::format("{}", t.at(i));
  return visit_dtype(t.dtype(), [&]<class T>(detail::type_tag<T>) {
    const T v = t.data<T>()[i];
    if constexpr (requires { v.imag(); }) return fmt::format("{}{:+}i", v.real(), v.imag());
    else if constexpr (std::is_integral_v<T> || std::is_same_v<T, float>)
      return fmt::format("{}", +v);
    else return fmt::format("{}", t.at(i));
  });
}

// The shape of so many numbers for an argument; a single unknown extent follows from their count.
Shape shape_for(const ValueSpec& spec, std::size_t count, std::size_t place) {
  const auto misfit = [&] {
    return Misuse(
        fmt::format("argument {} is {}, and {} numbers are given; give as many as it has "
                    "elements, or a tensor of a file",
                    place, spec.text(), count));
  };
  if (!spec.shape.has_rank()) return Shape{static_cast<std::int64_t>(count)};
  std::int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < spec.shape.rank(); ++i) {
    if (spec.shape[i] >= 0) known *= spec.shape[i];
    else if (unknown >= 0) throw misfit();
    else unknown = i;
  }
  Shape shape = spec.shape;
  if (unknown >= 0) {
    if (known == 0 || static_cast<std::int64_t>(count) % known != 0) throw misfit();
    shape.set(unknown, static_cast<std::int64_t>(count) / known);
  } else if (known != static_cast<std::int64_t>(count)) {
    throw misfit();
  }
  return shape;
}

Tensor argument(const std::string& text, const ValueSpec& spec, std::size_t place, Eager& scope) {
  const std::size_t ending = text.find(kFileEnding);
  if (ending == std::string::npos) {
    const std::vector<double> numbers = numbers_in(text);
    const Shape shape = shape_for(spec, numbers.size(), place);
    // a double has fewer digits than these
    if (spec.dtype == DType::i64)
      if (const auto whole = whole_numbers_in<std::int64_t>(text))
        return Tensor::of<std::int64_t>(*whole, shape);
    if (spec.dtype == DType::u64)
      if (const auto whole = whole_numbers_in<std::uint64_t>(text))
        return Tensor::of<std::uint64_t>(*whole, shape);
    for (const double number : numbers)
      if (!is_representable(spec.dtype, number))
        throw Misuse(
            fmt::format("argument {} is {}, which has no value {}", place, spec.text(), number));
    return cast(scope.constant(Tensor::of<double>(numbers, shape)), spec.dtype).value();
  }
  const std::size_t end = ending + std::string(kFileEnding).size();
  const TensorFile file = load_safetensors(text.substr(0, end));
  if (end < text.size()) return file.at(text.substr(end + 1));
  if (file.tensors.size() != 1)
    throw Misuse(
        fmt::format("'{}' holds {} tensors; name one: {}:NAME", text, file.tensors.size(), text));
  return file.tensors[0].second;
}

}  // namespace

int run_function(const RunFlags& flags) {
  try {
    Engine engine({.workers = flags.workers});
    const SavedFunction function(engine, flags.file);
    if (flags.describe) {
      std::fputs((printable(function.text()) + "\n").c_str(), stdout);
      for (const std::string& v : function.variables())
        std::fputs(fmt::format("variable {}\n", printable(v)).c_str(), stdout);
      return 0;
    }
    const std::vector<ValueSpec>& specs = function.arguments();
    if (flags.arguments.size() != specs.size())
      throw Misuse(
          fmt::format("{} takes {} arguments, and {} are given; 'troupe run {} --describe' "
                      "lists them",
                      function.text(), specs.size(), flags.arguments.size(), flags.file));
    std::vector<Tensor> arguments;
    {
      Eager scope;
      for (std::size_t i = 0; i < specs.size(); ++i)
        arguments.push_back(argument(flags.arguments[i], specs[i], i, scope));
    }
    const std::vector<Tensor> results = function(std::move(arguments));
    if (!flags.out.empty()) {
      NamedTensors named;
      for (std::size_t i = 0; i < results.size(); ++i)
        named.emplace_back(std::to_string(i), results[i]);
      save_safetensors(flags.out, named);
      return 0;
    }
    for (const Tensor& t : results) {
      std::string line = ValueSpec{t.dtype(), t.shape()}.text();
      for (std::int64_t i = 0; i < t.elements(); ++i) line += " " + element_of(t, i);
      std::fputs((line + "\n").c_str(), stdout);
    }
    return 0;
  } catch (const Error& error) {
    if (error.code() == Code::invalid_argument) throw Misuse(printable(error.what()));
    throw std::runtime_error(printable(error.what()));
  }
}

}  // namespace troupe::verbs
