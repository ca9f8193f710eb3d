// Which library for which product: f32 on one thread, GFLOP/s, each library called as it is meant
// to be. Troupe chooses by this table (RESULTS.md); `peer` is the best of the libraries that are
// here.
//
//   libraries          one JSON object a line, `also` every library
//   libraries table    the table of RESULTS.md
#include <dlfcn.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>

#include <fmt/format.h>
#include <Eigen/Core>
#include <dnnl.hpp>

#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/pattern.hpp>

namespace {

using namespace troupe;
constexpr int kRepetitions = 7;

/// OpenBLAS of Debian, if it is installed: of 2022, it takes newer processors for old ones unless
/// set.
class OpenBlas {
 public:
  using Product = void (*)(int, int, int, int, int, int, float, const float*, int, const float*,
                           int, float, float*, int);
  OpenBlas() {
    if (cpu_level() == CpuLevel::v4) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"))(1);
    product = reinterpret_cast<Product>(dlsym(library, "cblas_sgemm"));
    if (const auto configuration =
            reinterpret_cast<const char* (*)()>(dlsym(library, "openblas_get_config"))) {
      const std::string said = configuration();
      const auto at = said.find_first_of("0123456789");
      if (at != std::string::npos) version = said.substr(at, said.find(' ', at) - at);
    }
  }
  Product product = nullptr;
  std::string version;  // version and configuration: `OpenBLAS 0.3.21 ...`
};

std::string version_of(const std::string& library, const OpenBlas& blas) {
  if (library == "openblas") return blas.version;
  if (library == "eigen")
    return fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION);
  return fmt::format("{}.{}.{}", dnnl_version()->major, dnnl_version()->minor,
                     dnnl_version()->patch);
}

struct Case {
  std::int64_t m, k, n;
  bool ta = false, tb = false;
  double budget = 0;  // ratio to the best library's speed
  double work() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  }
};

// oneDNN's matmul with b in an order that it chose, packed before: what it is worth where b comes
// again.
class Packed {
 public:
  Packed(const Case& c, const float* a, const float* b, float* out) {
    using dnnl::memory;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    auto plain = [&](std::int64_t rows, std::int64_t columns, bool transposed) {
      return memory::desc({rows, columns}, memory::data_type::f32,
                          transposed ? memory::dims{1, rows} : memory::dims{columns, 1});
    };
    const memory::desc any({c.k, c.n}, memory::data_type::f32, memory::format_tag::any);
    const dnnl::matmul::primitive_desc chosen(
        dnnl::matmul::desc(plain(c.m, c.k, c.ta), any, plain(c.m, c.n, false)), engine);
    a_ = memory(plain(c.m, c.k, c.ta), engine, const_cast<float*>(a));
    b_ = memory(chosen.weights_desc(), engine);
    out_ = memory(plain(c.m, c.n, false), engine, out);
    stream_ = dnnl::stream(engine);
    memory from(plain(c.k, c.n, c.tb), engine, const_cast<float*>(b));
    dnnl::reorder(from, b_).execute(stream_, from, b_);
    product_ = dnnl::matmul(chosen);
  }
  void run() {
    product_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, out_}});
  }

 private:
  dnnl::memory a_, b_, out_;
  dnnl::stream stream_;
  dnnl::matmul product_;
};

double gflops(const Case& c, const std::function<void()>& run) {
  const double begin = bench::now_ns();
  int count = 0;
  while (bench::now_ns() - begin < 4e6) run(), ++count;
  return c.work() * count / (bench::now_ns() - begin);
}

