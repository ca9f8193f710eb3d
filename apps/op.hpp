// Everything that an op defined outside the source tree needs: its definition, its gradient, its
// kernel, and the shared code of families of ops.
//
//   TROUPE_OP(Twice) {
//     op.doc("Each element twice.");
//     op.pointwise([](auto x) { return x + x; });
//     op.gradient([](Gradient& g) { g.set(0, g.dy() * 2.0); });
//   }
//   Expr twice(Operand x) { return bind1("Twice", {x}); }
#pragma once

#include <troupe/devices/base/representable.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/devices/device/kernel.hpp>
#include <troupe/devices/device/primitives.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/evaluate.hpp>
#include <troupe/ops/families/accumulator.hpp>
#include <troupe/ops/families/algebra.hpp>
#include <troupe/ops/families/convolution.hpp>
#include <troupe/ops/families/coordinates.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/families/pooling.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/families/row_norm.hpp>
#include <troupe/ops/families/scan.hpp>
#include <troupe/ops/families/update_rows.hpp>
#include <troupe/ops/families/window.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/ops/graph/specs_attr.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

// Authors of ops use these names of `troupe::detail` without qualification.

// Values, attributes and shapes.
using detail::AttrObject;
using detail::Attrs;
using detail::AttrValue;
using detail::broadcast;
using detail::host_allocator;
using detail::normalize_axis;
using detail::Value;

// Kernels.
using detail::Completion;
using detail::find_device_kernel;
using detail::Kernel;
using detail::KernelContext;
using detail::KernelFactory;
using detail::KernelSetup;
using detail::make_kernel;
using detail::register_device_kernel;

// Device primitives and their arguments.
using detail::Algebra;
using detail::AlgebraArgs;
using detail::Along;
using detail::AlongArgs;
using detail::ConstRowsView;
using detail::ConstView;
using detail::Convolve;
using detail::ConvolveArgs;
using detail::MatmulArgs;
using detail::PointwiseReduceArgs;
using detail::Pool;
using detail::PoolArgs;
using detail::Primitives;
using detail::Put;
using detail::Random;
using detail::RandomKey;
using detail::Reduction;
using detail::RowsView;
using detail::Scan;
using detail::ScanArgs;
using detail::Scatter;
using detail::SearchArgs;
using detail::SortArgs;
using detail::View;
using detail::WindowAxis;
using detail::Windows;

// Scalar expressions.
using detail::Recorder;
using detail::ScalarOp;
using detail::ScalarProgram;
using detail::Symbol;

// Definitions of ops, and their gradients.
using detail::add;
using detail::all_ops;
using detail::allocate_result;
using detail::append;
using detail::append_input;
using detail::AttrSpec;
using detail::bind1;
using detail::bind_op;
using detail::Composite;
using detail::Cotangent;
using detail::counted;
using detail::Effect;
using detail::Evaluate;
using detail::exchanged_with_last;
using detail::find_op;
using detail::Gradient;
using detail::infer_outputs;
using detail::Inference;
using detail::make_node_kernel;
using detail::make_pointwise_kernel;
using detail::make_specs_attr;
using detail::make_subgraphs;
using detail::OpBuilder;
using detail::OpDef;
using detail::PointwiseExpression;
using detail::program_of;
using detail::ProgramAttr;
using detail::QueueState;
using detail::RegisterOp;
using detail::scale_of_squares;
using detail::shape_of_inputs;
using detail::spec_of_value;
using detail::SpecsAttr;
using detail::StateSpec;
using detail::StateStore;
using detail::SubGraph;
using detail::SubGraphs;
using detail::subgraphs_of;
using detail::VariableState;
using detail::widened_half;
using detail::within;
using detail::zero_cotangent;

// Families of ops.
using detail::accumulator_dtype;
using detail::algebra_kernel;
using detail::any_space;
using detail::around_axis;
using detail::AroundAxis;
using detail::attrs_of;
using detail::attrs_of_pooling;
using detail::batch_and;
using detail::bind_convolution;
using detail::columns_of;
using detail::computed_wide;
using detail::convolution_attrs;
using detail::convolution_kernel;
using detail::ConvolutionShapes;
using detail::Coordinates;
using detail::coordinates_of;
using detail::covered;
using detail::define_pooling;
using detail::define_reduction;
using detail::define_row_norm;
using detail::define_row_norm_gradient;
using detail::define_scan;
using detail::divided_by_count;
using detail::identity_like;
using detail::integer_of;
using detail::integers_of;
using detail::is_representable;
using detail::matrix_transpose;
using detail::onto_lower_half;
using detail::pooled_shape;
using detail::pooling_attrs;
using detail::positions;
using detail::reduce;
using detail::reduce_alike;
using detail::reduced_axes;
using detail::reduced_shape;
using detail::reduced_spec;
using detail::reduction_axes;
using detail::require_convolution;
using detail::require_matrices;
using detail::require_representable;
using detail::require_space;
using detail::rows_of;
using detail::shifted;
using detail::smaller_side;
using detail::space_of;
using detail::spread;
using detail::spread_to_extremes;
using detail::update_rows;
using detail::window_attrs;
using detail::window_of;
using detail::windows_of;
using detail::with_host_inputs;
using detail::with_space;

// Functions that a lambda of a pointwise op calls on `double`.
namespace reference_scalar = detail::reference_scalar;  // NOLINT

}  // namespace troupe
