#include <troupe/ops/families/convolution.hpp>

namespace troupe::detail {

Expr bind_convolution(const char* op, Operand x, Operand filter, const WindowOptions& window,
                      std::int64_t groups) {
  Attrs attrs = attrs_of(window);
  attrs.set("groups", groups);
  return bind1(op, {std::move(x), std::move(filter)}, std::move(attrs));
}

void convolution_attrs(OpBuilder& op) {
  window_attrs(op);
  op.attr<std::int64_t>("groups", 1);
}

void require_convolution(const Inference& c, int tensor, int filter) {
  c.require(c.dtype(tensor) != DType::boolean && !is_complex(c.dtype(tensor)),
            std::string(name_of(c.dtype(tensor))) + " cannot be convolved; cast it");
  c.require_same_dtype(tensor, filter);
  require_space(c, tensor, "x");
  const Shape &x = c.shape(tensor), &w = c.shape(filter);
  c.require(!w.has_rank() || (w.rank() >= 3 && w.rank() <= 5),
            "the filter must be [window..., channels / groups, filters] with one to three window "
            "axes, not " +
                w.text());
  c.require(!x.has_rank() || !w.has_rank() || x.rank() == w.rank(),
            fmt::format("x {} and the filter {} differ in spatial axes", x.text(), w.text()));
  const std::int64_t groups = c.attrs().get<std::int64_t>("groups");
  c.require(groups >= 1, fmt::format("groups must be at least 1, not {}", groups));
  if (w.has_rank())
    c.require(w[w.rank() - 1] < 0 || w[w.rank() - 1] % groups == 0,
              fmt::format("{} filters do not divide into {} groups", w[w.rank() - 1], groups));
}

Shape window_of(const Shape& filter) {
  return Shape(filter.dims().subspan(0, static_cast<std::size_t>(filter.rank() - 2)));
}

Shape any_space(const Shape& like) {
  Shape out;
  for (int i = 2; i < like.rank(); ++i) out.push_back(kAny);
  return out;
}

std::unique_ptr<Kernel> convolution_kernel(
    Convolve what, const KernelSetup& setup,
    std::function<ConvolutionShapes(KernelContext&, const Attrs&)> shapes) {
  class ConvolutionKernel final : public Kernel {
   public:
    ConvolutionKernel(Convolve what, const Attrs& attrs,
                      std::function<ConvolutionShapes(KernelContext&, const Attrs&)> shapes)
        : what_(what), attrs_(attrs), shapes_(std::move(shapes)) {}

    void run(KernelContext& c) override {
      for (int i : {0, 1}) {  // inference could not check unknown ranks
        const Shape& shape = c.input(i).shape();
        if (shape.rank() >= 3 && shape.rank() <= 5) continue;
        const bool filter = i == 1 && what_ != Convolve::filter;
        throw Error(Code::invalid_argument,
                    fmt::format("{} must be {} with one to three spatial axes, not {}",
                                filter ? "the filter" : "input " + std::to_string(i),
                                filter ? "[window..., channels / groups, filters]"
                                       : "[batch, space..., channels]",
                                shape.text()));
      }
      const ConvolutionShapes s = shapes_(c, attrs_);
      const std::int64_t groups = attrs_.get<std::int64_t>("groups"),
                         filters = s.filter[s.filter.rank() - 1];
      const std::int64_t channels = s.filter[s.filter.rank() - 2] * groups;
      if (s.x.rank() != s.filter.rank() || s.x[s.x.rank() - 1] != channels || filters % groups)
        throw Error(Code::invalid_argument, fmt::format("a filter {} in {} groups does not fit {}",
                                                        s.filter.text(), groups, s.x.text()));
      if (what_ == Convolve::input && s.x.elements() == 0)
        return c.set(0, c.allocate(c.input(0).dtype(), s.x));
      ConvolveArgs args{what_,
                        c.input(0),
                        c.input(1),
                        {},
                        windows_of(space_of(s.x), window_of(s.filter), attrs_),
                        s.x[0],
                        channels,
                        filters,
                        groups,
                        &kept_};
      if (s.y != with_space(s.x[0], positions(space_of(s.x), window_of(s.filter), attrs_), filters))
        throw Error(Code::invalid_argument, fmt::format("{} is no result of a filter {} over {}",
                                                        s.y.text(), s.filter.text(), s.x.text()));
      Tensor out = c.allocate(c.input(0).dtype(), what_ == Convolve::output  ? s.y
                                                  : what_ == Convolve::input ? s.x
                                                                             : s.filter);
      args.out = View(out);
      c.primitives().convolve(c.stream(), args);
      c.set(0, std::move(out));
    }

   private:
    Convolve what_;
    Attrs attrs_;
    std::function<ConvolutionShapes(KernelContext&, const Attrs&)> shapes_;
    RepackedSlot kept_;
  };
  return std::make_unique<ConvolutionKernel>(what, setup.attrs, std::move(shapes));
}

}  // namespace troupe::detail
