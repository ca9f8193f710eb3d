#include <troupe/devices/cpu/packed_matmul.hpp>

#include <algorithm>

#include <dnnl.hpp>
#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/cpu/scratch.hpp>
#include <troupe/devices/cpu/library_call.hpp>

namespace troupe::cpu {
namespace {

// Multiply-adds worth a piece of their own: ~15 µs, several times the cost of handing it to a worker.
constexpr std::int64_t kPieceWork = 2 << 20;
constexpr std::int64_t kMostPieces = 8, kNarrowest = 64;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  static thread_local dnnl::stream of_thread(engine());
  return of_thread;
}

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, std::int64_t row_step, std::int64_t column_step) {
  return {{rows, columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{row_step, column_step}};
}

template <class F>
void checked(const GemmCall& g, F f) {
  try {
    f();
  } catch (const dnnl::error& e) {
    throw Error(Code::internal, fmt::format("oneDNN, a packed product {}x{}x{}: {}", g.m, g.k, g.n, e.what()));
  }
}

void* not_const(const void* p) { return const_cast<void*>(p); }  // a dnnl::memory that is only read

}  // namespace

// Columns [begin, begin + n) of the result.
struct PackedProduct::Piece {
  std::int64_t begin;
  dnnl::memory::desc a, b, c, scratch;
  dnnl::matmul product;
  Ref<Buffer> packed;

  Piece(const GemmCall& g, std::int64_t first, std::int64_t n) : begin(first), a(matrix(g.m, g.k, g.a_rs, g.a_cs)), c(matrix(g.m, n, g.c_rs, 1)) {
    LibraryCall call;
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // the library's own is shared between threads
    const dnnl::memory::desc any({g.k, n}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a, any, c), attr, engine());
    b = chosen.weights_desc();
    scratch = chosen.scratchpad_desc();
    product = dnnl::matmul(chosen);
    packed = Buffer::allocate(host_allocator(), b.get_size());
    dnnl::memory from(matrix(g.k, n, g.b_rs, g.b_cs), engine(), not_const(static_cast<const float*>(g.b) + begin * g.b_cs));
    dnnl::memory to(b, engine(), packed->data());
    dnnl::reorder(from, to).execute(stream(), from, to);
  }

  void multiply(const GemmCall& g) const {
    LibraryCall call;
    product.execute(stream(), {{DNNL_ARG_SRC, dnnl::memory(a, engine(), not_const(g.a))},
                               {DNNL_ARG_WEIGHTS, dnnl::memory(b, engine(), packed->data())},
                               {DNNL_ARG_DST, dnnl::memory(c, engine(), static_cast<float*>(g.c) + begin)},
                               {DNNL_ARG_SCRATCHPAD, dnnl::memory(scratch, engine(), thread_scratch(scratch.get_size()))}});
  }
};

PackedProduct::PackedProduct(const Key& key, const GemmCall& g, WorkerPool* pool) : key_(key) {
  const std::int64_t wanted = std::clamp<std::int64_t>(g.m * g.n * g.k / kPieceWork, 1, std::min(kMostPieces, std::max<std::int64_t>(1, g.n / kNarrowest)));
  const std::int64_t width = ((g.n + wanted - 1) / wanted + kNarrowest - 1) / kNarrowest * kNarrowest;
  pieces_.resize(static_cast<std::size_t>((g.n + width - 1) / width));
  for_blocks(pool, static_cast<std::int64_t>(pieces_.size()), [&](int i) {
    pieces_[static_cast<std::size_t>(i)] = std::make_unique<Piece>(g, i * width, std::min(width, g.n - i * width));
  });
}

PackedProduct::~PackedProduct() = default;

void PackedProduct::multiply(WorkerPool* pool, const GemmCall& g) const {
  for_blocks(pool, static_cast<std::int64_t>(pieces_.size()), [&](int i) { pieces_[static_cast<std::size_t>(i)]->multiply(g); });
}

void PackedProduct::run(WorkerPool* pool, const GemmCall& g, std::uint64_t content, RepackedSlot& slot) {
  const Key key{content, g.b, g.m, g.n, g.k, g.a_rs, g.a_cs, g.b_rs, g.b_cs};
  checked(g, [&] {
    std::shared_ptr<const Repacked> kept = slot.get();
    if (!kept || !(static_cast<const PackedProduct&>(*kept).key_ == key)) {
      kept = std::shared_ptr<const PackedProduct>(new PackedProduct(key, g, pool));
      slot.set(kept);
    }
    static_cast<const PackedProduct&>(*kept).multiply(pool, g);
  });
}

}  // namespace troupe::cpu
