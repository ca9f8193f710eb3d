#include <troupe/devices/cpu/nn/library_convolution.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/cpu/products/library_call.hpp>
#include <troupe/devices/cpu/products/library_engine.hpp>
#include <troupe/devices/cpu/scratch.hpp>

namespace troupe::cpu {
namespace {

using dnnl::memory;

// Multiply-adds worth a piece of their own, as for products.
constexpr double kConvolutionPieceWork = 2 << 20;
constexpr std::int64_t kMostPieces = 16, kMostSums = 4;

}  // namespace

// The convolution of `n` items.
struct LibraryConvolution::Piece {
  memory::desc x, y, packed, scratch, plain;
  dnnl::primitive primitive;
  dnnl::reorder reorder;  // between the plain filter and the packed one

  Piece(const Key& key, std::int64_t n) {
    LibraryCall call;
    const auto& [p, q, r] = key.windows.axis;
    const std::int64_t g = key.groups, in = key.channels / g, out = key.filters / g;
    // Two axes if two suffice: more of the library's kernels support them.
    const bool flat = p.in == 1 && p.out == 1 && p.size == 1 && p.before == 0;
    auto spatial = [&](auto of) {
      memory::dims d;
      for (const WindowAxis* a : {&p, &q, &r})
        if (!flat || a != &p) d.push_back(of(*a));
      return d;
    };
    auto tensor = [&](std::int64_t c, auto extent) {
      memory::dims d{n, c};
      for (std::int64_t e : spatial(extent)) d.push_back(e);
      return memory::desc(d, memory::data_type::f32,
                          flat ? memory::format_tag::nhwc : memory::format_tag::ndhwc);
    };
    x = tensor(key.channels, [](const WindowAxis& a) { return a.in; });
    y = tensor(key.filters, [](const WindowAxis& a) { return a.out; });
    // [window..., channels / groups, filters], as the library's (groups), filters, channels,
    // window.
    memory::dims w, steps, size = spatial([](const WindowAxis&a) { return a.size; });
    if (g > 1) w.push_back(g), steps.push_back(out);
    w.insert(w.end(), {out, in});
    steps.insert(steps.end(), {1, key.filters});
    std::int64_t step = in * key.filters;
    memory::dims tap_steps(size.size());
    for (std::size_t i = size.size(); i-- > 0; step *= size[i]) tap_steps[i] = step;
    w.insert(w.end(), size.begin(), size.end());
    steps.insert(steps.end(), tap_steps.begin(), tap_steps.end());
    plain = memory::desc(w, memory::data_type::f32, steps);
    const memory::desc any(w, memory::data_type::f32, memory::format_tag::any);

    const memory::dims strides = spatial([](const WindowAxis& a) { return a.stride; });
    const memory::dims dilation = spatial([](const WindowAxis& a) { return a.dilation - 1; });
    const memory::dims before = spatial([](const WindowAxis& a) { return a.before; });
    const memory::dims after = spatial([](const WindowAxis& a) {
      return std::max<std::int64_t>(0, a.start(a.out - 1) + (a.size - 1) * a.dilation + 1 - a.in);
    });
    const auto direct = dnnl::algorithm::convolution_direct;
    dnnl::primitive_attr attr;
    // the library's own is shared between threads
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::convolution_forward::primitive_desc forward(
        dnnl::convolution_forward::desc(dnnl::prop_kind::forward_training, direct, x, any, y,
                                        strides, dilation, before, after),
        attr, library_engine());
    if (key.what == Convolve::output) {
      packed = forward.weights_desc();
      scratch = forward.scratchpad_desc();
      primitive = dnnl::convolution_forward(forward);
    } else if (key.what == Convolve::input) {
      const dnnl::convolution_backward_data::primitive_desc chosen(
          dnnl::convolution_backward_data::desc(direct, x, any, y, strides, dilation, before,
                                                after),
          attr, library_engine(), forward);
      packed = chosen.weights_desc();
      scratch = chosen.scratchpad_desc();
      primitive = dnnl::convolution_backward_data(chosen);
    } else {
      const dnnl::convolution_backward_weights::primitive_desc chosen(
          dnnl::convolution_backward_weights::desc(direct, x, any, y, strides, dilation, before,
                                                   after),
          attr, library_engine(), forward);
      packed = chosen.diff_weights_desc();
      scratch = chosen.scratchpad_desc();
      primitive = dnnl::convolution_backward_weights(chosen);
    }
    reorder = key.what == Convolve::filter
                  ? dnnl::reorder(dnnl::reorder::primitive_desc(library_engine(), packed,
                                                                library_engine(), plain))
                  : dnnl::reorder(dnnl::reorder::primitive_desc(library_engine(), plain,
                                                                library_engine(), packed));
  }