void measure(const Case& c, const OpenBlas& blas, bool as_table) {
  static const auto device = make_cpu_device({nullptr, "cpu:0"});
  static const auto stream = device->make_stream();
  const Tensor a = bench::pattern(c.ta ? Shape{c.k, c.m} : Shape{c.m, c.k}, 1, 1),
               b = bench::pattern(c.tb ? Shape{c.n, c.k} : Shape{c.k, c.n}, 1, 2);
  Tensor out = Tensor::empty(DType::f32, Shape{c.m, c.n});
  float* to = out.mutable_data<float>();
  const float *x = a.data<float>(), *y = b.data<float>();
  const auto lda = static_cast<int>(c.ta ? c.m : c.k), ldb = static_cast<int>(c.tb ? c.k : c.n);
  const cpu::GemmCall call{
      c.m, c.n, c.k, x, c.ta ? 1 : c.k, c.ta ? c.m : 1, y, c.tb ? 1 : c.n, c.tb ? c.k : 1, to, c.n};
  Packed packed(c, x, y, to);
  RepackedSlot kept;
  struct Library {
    const char* name;
    std::function<void()> run;
    std::vector<double> speeds = {};
  };
  std::vector<Library> libraries{
      {"ours",
       [&] {
         device->primitives().matmul(*stream,
                                     {a, b, View(to, DType::f32, Shape{c.m, c.n}), c.ta, c.tb});
       }},
      {"onednn",
       [&] {
         dnnl_sgemm(c.ta ? 'T' : 'N', c.tb ? 'T' : 'N', c.m, c.n, c.k, 1.f, x, lda, y, ldb, 0.f, to,
                    c.n);
       }},
      {"eigen", [&] { cpu::level_kernels().gemm_f32(call); }},
      {"onednn_packed", [&] { packed.run(); }},
      {"ours_packed",
       [&] {
         device->primitives().matmul(*stream, {a, b, View(to, DType::f32, Shape{c.m, c.n}), c.ta,
                                               c.tb, &kept, b.content()});
       }},
  };
  if (blas.product)
    libraries.push_back({"openblas", [&] {
                           blas.product(101, c.ta ? 112 : 111, c.tb ? 112 : 111,
                                        static_cast<int>(c.m), static_cast<int>(c.n),
                                        static_cast<int>(c.k), 1.f, x, lda, y, ldb, 0.f, to,
                                        static_cast<int>(c.n));
                         }});
  for (int i = 0; i < kRepetitions; ++i)
    for (Library& l : libraries) l.speeds.push_back(gflops(c, l.run));
  const std::string name = std::to_string(c.m) + (c.ta ? "t" : "") + " x " + std::to_string(c.k) +
                           " x " + std::to_string(c.n) + (c.tb ? "t" : "");
  if (as_table) {
    std::string line = "| " + name;
    for (const Library& l : libraries)
      line += " | " + std::to_string(std::lround(bench::median(l.speeds)));
    std::printf("%s |\n", line.c_str());
    std::fflush(stdout);
    return;
  }
  bench::Comparison r{
      .name = "product_" + name, .unit = "ns", .peer = {}, .budget = c.budget, .speed_up = true};
  // A library that packs beforehand does not compete with one that cannot.
  const Library* best = nullptr;
  for (const Library& l : libraries) {
    r.also.push_back({l.name, bench::median(l.speeds)});
    if (std::strcmp(l.name, "ours") != 0 && !std::strstr(l.name, "packed") &&
        (!best || bench::median(l.speeds) > bench::median(best->speeds)))
      best = &l;
  }
  r.peer = best->name;
  r.peer_version = version_of(r.peer, blas);
  for (const double s : libraries[0].speeds) r.ours.push_back(c.work() / s);
  for (const double s : best->speeds) r.theirs.push_back(c.work() / s);
  r.print();
}

}  // namespace

int main(int argc, char** argv) {
  const bool as_table = argc > 1 && std::strcmp(argv[1], "table") == 0;
  // oneDNN loads OpenMP; a program that links with oneDNN alone finds its functions at run time.
  if (void* set = dlsym(RTLD_DEFAULT, "omp_set_num_threads"))
    reinterpret_cast<void (*)(int)>(set)(1);
  const OpenBlas blas;
  if (as_table)
    std::printf(
        "| m x k x n | Troupe | oneDNN sgemm | Eigen | oneDNN, b packed | Troupe, b packed%s "
        "|\n|---|---|---|---|---|---|%s\n",
        blas.product ? " | OpenBLAS" : "", blas.product ? "---|" : "");
  for (const Case& c :
       {Case{8, 8, 8}, Case{16, 16, 16}, Case{32, 32, 32}, Case{64, 64, 64, false, false, 0.95},
        Case{128, 128, 128, false, false, 0.95}, Case{256, 256, 256}, Case{512, 512, 512},
        Case{1024, 1024, 1024}, Case{2048, 2048, 2048}, Case{64, 784, 512},
        Case{784, 64, 512, true}, Case{64, 512, 784, false, true}, Case{512, 256, 1024},
        Case{512, 1024, 256, false, true}, Case{32, 4608, 512}, Case{1, 1024, 1024}})
    measure(c, blas, as_table);
}
