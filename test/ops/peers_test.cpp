// Not under asan and tsan: op_table_test runs the same kernels.
// The table of operations against torch and numpy, where `scripts/setup --peers` installed them:
// all cases go out in one file, scripts/peers/op_table.py computes them again and says what
// differs.
#include <boost/test/unit_test.hpp>

#include <sys/wait.h>

#include <algorithm>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <troupe/autodiff/check.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/test/ops/bits.hpp>
#include <troupe/test/ops/tables/all_rows.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/source_dir.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(peers_test, TROUPE_ONE_THREAD)

namespace {

nlohmann::json as_json(const Attrs& attrs) {
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [name, value] : attrs.entries()) {
    if (const auto* b = std::get_if<bool>(&value)) out[name] = *b;
    if (const auto* i = std::get_if<std::int64_t>(&value)) out[name] = *i;
    if (const auto* d = std::get_if<double>(&value)) out[name] = *d;
    if (const auto* s = std::get_if<std::string>(&value)) out[name] = *s;
    if (const auto* v = std::get_if<std::vector<std::int64_t>>(&value)) out[name] = *v;
    if (const auto* s = std::get_if<Shape>(&value))
      out[name] = std::vector<std::int64_t>(s->begin(), s->end());
    if (const auto* t = std::get_if<DType>(&value)) out[name] = std::string(name_of(*t));
  }
  return out;
}

bool is_of_numbers(const Case& c) {
  return std::all_of(c.inputs.begin(), c.inputs.end(),
                     [](const Sample& s) { return s.role == Role::value; });
}

/// A case's numbers as real parts, half of them in reverse order as imaginary ones.
std::vector<Tensor> complex_tensors_of(const Case& c) {
  std::vector<Tensor> out;
  for (const Sample& s : c.inputs) {
    std::vector<std::complex<double>> z;
    for (std::size_t i = 0; i < s.array.v.size(); ++i)
      z.emplace_back(s.array.v[i], 0.5 * s.array.v[s.array.v.size() - 1 - i]);
    out.push_back(Tensor::of(z, s.array.shape));
  }
  return out;
}

Tensor part_of(const Tensor& t, bool imaginary) {
  std::vector<double> part;
  for (const std::complex<double>& z : t.to_vector<std::complex<double>>())
    part.push_back(imaginary ? z.imag() : z.real());
  return Tensor::of(part, t.shape());
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_are_those_of_torch_and_numpy) {
  const std::string python = std::string(kSourceDir) + "/.peers/bin/python",
                    script = std::string(kSourceDir) + "/scripts/peers/op_table.py";
  if (!std::filesystem::exists(python)) {
    fmt::print(
        "op table against torch and numpy: skipped, there is no {} (scripts/setup --peers)\n",
        python);
    return;
  }
  NamedTensors tensors;
  std::map<std::string, std::string> cases;
  for (const Row& row : all_rows())
    for (const Case& c : row.cases)
      for (DType dtype : row.dtypes) {
        if (is_complex(dtype) && (dtype == DType::c64 || !is_of_numbers(c))) continue;
        const std::string name = std::to_string(cases.size());
        std::vector<Tensor> inputs =
            is_complex(dtype) ? complex_tensors_of(c) : tensors_of(c, dtype);
        Graph g;
        Exprs xs;
        Feeds feeds;
        for (const Tensor& t : inputs) {
          xs.push_back(g.input("x" + std::to_string(xs.size()), t.dtype(), t.shape()));
          feeds.emplace_back(xs.back(), t);
        }
        std::vector<Tensor> outputs =
            evaluate_eagerly(g, feeds, g.bind(find_op(row.op), xs, c.attrs, Site()));
        auto add = [&](char kind, const std::vector<Tensor>& all) {
          for (std::size_t i = 0; i < all.size(); ++i) {
            const std::string tensor = fmt::format("{}/{}{}", name, kind, i);
            if (!is_complex(all[i].dtype())) tensors.emplace_back(tensor, all[i]);
            else
              for (bool imaginary : {false, true})
                tensors.emplace_back(tensor + (imaginary ? ".imaginary" : ""),
                                     part_of(all[i], imaginary));
          }
        };
        add('x', inputs);
        add('y', outputs);
        const DType made = outputs.empty() ? dtype : outputs[0].dtype();
        cases[name] =
            nlohmann::json{
                {"op", row.op},
                {"dtype", std::string(name_of(dtype))},
                {"attributes", as_json(c.attrs)},
                {"inputs", inputs.size()},
                {"outputs", outputs.size()},
                {"bits", is_integer(made) ? 8 * size_of(made) : 0},
                {"tolerance", row.slack * tolerance_of(is_complex(dtype) ? DType::f64 : dtype)}}
                .dump();
      }
  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     fmt::format("troupe_op_table_{}.safetensors", ::getpid());
  save_safetensors(file.string(), tensors, cases);
  std::FILE* said =
      ::popen(fmt::format("'{}' '{}' '{}' 2>&1", python, script, file.string()).c_str(), "r");
  BOOST_REQUIRE(said != nullptr);
  std::string text;
  for (char buffer[4096]; std::size_t n = std::fread(buffer, 1, sizeof buffer, said);)
    text.append(buffer, n);
  const int status = ::pclose(said);
  std::filesystem::remove(file);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    fmt::print("op table against torch and numpy: skipped: {}", text);
    return;
  }
  fmt::print("op table: {}", text);
  BOOST_TEST((WIFEXITED(status) && WEXITSTATUS(status) == 0), text);
  BOOST_TEST(text.find("compared ") != std::string::npos, text);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
