#include <troupe/devices/cpu/products/packed_matmul.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/cpu/products/library_call.hpp>
#include <troupe/devices/cpu/products/library_engine.hpp>
#include <troupe/devices/cpu/scratch.hpp>

namespace troupe::cpu {
namespace {

// Multiply-adds worth a piece of their own: ~15 µs, several times the cost of handing it to a
// worker.
constexpr std::int64_t kPackedPieceWork = 2 << 20;
constexpr std::int64_t kMostPackedPieces = 8, kNarrowest = 64;

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, std::int64_t row_step,
                          std::int64_t column_step) {
  return {{rows, columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{row_step, column_step}};
}

template <class F>
void checked(const GemmCall& g, F f) {
  try {
    f();
  } catch (const dnnl::error& e) {
    throw Error(Code::internal,
                fmt::format("oneDNN, a packed product {}x{}x{}: {}", g.m, g.k, g.n, e.what()));
  }
}

}  // namespace

// The parts that do not depend on the elements of b: how to multiply with columns [begin, begin +
// n) of b, and how to pack them. Shared by all products that are packed for one shape.
struct PackedProduct::Piece {
  std::int64_t begin;
  dnnl::memory::desc a, b, c, scratch, plain;
  dnnl::matmul product;
  dnnl::reorder pack;

  Piece(const GemmCall& g, std::int64_t first, std::int64_t n)
      : begin(first), a(matrix(g.m, g.k, g.a_rs, g.a_cs)), c(matrix(g.m, n, g.c_rs, 1)),
        plain(matrix(g.k, n, g.b_rs, g.b_cs)) {
    LibraryCall call;
    dnnl::primitive_attr attr;
    // the library's own is shared between threads
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::memory::desc any({g.k, n}, dnnl::memory::data_type::f32,
                                 dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a, any, c), attr,
                                              library_engine());
    b = chosen.weights_desc();
    scratch = chosen.scratchpad_desc();
    product = dnnl::matmul(chosen);
    pack =
        dnnl::reorder(dnnl::reorder::primitive_desc(library_engine(), plain, library_engine(), b));
  }
  ~Piece() { delete spare_.load(std::memory_order_acquire); }

  void pack_into(void* weights, const GemmCall& g) const {
    LibraryCall call;
    dnnl::memory from(plain, library_engine(),
                      not_const(static_cast<const float*>(g.b) + begin * g.b_cs)),
        to(b, library_engine(), weights);
    pack.execute(library_stream(), from, to);
  }

  void multiply(const GemmCall& g, void* weights) const {
    LibraryCall call;
    std::unique_ptr<Operands> operands(spare_.exchange(nullptr, std::memory_order_acquire));
    if (!operands) operands = std::make_unique<Operands>(*this);
    operands->a.set_data_handle(not_const(g.a));
    operands->b.set_data_handle(weights);
    operands->c.set_data_handle(static_cast<float*>(g.c) + begin);
    operands->scratch.set_data_handle(thread_scratch(scratch.get_size()));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, operands->a.get()},
                                         {DNNL_ARG_WEIGHTS, operands->b.get()},
                                         {DNNL_ARG_DST, operands->c.get()},
                                         {DNNL_ARG_SCRATCHPAD, operands->scratch.get()}};
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(product.get(), library_stream().get(), 4, arguments),
        "could not execute a product");
    delete spare_.exchange(operands.release(), std::memory_order_acq_rel);
  }

 private:
  // The library's handles on memory, made once: a product makes none anew unless another run is at
  // the same one.
  struct Operands {
    explicit Operands(const Piece& p)
        : a(p.a, library_engine(), DNNL_MEMORY_NONE), b(p.b, library_engine(), DNNL_MEMORY_NONE),
          c(p.c, library_engine(), DNNL_MEMORY_NONE),
          scratch(p.scratch, library_engine(), DNNL_MEMORY_NONE) {}
    dnnl::memory a, b, c, scratch;
  };
  mutable std::atomic<Operands*> spare_{nullptr};  // publishes the handles to the next call
};

struct PackedProduct::Pieces {
  static constexpr std::size_t kPage = 4096;
  std::vector<std::unique_ptr<Piece>> list;
  // offset of each piece's weights in one buffer: large weights lie in huge pages, which conflict
  // less in a cache
  std::vector<std::size_t> at;
  std::size_t bytes = 0;

  Pieces(const GemmCall& g) {
    const std::int64_t wanted = std::clamp<std::int64_t>(
        g.m * g.n * g.k / kPackedPieceWork, 1,
        std::min(kMostPackedPieces, std::max<std::int64_t>(1, g.n / kNarrowest)));
    const std::int64_t width =
        ((g.n + wanted - 1) / wanted + kNarrowest - 1) / kNarrowest * kNarrowest;
    for (std::int64_t begin = 0; begin < g.n; begin += width) {
      list.push_back(std::make_unique<Piece>(g, begin, std::min(width, g.n - begin)));
      at.push_back(bytes);
      bytes += (list.back()->b.get_size() + kPage - 1) / kPage * kPage;
    }
  }
  std::int64_t count() const { return static_cast<std::int64_t>(list.size()); }
};

PackedProduct::PackedProduct(const Key& key, std::shared_ptr<const Pieces> pieces,
                             const GemmCall& g, WorkerPool* pool)
    : key_(key), pieces_(std::move(pieces)),
      packed_(Buffer::allocate(host_allocator(), pieces_->bytes)) {
  for_blocks(pool, pieces_->count(),
             [&](int i) { pieces_->list[static_cast<std::size_t>(i)]->pack_into(weights(i), g); });
}

PackedProduct::~PackedProduct() = default;

void* PackedProduct::weights(int piece) const {
  return static_cast<std::byte*>(packed_->data()) + pieces_->at[static_cast<std::size_t>(piece)];
}

void PackedProduct::multiply(WorkerPool* pool, const GemmCall& g) const {
  for_blocks(pool, pieces_->count(),
             [&](int i) { pieces_->list[static_cast<std::size_t>(i)]->multiply(g, weights(i)); });
}

void PackedProduct::run(WorkerPool* pool, const GemmCall& g, std::uint64_t content,
                        RepackedSlot& slot) {
  const Key key{content, g.b, {g.m, g.n, g.k, g.a_rs, g.a_cs, g.b_rs, g.b_cs}};
  checked(g, [&] {
    auto kept = std::static_pointer_cast<const PackedProduct>(slot.get());
    if (!kept || !(kept->key_ == key)) {
      std::shared_ptr<const Pieces> pieces =
          kept && kept->key_.shape == key.shape ? kept->pieces_ : std::make_shared<const Pieces>(g);
      kept =
          std::shared_ptr<const PackedProduct>(new PackedProduct(key, std::move(pieces), g, pool));
      slot.set(kept);
    }
    kept->multiply(pool, g);
  });
}

}  // namespace troupe::cpu
