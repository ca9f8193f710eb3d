#include <troupe/devices/device/primitives.hpp>

#include <array>

namespace troupe::detail {

std::string_view name_of(Primitive p) {
  constexpr std::array<std::string_view,
                       static_cast<std::size_t>(Primitive::recurrent_gradient) + 1>
      names{"copy",          "fill",
            "pointwise",     "pointwise_rows",
            "reduce",        "pointwise_reduce",
            "matmul",        "transpose",
            "copy_block",    "gather",
            "scatter",       "softmax",
            "cross_entropy", "cross_entropy_gradient",
            "one_hot",       "range",
            "random",        "convolve",
            "pool",          "scan",
            "sort",          "along",
            "search",        "algebra",
            "attention",     "attention_gradient",
            "row_norm",      "row_norm_gradient",
            "channel_sums",  "ctc",
            "recurrent",     "recurrent_gradient"};
  return names[static_cast<std::size_t>(p)];
}

}  // namespace troupe::detail