  void execute(Convolve what, const float* x_data, const float* y_data, void* w_data) const {
    LibraryCall call;
    memory mx(x, library_engine(), not_const(x_data)), my(y, library_engine(), not_const(y_data)),
        mw(packed, library_engine(), w_data);
    memory room(scratch, library_engine(), thread_scratch(scratch.get_size()));
    if (what == Convolve::output)
      primitive.execute(library_stream(), {{DNNL_ARG_SRC, mx},
                                           {DNNL_ARG_WEIGHTS, mw},
                                           {DNNL_ARG_DST, my},
                                           {DNNL_ARG_SCRATCHPAD, room}});
    else if (what == Convolve::input)
      primitive.execute(library_stream(), {{DNNL_ARG_DIFF_SRC, mx},
                                           {DNNL_ARG_WEIGHTS, mw},
                                           {DNNL_ARG_DIFF_DST, my},
                                           {DNNL_ARG_SCRATCHPAD, room}});
    else
      primitive.execute(library_stream(), {{DNNL_ARG_SRC, mx},
                                           {DNNL_ARG_DIFF_WEIGHTS, mw},
                                           {DNNL_ARG_DIFF_DST, my},
                                           {DNNL_ARG_SCRATCHPAD, room}});
  }
  void pack(const void* from, void* to) const {
    LibraryCall call;
    memory a(plain, library_engine(), not_const(from)), b(packed, library_engine(), to);
    reorder.execute(library_stream(), a, b);
  }
  void unpack(void* from, void* to) const {
    LibraryCall call;
    memory a(packed, library_engine(), from), b(plain, library_engine(), to);
    reorder.execute(library_stream(), a, b);
  }
};

LibraryConvolution::LibraryConvolution(const Key& key) : key_(key) {
  const double work = double(key.batch) * double(key.windows.outputs()) *
                      double(key.windows.taps()) * double(key.channels / key.groups) *
                      double(key.filters);
  const std::int64_t most =
      std::min(key.batch, key.what == Convolve::filter ? kMostSums : kMostPieces);
  const std::int64_t wanted = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::min(work / kConvolutionPieceWork, 1e6)), 1, most);
  batch_ = (key.batch + wanted - 1) / wanted;
  most_ = std::make_unique<Piece>(key, batch_);
  if (key.batch % batch_) last_ = std::make_unique<Piece>(key, key.batch % batch_);
}

LibraryConvolution::~LibraryConvolution() = default;

const LibraryConvolution::Piece& LibraryConvolution::piece(std::int64_t i) const {
  return last_ && i == pieces() - 1 ? *last_ : *most_;
}

void LibraryConvolution::to_each_item(WorkerPool* pool, const ConvolveArgs& c) const {
  // The last piece may need another layout of the filter; then it has a copy of its own.
  const bool is_shared = !last_ || last_->packed == most_->packed;
  Ref<Buffer> weights = Buffer::allocate(host_allocator(), most_->packed.get_size()), others;
  most_->pack(c.b.data(), weights->data());
  if (!is_shared) {
    others = Buffer::allocate(host_allocator(), last_->packed.get_size());
    last_->pack(c.b.data(), others->data());
  }
  const std::int64_t x_item = key_.windows.inputs() * key_.channels,
                     y_item = key_.windows.outputs() * key_.filters;
  const float* x = static_cast<const float*>(c.what == Convolve::output ? c.a.data() : c.out.data);
  const float* y = static_cast<const float*>(c.what == Convolve::output ? c.out.data : c.a.data());
  for_blocks(pool, pieces(), [&](int i) {
    const Piece& p = piece(i);
    p.execute(c.what, x + i * batch_ * x_item, y + i * batch_ * y_item,
              &p == most_.get() || is_shared ? weights->data() : others->data());
  });
}

void LibraryConvolution::to_the_filter(WorkerPool* pool, const ConvolveArgs& c) const {
  const std::int64_t x_item = key_.windows.inputs() * key_.channels,
                     y_item = key_.windows.outputs() * key_.filters;
  const std::int64_t elements = c.out.elements();
  float* out = static_cast<float*>(c.out.data);
  Ref<Buffer> sums = Buffer::allocate(
      host_allocator(), static_cast<std::size_t>(pieces() * elements) * sizeof(float));
  for_blocks(pool, pieces(), [&](int i) {
    const Piece& p = piece(i);
    Ref<Buffer> packed = Buffer::allocate(host_allocator(), p.packed.get_size());
    p.execute(c.what, static_cast<const float*>(c.a.data()) + i * batch_ * x_item,
              static_cast<const float*>(c.b.data()) + i * batch_ * y_item, packed->data());
    p.unpack(packed->data(), i == 0 ? out : static_cast<float*>(sums->data()) + i * elements);
  });
  for (std::int64_t i = 1; i < pieces(); ++i) {
    const float* more = static_cast<const float*>(sums->data()) + i * elements;
    for_ranges(pool, elements, kBlock, [&](std::int64_t begin, std::int64_t end) {
      level_kernels().add_f32(out + begin, more + begin, end - begin);
    });
  }
}

void LibraryConvolution::run(WorkerPool* pool, const ConvolveArgs& c) {
  const Key key{c.what, c.batch, c.channels, c.filters, c.groups, c.windows};
  try {
    auto kept =
        c.kept ? std::static_pointer_cast<const LibraryConvolution>(c.kept->get()) : nullptr;
    if (!kept || !(kept->key_ == key)) {
      kept = std::shared_ptr<const LibraryConvolution>(new LibraryConvolution(key));
      if (c.kept) c.kept->set(kept);
    }
    c.what == Convolve::filter ? kept->to_the_filter(pool, c) : kept->to_each_item(pool, c);
  } catch (const dnnl::error& e) {
    throw Error(Code::internal, fmt::format("oneDNN, a convolution of {} and {}: {}",
                                            c.a.shape.text(), c.b.shape.text(), e.what()));
  }
}

}  // namespace troupe::cpu
