#include <troupe/controlflow/check_nan_predicates.hpp>
#include <troupe/ops/families/host_inputs.hpp>

namespace troupe {

TROUPE_OP(CheckComparisons) {
  op.doc(
      "Fails if a loop would have gone on, had comparisons with NaN been true: its first input, "
      "then each number compared, or whether a tensor holds NaN.");
  op.inputs(2, -1);
  op.attr<std::string>("loop");
  op.attr<std::string>("compared");
  op.side_effect();
  op.not_differentiable();
  op.infer([](Inference& c) {
    for (int i = 0; i < c.inputs(); ++i)
      c.require((c.dtype(i) == DType::boolean || (i > 0 && is_floating(c.dtype(i)))) &&
                    c.shape(i).is_compatible(Shape{}),
                "it takes scalars, not " + c.input(i).text());
  });
  op.kernel([](const KernelSetup& s) {
    std::vector<int> all(s.input_types.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    return with_host_inputs(
        all, [loop = s.attrs.get<std::string>("loop"),
              compared = s.attrs.get<std::string>("compared")](KernelContext& c) {
          if (c.input(0).at(0) == 0) return;
          for (int i = 1; i < c.inputs(); ++i)
            if (holds_nan(c.input(i)))
              throw Error(Code::invalid_argument,
                          loop + ": " + ended_by_nan(compared, static_cast<std::size_t>(i) - 1));
        });
  });
}

}  // namespace troupe
