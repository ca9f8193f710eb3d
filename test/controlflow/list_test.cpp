// Operations on lists: values, refusals, gradients; on the interpreter and the engine, on the host
// and on the simulated stream device. T1 ... T15 are rows of CASES.md.
#include <boost/test/unit_test.hpp>

#include <complex>
#include <set>

#include <fmt/format.h>

#include <troupe/controlflow/functional.hpp>
#include <troupe/controlflow/list.hpp>
#include <troupe/devices/list/list.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/controlflow/list_rows.hpp>
#include <troupe/test/ops/tables/elsewhere.hpp>
#include <troupe/test/ops/tables/places.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/cluster/processes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(list_test)

namespace {

Doubles elements_of(const Tensor& t) {
  Doubles out;
  for (std::int64_t i = 0; i < t.elements(); ++i) out.push_back(t.at(i));
  return out;
}

void same(const Tensor& got, const Shape& shape, const Doubles& elements,
          const std::string& where) {
  BOOST_CHECK_MESSAGE(got.shape() == shape,
                      where << ": shape " << got.shape().text() << ", not " << shape.text());
  Doubles values = elements_of(got);
  BOOST_CHECK_MESSAGE(values == elements, where << ": " << got.text());
}

/// A cluster too, each node of the graph on one that is drawn.
std::vector<Place> all_places() {
  if (is_over_processes()) {
    const std::shared_ptr<ClusterNode> here(
        NodeProcesses::all().join(Nodes::scattered(3)).release(), [](ClusterNode* a) {
          NodeProcesses::all().is_done(*a);
          delete a;
        });
    return {{"three processes",
             [here](const Graph& g, const Feeds& feeds, const std::vector<Expr>& fetches) {
               return here->engine().run(g, feeds, fetches);
             }}};
  }
  std::vector<Place> out = places();
  EngineOptions stepped;
  stepped.deterministic = true;
  stepped.seed = 3;
  auto nodes = std::make_shared<Nodes>(3, Nodes::scattered(3, stepped));
  out.push_back({"three nodes",
                 [nodes](const Graph& g, const Feeds& feeds, const std::vector<Expr>& fetches) {
                   return nodes->engine().run(g, feeds, fetches);
                 }});
  return out;
}

struct Wanted {
  Expr of;
  Shape shape;
  Doubles elements;
};

/// Builds a graph on every place and compares what it fetches.
void run_all_configurations(const std::function<std::vector<Wanted>(Graph&)>& build) {
  for (const Place& place : all_places()) {
    Graph g;
    std::vector<Wanted> wanted = build(g);
    std::vector<Expr> fetches;
    for (const Wanted& w : wanted) fetches.push_back(w.of);
    try {
      std::vector<Tensor> got = place.evaluate(g, {}, fetches);
      for (std::size_t i = 0; i < got.size(); ++i)
        same(got[i], wanted[i].shape, wanted[i].elements,
             fmt::format("{}, fetch {}", place.name, i));
    } catch (const Error& e) { BOOST_ERROR(place.name << " threw: " << e.what()); }
  }
}

void check_says(const Error& e, Code code, const std::vector<std::string>& parts,
                const std::string& where) {
  std::string text = e.what();
  BOOST_CHECK_MESSAGE(e.code() == code, where << ": " << name_of(e.code()) << ": " << text);
  for (const std::string& part : parts)
    BOOST_CHECK_MESSAGE(text.find(part) != std::string::npos,
                        where << ": '" << part << "' is not in: " << text);
}

std::string line(unsigned n) { return fmt::format("list_test.cpp:{}", n); }

/// The run fails, on every place, with an error that says so.
void fails_everywhere(const std::function<Expr(Graph&)>& build, Code code,
                      const std::vector<std::string>& parts) {
  for (const Place& place : all_places()) {
    Graph g;
    Expr y = build(g);
    try {
      place.evaluate(g, {}, {y});
      BOOST_ERROR(place.name << ": nothing was thrown where " << parts[0]
                             << " should have been said");
    } catch (const Error& e) { check_says(e, code, parts, place.name); }
  }
}

template <class F>
void refused(F f, Code code, const std::vector<std::string>& parts) {
  try {
    f();
    BOOST_ERROR("nothing was thrown where " << parts[0] << " should have been said");
  } catch (const Error& e) { check_says(e, code, parts, "while it is built"); }
}

const std::vector<DType> kDTypesOfLists{DType::f16,     DType::f32, DType::f64,
                                        DType::i32,     DType::i64, DType::u8,
                                        DType::boolean, DType::c64, DType::c128};

}  // namespace

// ---- values

BOOST_AUTO_TEST_CASE(write_read) {  // T1
  run_all_configurations([](Graph& g) {
    TensorArray ta = array(g, 3)
                         .write(0, g.constant(tensor({1, 2}, {4, 5})))
                         .write(1, g.constant(tensor({1, 1}, {1})))
                         .write(2, -3);
    return std::vector<Wanted>{{ta.read(0), {1, 2}, {4, 5}},
                               {ta.read(1), {1, 1}, {1}},
                               {ta.read(2), {}, {-3}},
                               {ta.size(), {}, {3}}};
  });
}

BOOST_AUTO_TEST_CASE(write_stack) {  // T2
  for (DType dtype : kDTypesOfLists)
    run_all_configurations([dtype](Graph& g) {
      TensorArray ta = array(g, 3, dtype);
      Doubles all = dtype == DType::boolean ? Doubles{1, 0, 0, 1, 1, 1} : Doubles{4, 5, 6, 7, 8, 9};
      for (int i = 2; i >= 0; --i)
        ta = ta.write(i, g.constant(tensor({1, 2}, {all[2 * i], all[2 * i + 1]}, dtype)));
      return std::vector<Wanted>{{ta.stack(), {3, 1, 2}, all}, {ta.concat(), {3, 2}, all}};
    });
}

BOOST_AUTO_TEST_CASE(scalars_of_each_dtype) {
  for (DType dtype : kDTypesOfLists)
    run_all_configurations([dtype](Graph& g) {
      Expr list = list_unstack(g.constant(tensor({3}, {1, 0, 1}, dtype)));
      list = list_push(list, g.constant(Tensor::scalar_as(dtype, 1)));
      return std::vector<Wanted>{
          {list_stack(list), {4}, {1, 0, 1, 1}},
          {list_gather(list, g.constant(tensor({2}, {3, 1}, DType::i32))), {2}, {1, 0}}};
    });
  run_all_configurations([](Graph& g) {  // literals take the list's dtype, indices do not
    Expr list = list_push(list_push(list_empty(g, {DType::boolean, Shape{}}), true), false);
    return std::vector<Wanted>{
        {list_stack(list), {2}, {1, 0}},
        {list_read(list_write(list_reserve(g, 2, {DType::boolean, Shape{}}), 1, true), 1),
         {},
         {1}}};
  });
}

BOOST_AUTO_TEST_CASE(write_concat) {  // T4
  run_all_configurations([](Graph& g) {
    TensorArray ta = array(g, 3)
                         .write(0, g.constant(tensor({3, 2}, {1, 2, 3, 4, 5, 6})))
                         .write(1, g.constant(tensor({2, 2}, {7, 8, 9, 10})));
    ta = ta.write(2, g.constant(tensor({1, 2}, {11, 12})));
    return std::vector<Wanted>{{ta.concat(), {6, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
                               {list_extents(ta.list()), {3}, {3, 2, 1}}};
  });
}

BOOST_AUTO_TEST_CASE(not_all_were_written) {  // T5
  run_all_configurations([](Graph& g) {
    TensorArray ta = array(g, 3, DType::f64, {1, 2}).write(1, g.constant(tensor({1, 2}, {4, 5})));
    auto [rest, last] = list_pop(ta.list());
    return std::vector<Wanted>{
        {ta.read(0), {1, 2}, {0, 0}},
        {ta.stack(), {3, 1, 2}, {0, 0, 4, 5, 0, 0}},
        {ta.concat(), {3, 2}, {0, 0, 4, 5, 0, 0}},
        {ta.gather(g.constant(tensor({2}, {1, 0}, DType::i64))), {2, 1, 2}, {4, 5, 0, 0}},
        {last, {1, 2}, {0, 0}},
        {list_length(rest), {}, {2}}};
  });
  run_all_configurations([](Graph& g) {
    Expr scalars = array(g, 2, DType::i32, {});
    return std::vector<Wanted>{{list_read(scalars, 0), {}, {0}},
                               {list_stack(scalars), {2}, {0, 0}}};
  });
  auto partly = [](Graph& g) { return array(g, 3).write(1, g.constant(tensor({1, 2}, {4, 5}))); };
  unsigned at = 0;
  fails_everywhere(
      [&](Graph& g) {
        TensorArray ta = partly(g);
        at = __LINE__ + 1;
        return ta.read(0);
      },
      Code::failed_precondition,
      {"element 0 of the list(f64[...]) of 3 was never written", "ListRead", line(__LINE__ - 3)});
  fails_everywhere([&](Graph& g) { return g.named(partly(g).stack(), "all"); },
                   Code::failed_precondition,
                   {"element 0", "never written", "'all'", line(__LINE__ - 2)});
  fails_everywhere([&](Graph& g) { return partly(g).concat(); }, Code::failed_precondition,
                   {"element 0", "never written", line(__LINE__ - 1)});
  fails_everywhere(
      [&](Graph& g) {
        return partly(g).gather(g.constant(tensor({2}, {1, 2}, DType::i64)));
      },
      Code::failed_precondition, {"element 2", "never written", line(__LINE__ - 2)});
  fails_everywhere([&](Graph& g) { return list_pop(partly(g).list()).value; },
                   Code::failed_precondition, {"element 2", "never written", line(__LINE__ - 1)});
  fails_everywhere([&](Graph& g) { return array(g, 0).stack(); }, Code::failed_precondition,
                   {"shape is not known", line(__LINE__ - 1)});
  run_all_configurations([](Graph& g) {
    return std::vector<Wanted>{{array(g, 0, DType::f64, {2}).stack(), {0, 2}, {}},
                               {array(g, 0, DType::f64, {kAny, 2}).concat(), {0, 2}, {}}};
  });
}

BOOST_AUTO_TEST_CASE(unstack_read) {  // T6
  run_all_configurations([](Graph& g) {
    TensorArray a = array(g, 0).unstack(g.constant(tensor({3}, {1, 2, 3}))),
                b = array(g, 0).unstack(g.constant(tensor({3, 2}, {1, 1.1, 2, 2.1, 3, 3.1})));
    TensorArray c = array(g, 0).unstack(g.constant(tensor({3, 0}, {})));
    return std::vector<Wanted>{{a.read(0), {}, {1}},       {a.read(2), {}, {3}},
                               {a.size(), {}, {3}},        {b.read(0), {2}, {1, 1.1}},
                               {b.read(2), {2}, {3, 3.1}}, {c.read(1), {0}, {}},
                               {c.size(), {}, {3}},        {c.stack(), {3, 0}, {}}};
  });
}

BOOST_AUTO_TEST_CASE(split_read) {  // T7
  run_all_configurations([](Graph& g) {
    TensorArray a = array(g, 3).split(g.constant(tensor({3}, {1, 2, 3})),
                                      g.constant(tensor({3}, {2, 0, 1}, DType::i64)));
    TensorArray none = array(g, 3).split(g.constant(tensor({0}, {})),
                                         g.constant(tensor({3}, {0, 0, 0}, DType::i32)));
    return std::vector<Wanted>{{a.read(0), {2}, {1, 2}}, {a.read(1), {0}, {}},
                               {a.read(2), {1}, {3}},    {none.read(0), {0}, {}},
                               {none.read(2), {0}, {}},  {none.size(), {}, {3}},
                               {none.concat(), {0}, {}}};
  });
  auto split = [](Doubles lengths) {
    return [lengths](Graph& g) {
      return list_length(list_split(
          g.constant(tensor({3}, {1, 2, 3})),
          g.constant(tensor({static_cast<std::int64_t>(lengths.size())}, lengths, DType::i64))));
    };
  };
  fails_everywhere(split({2, 2}), Code::invalid_argument, {"sum to 4", "f", "has 3"});
  fails_everywhere(split({4, -1}), Code::invalid_argument, {"-1 rows"});
}

BOOST_AUTO_TEST_CASE(wrong_index_and_wrong_dtype) {  // T8
  for (std::int64_t i : {-1, 3}) {
    std::string index = fmt::format("index {} is outside a list of 3", i);
    fails_everywhere([&](Graph& g) { return array(g, 3).write(i, 1).size(); }, Code::out_of_range,
                     {index, "ListWrite", line(__LINE__ - 1)});
    fails_everywhere([&](Graph& g) { return array(g, 3).read(i); }, Code::out_of_range,
                     {index, "ListRead", line(__LINE__ - 1)});
    fails_everywhere(
        [&](Graph& g) {
          return array(g, 3).gather(g.constant(tensor({1}, {double(i)}, DType::i64)));
        },
        Code::out_of_range, {index, line(__LINE__ - 2)});
  }
  fails_everywhere(
      [](Graph& g) { return array(g, 0, DType::f64, kAnyShape, true).write(-1, 1).size(); },
      Code::out_of_range, {"index -1"});
  fails_everywhere([](Graph& g) { return array(g, -2).size(); }, Code::invalid_argument,
                   {"cannot have -2 elements"});
  Graph g;
  Expr i32 = g.constant(tensor({2}, {1, 2}, DType::i32)),
       f32 = g.constant(tensor({3}, {1, 2, 3}, DType::f32));
  TensorArray ta = array(g, 3, DType::f32, {2});
  refused([&] { ta.write(0, i32); }, Code::invalid_argument,
          {"i32[2] is no element of list(f32[2])", "ListWrite", line(__LINE__ - 1)});
  refused([&] { ta.write(0, f32); }, Code::invalid_argument,
          {"f32[3] is no element of list(f32[2])", line(__LINE__ - 1)});
  refused([&] { list_push(ta.list(), f32); }, Code::invalid_argument,
          {"f32[3] is no element of list(f32[2])", "ListPush", line(__LINE__ - 1)});
  refused([&] { list_push(f32, f32); }, Code::invalid_argument,
          {"input 0 must be a list, not f32[3]", line(__LINE__ - 1)});
  refused([&] { ta.read(0.5); }, Code::invalid_argument,
          {"the index must be i32 or i64", line(__LINE__ - 1)});
  refused([&] { ta.read(i32); }, Code::invalid_argument,
          {"the index must have rank 0", line(__LINE__ - 1)});
  refused([&] { ta.unstack(i32); }, Code::invalid_argument,
          {"list(i32[])", "list(f32[2])", line(__LINE__ - 1)});
  refused([&] { ta.list() + 1.0; }, Code::invalid_argument, {"input 0 is a list", line(__LINE__)});
  refused([&] { TensorArray{f32}; }, Code::invalid_argument,
          {"a TensorArray is a list of tensors, not f32[3]"});
  // A shape that only the run knows.
  for (const Place& place : all_places()) {
    Graph open;
    Expr x = open.input("x", DType::f32, {kAny}),
         y = array(open, 3, DType::f32, {2}).write(0, x).size();
    BOOST_TEST(place.evaluate(open, {{x, tensor({2}, {1, 2}, DType::f32)}}, {y})[0].at(0) == 3);
    refused(
        [&] {
          place.evaluate(open, {{x, tensor({3}, {1, 2, 3}, DType::f32)}}, {y});
        },
        Code::invalid_argument, {"f32[3] is no element of a list(f32[2])", line(__LINE__ - 6)});
  }
}

// An index is fed: whatever it is, it is refused, and nothing is allocated for it.
BOOST_AUTO_TEST_CASE(an_index_beyond_all_bounds) {
  for (int bits : {31, 34, 40, 60}) {
    const std::int64_t i = std::int64_t{1} << bits;
    const std::string index = fmt::format("index {} is beyond the 2147483648 elements", i);
    fails_everywhere([&](Graph& g) { return array(g, 0, DType::f64, {}, true).write(i, 1).size(); },
                     Code::out_of_range, {index, "ListWrite", line(__LINE__ - 1)});
    fails_everywhere(
        [&](Graph& g) {
          return list_length(list_scatter(g.constant(tensor({1}, {double(i)}, DType::i64)),
                                          g.constant(tensor({1}, {5}))));
        },
        Code::out_of_range, {index, "ListScatter"});
    if (bits > 31)
      fails_everywhere([&](Graph& g) { return array(g, i).size(); }, Code::out_of_range,
                       {fmt::format("cannot have {} elements", i), "ListReserve"});
  }
}

BOOST_AUTO_TEST_CASE(an_element_is_written_once) {  // T9
  fails_everywhere([](Graph& g) { return array(g, 3).write(2, 1).write(2, 2).size(); },
                   Code::failed_precondition,
                   {"element 2 was written before", "ListWrite", line(__LINE__ - 2)});
  fails_everywhere(
      [](Graph& g) {
        return list_length(list_scatter(g.constant(tensor({2}, {1, 1}, DType::i64)),
                                        g.constant(tensor({2}, {5, 6}))));
      },
      Code::failed_precondition, {"element 1 was written before"});
}

BOOST_AUTO_TEST_CASE(reading_destroys_nothing) {  // T10
  run_all_configurations([](Graph& g) {
    TensorArray ta = array(g, 3).write(0, g.constant(tensor({2}, {1, -1})));
    return std::vector<Wanted>{{ta.read(0), {2}, {1, -1}}, {ta.read(0), {2}, {1, -1}}};
  });
}

BOOST_AUTO_TEST_CASE(lists_are_values) {
  run_all_configurations([](Graph& g) {
    Expr a = list_push(list_push(list_empty(g, {DType::f64, {}}), 1.0), 2.0);
    Expr b = list_push(a, 3.0), c = list_push(a, 4.0);
    auto [rest, last] = list_pop(b);
    TensorArray ta = array(g, 2, DType::f64, {}), one = ta.write(0, 7), two = ta.write(0, 8);
    return std::vector<Wanted>{{list_stack(a), {2}, {1, 2}},
                               {list_stack(b), {3}, {1, 2, 3}},
                               {list_stack(c), {3}, {1, 2, 4}},
                               {list_stack(rest), {2}, {1, 2}},
                               {last, {}, {3}},
                               {one.stack(), {2}, {7, 0}},
                               {two.stack(), {2}, {8, 0}},
                               {ta.stack(), {2}, {0, 0}},
                               {list_length(identity(b)), {}, {3}},
                               {list_length(stop_gradient(b)), {}, {3}},
                               {group({a, b}), {}, {1}}};
  });
}

BOOST_AUTO_TEST_CASE(dynamic_size_and_scatter) {
  run_all_configurations([](Graph& g) {
    TensorArray ta = array(g, 0, DType::f64, {}, true).write(2, 5).write(0, 3);
    Expr x = g.constant(tensor({3, 2}, {1, 2, 3, 4, 5, 6})),
         at = g.constant(tensor({3}, {4, 0, 2}, DType::i32));
    Expr by_need = list_scatter(at, x), sized = list_scatter(at, x, 6);
    TensorArray into = array(g, 5, DType::f64, {2}).scatter(at, x);
    return std::vector<Wanted>{{ta.size(), {}, {3}},
                               {ta.stack(), {3}, {3, 0, 5}},
                               {list_length(by_need), {}, {5}},
                               {list_stack(sized), {6, 2}, {3, 4, 0, 0, 5, 6, 0, 0, 1, 2, 0, 0}},
                               {into.stack(), {5, 2}, {3, 4, 0, 0, 5, 6, 0, 0, 1, 2}}};
  });
  fails_everywhere(
      [](Graph& g) {
        return array(g, 2)
            .scatter(g.constant(tensor({1}, {2}, DType::i64)), g.constant(tensor({1}, {1})))
            .size();
      },
      Code::out_of_range, {"index 2 is outside a list of 2", "ListScatter"});
  Graph g;
  Expr two = g.constant(tensor({2}, {0, 1}, DType::i64)),
       three = g.constant(tensor({3}, {1, 2, 3}));
  refused([&] { list_scatter(two, three); }, Code::invalid_argument,
          {"[2] indices for the slices of [3]", line(__LINE__ - 1)});
}

BOOST_AUTO_TEST_CASE(elements_of_several_shapes_do_not_stack) {
  auto mixed = [](Graph& g) {
    return array(g, 2)
        .write(0, g.constant(tensor({2}, {1, 2})))
        .write(1, g.constant(tensor({3}, {1, 2, 3})));
  };
  fails_everywhere([&](Graph& g) { return mixed(g).stack(); }, Code::invalid_argument,
                   {"elements 0 and 1 have shapes [2] and [3]", "ListStack"});
  fails_everywhere([&](Graph& g) { return array(g, 1).write(0, 1).concat(); },
                   Code::invalid_argument, {"element 0 is a scalar"});
  run_all_configurations([&](Graph& g) {
    return std::vector<Wanted>{{mixed(g).concat(), {5}, {1, 2, 1, 2, 3}}};
  });
  Graph g;
  refused([&] { array(g, 2, DType::f64, {}).concat(); }, Code::invalid_argument,
          {"scalars are not concatenated", line(__LINE__ - 1)});
}

BOOST_AUTO_TEST_CASE(lists_of_lists) {
  run_all_configurations([](Graph& g) {
    ValueSpec numbers{DType::f64, {}};
    Expr one = list_push(list_empty(g, numbers), 1.0), two = list_push(one, 2.0);
    Expr outer = list_push(list_push(list_empty(g, numbers.list_of()), one), two);
    BOOST_TEST(outer.spec().text() == "list(list(f64[]))");
    auto [rest, last] = list_pop(outer);
    Expr reserved = list_write(list_reserve(g, 3, numbers.list_of()), 2, two);
    return std::vector<Wanted>{{list_stack(last), {2}, {1, 2}},
                               {list_stack(list_read(outer, 0)), {1}, {1}},
                               {list_length(rest), {}, {1}},
                               {list_stack(list_read(reserved, 2)), {2}, {1, 2}},
                               {list_length(list_read(reserved, 0)), {}, {0}}};
  });
  Graph g;
  ValueSpec numbers{DType::f64, {}};
  Expr outer = list_empty(g, numbers.list_of());
  refused([&] { list_stack(outer); }, Code::invalid_argument,
          {"a list of tensors, not list(list(f64[]))", line(__LINE__ - 1)});
  refused([&] { list_push(outer, 1.0); }, Code::invalid_argument,
          {"f64[] is no element of list(list(f64[]))"});
  refused([&] { list_push(outer, outer); }, Code::invalid_argument, {"is no element"});
}

BOOST_AUTO_TEST_CASE(lists_of_anything) {
  run_all_configurations([](Graph& g) {
    Expr any = list_push(list_push(list_of_any(g), g.constant(tensor({2}, {1, 2}))),
                         g.constant(tensor({}, {7}, DType::i64)));
    any = list_push(list_push(any, list_unstack(g.constant(tensor({2}, {3, 4})))), any);
    auto [rest, frame] = list_pop(any, any.spec());
    auto [rest2, list] = list_pop(rest, {DType::f64, {}, 1});
    return std::vector<Wanted>{
        {list_length(frame), {}, {2}},
        {list_stack(list), {2}, {3, 4}},
        {list_read(rest2, 1, {DType::i64, {}}), {}, {7}},
        {list_pop(list_pop(rest2, {DType::i64, {}}).list, {DType::f64, {2}}).value, {2}, {1, 2}}};
  });
  fails_everywhere(
      [](Graph& g) {
        return list_pop(list_push(list_of_any(g), g.constant(1.0)), {DType::i64, {}}).value;
      },
      Code::invalid_argument, {"the element is f64[], not i64[]", line(__LINE__ - 2)});
  Graph g;
  Expr any = list_of_any(g);
  refused([&] { list_pop(any); }, Code::invalid_argument,
          {"give the dtype and shape", line(__LINE__ - 1)});
}

BOOST_AUTO_TEST_CASE(indices_may_be_computed) {
  // On the simulated device these are in its memory.
  for (const Place& place : all_places()) {
    Graph g;
    Expr at = g.input("at", DType::i64, {2}), i = g.input("i", DType::i64, {1});
    Expr k = sum(i);
    TensorArray ta = TensorArray(g, {.dtype = DType::f64, .element_shape = {}, .size = k + 3})
                         .write(k, 5)
                         .scatter(at + 1, g.constant(tensor({2}, {8, 9})));
    Expr pieces = list_split(g.constant(tensor({4}, {1, 2, 3, 4})), at + 2);
    std::vector<Tensor> got = place.evaluate(
        g, {{at, tensor({2}, {-1, 1}, DType::i64)}, {i, tensor({1}, {1}, DType::i64)}},
        {ta.stack(), ta.read(k + 1), ta.gather(at + 1), list_read(pieces, k)});
    same(got[0], {4}, {8, 5, 9, 0}, place.name);
    same(got[1], {}, {9}, place.name);
    same(got[2], {2}, {8, 9}, place.name);
    same(got[3], {3}, {2, 3, 4}, place.name);
    refused(
        [&] {
          place.evaluate(
              g, {{at, tensor({2}, {-1, 5}, DType::i64)}, {i, tensor({1}, {1}, DType::i64)}},
              {ta.stack()});
        },
        Code::out_of_range, {"index 6 is outside a list of 4", "ListScatter"});
  }
}

BOOST_AUTO_TEST_CASE(a_list_is_neither_fed_nor_fetched) {
  for (const Place& place : all_places()) {
    Graph g;
    Expr list = list_unstack(g.constant(tensor({2}, {1, 2})));
    refused([&] { place.evaluate(g, {}, {list}); }, Code::invalid_argument,
            {"ListUnstack", "yields a list, which is not fetched", line(__LINE__ - 2)});
    refused(
        [&] {
          place.evaluate(g, {{list, tensor({2}, {1, 2})}}, {list_length(list)});
        },
        Code::invalid_argument, {"yields a list, which is not fed"});
  }
}

BOOST_AUTO_TEST_CASE(an_array_is_an_operand) {
  run_all_configurations([](Graph& g) {
    TensorArray ta = array(g, 3, DType::f64, {}).write(0, 5);
    auto [n, filled] = while_loop([](Expr i, TensorArray) { return i < 3; },
                                  [](Expr i, TensorArray a) {
                                    return std::tuple{i + 1, a.write(i, a.read(i - 1) * 2)};
                                  },
                                  std::tuple{g.constant(1), ta});
    TensorArray chosen = cond(
        n > 2, [&] { return TensorArray(filled); }, [&] { return ta; });
    return std::vector<Wanted>{{list_stack(chosen), {3}, {5, 10, 20}},
                               {list_read(ta, 0), {}, {5}},
                               {chosen.size() + list_length(ta), {}, {6}}};
  });
}

BOOST_AUTO_TEST_CASE(eager_lists) {
  Eager e;
  TensorArray ta = TensorArray(e, {.dtype = DType::f32, .element_shape = {2}, .size = 2})
                       .write(1, e.constant(tensor({2}, {1, 2}, DType::f32)));
  BOOST_TEST(ta.list().spec().text() == "list(f32[2])");
  same(ta.stack().value(), {2, 2}, {0, 0, 1, 2}, "stack");
  same(ta.read(1).value(), {2}, {1, 2}, "read");
  BOOST_TEST(ta.list().held().list().bytes() == 8u);
  refused([&] { ta.list().value(); }, Code::failed_precondition, {"a list is no tensor"});
  refused([&] { ta.read(2); }, Code::out_of_range,
          {"index 2 is outside a list of 2", "ListRead", line(__LINE__ - 1)});
  Expr list = list_empty(e, {DType::f64, {}});
  const void* log = nullptr;
  for (int i = 0; i < 100; ++i) {  // the old list lives while the new one is made: still in place
    list = list_push(list, double(i));
    if (i == 0) log = &list.held().list().slot(0);
  }
  BOOST_TEST((&list.held().list().slot(0) == log));
  auto [rest, last] = list_pop(list);
  BOOST_TEST(last.value().item<double>() == 99);
  BOOST_TEST(list_length(rest).value().item<std::int64_t>() == 99);
  Graph g;
  refused(
      [&] {
        list_push(list_empty(g, ValueSpec{DType::f64, {}}.list_of()), list);
      },
      Code::failed_precondition, {"a list is no tensor"});
}

// ---- gradients

BOOST_AUTO_TEST_CASE(gradient_of_write_and_read) {  // T12
  run_all_configurations([](Graph& g) {
    Expr v0 = g.constant(tensor({1, 2}, {4, 5})), v1 = g.constant(1.0);
    TensorArray ta = array(g, 3).write(0, v0).write(1, v1);
    Exprs d = gradients({ta.read(0), ta.read(0), ta.read(1)}, {v0, v1},
                        {g.constant(tensor({1, 2}, {2, 3})), g.constant(tensor({1, 2}, {1, -1})),
                         g.constant(-2.0)});
    return std::vector<Wanted>{{d[0], {1, 2}, {3, 2}}, {d[1], {}, {-2}}};
  });
}

BOOST_AUTO_TEST_CASE(gradient_of_stack_concat_and_read) {  // T13
  for (const Shape& element : {kAnyShape, Shape{2}})
    run_all_configurations([&](Graph& g) {
      Expr v0 = g.constant(tensor({2}, {1, 2})), v1 = g.constant(tensor({2}, {3, 4}));
      TensorArray ta = array(g, 2, DType::f64, element).write(0, v0).write(1, v1);
      Exprs d =
          gradients({ta.stack(), ta.read(0), ta.concat()}, {v0, v1},
                    {g.constant(tensor({2, 2}, {2, 3, 4, 5})), g.constant(tensor({2}, {-.5, 1.5})),
                     g.constant(tensor({4}, {20, 30, 40, 50}))});
      return std::vector<Wanted>{{d[0], {2}, {21.5, 34.5}}, {d[1], {2}, {44, 55}}};
    });
}

BOOST_AUTO_TEST_CASE(gradient_of_unstack_and_read) {  // T14
  run_all_configurations([](Graph& g) {
    Expr x = g.constant(tensor({2, 2}, {1, 2, 3, 4}));
    TensorArray ta = array(g, 2).unstack(x);
    Exprs d = gradients({ta.read(0), ta.read(0), ta.read(1)}, {x},
                        {g.constant(tensor({2}, {2, 3})), g.constant(tensor({2}, {-1.5, 1.5})),
                         g.constant(tensor({2}, {4, 5}))});
    Expr partly = gradients({ta.read(1)}, {x}, {g.constant(tensor({2}, {4, 5}))})[0];
    return std::vector<Wanted>{{d[0], {2, 2}, {.5, 4.5, 4, 5}}, {partly, {2, 2}, {0, 0, 4, 5}}};
  });
}

BOOST_AUTO_TEST_CASE(gradient_of_split_and_concat) {  // T15
  run_all_configurations([](Graph& g) {
    Expr x = g.constant(tensor({3, 2}, {1, 2, 3, 4, 5, 6}));
    TensorArray ta = array(g, 2).split(x, g.constant(tensor({2}, {2, 1}, DType::i64)));
    Expr d =
        gradients({ta.concat()}, {x}, {g.constant(tensor({3, 2}, {2, -2, 20, -20, 200, -200}))})[0];
    Expr partly = gradients({ta.read(1)}, {x}, {g.constant(tensor({1, 2}, {4, 5}))})[0];
    return std::vector<Wanted>{{d, {3, 2}, {2, -2, 20, -20, 200, -200}},
                               {partly, {3, 2}, {0, 0, 0, 0, 4, 5}}};
  });
}

BOOST_AUTO_TEST_CASE(cotangents_that_are_lists) {
  run_all_configurations([](Graph& g) {
    Expr x = g.constant(tensor({3}, {1, 2, 3})), list = list_unstack(x),
         dl = list_unstack(g.constant(tensor({3}, {5, 6, 7})));
    Expr by_dy = gradients({list}, {x}, {dl})[0];
    Expr of_list = gradients(list_read(list, 1) * 4.0, list)[0];
    Expr unconnected = gradients(g.constant(1.0), list)[0];
    Expr of_pushed = gradients(list_read(list_push(list, 4.0), 3) * list_read(list, 0), list)[0];
    // whatever dl holds past the rest's end
    Expr of_popped = gradients({list_pop(list).list}, {x}, {dl})[0];
    return std::vector<Wanted>{{by_dy, {3}, {5, 6, 7}},
                               {list_read(of_list, 1), {}, {4}},
                               {list_length(of_list), {}, {2}},
                               {list_length(unconnected), {}, {0}},
                               {list_stack(of_pushed), {3}, {4, 0, 0}},
                               {of_popped, {3}, {5, 6, 0}}};
  });
  run_all_configurations([](Graph& g) {  // in either order
    Expr list = list_unstack(g.constant(tensor({3}, {1, 2, 3})));
    Cotangent one = Cotangent::sparse(g.constant(std::int64_t{1}), g.constant(5.0), list),
              other = Cotangent::sparse(g.constant(std::int64_t{0}), g.constant(7.0), list);
    return std::vector<Wanted>{
        {list_stack(add(one, Cotangent(list)).to_dense()), {3}, {1, 7, 3}},
        {list_stack(add(Cotangent(list), one).to_dense()), {3}, {1, 7, 3}},
        {list_stack(add(one, other).to_dense()), {2}, {7, 5}},
        {list_stack(add(Cotangent(list), add(one, one)).to_dense()), {3}, {1, 12, 3}},
        {list_stack(add(Cotangent(list), Cotangent(zero_cotangent(list))).dense), {3}, {1, 2, 3}},
        {list_stack(
             add(Cotangent(list_push(list_empty(g, {DType::f64, kAnyShape}), 5.0)), Cotangent(list))
                 .dense),
         {3},
         {6, 2, 3}}};
  });
  Graph g;
  Expr x = g.constant(tensor({3}, {1, 2, 3}));
  refused([&] { gradients(list_unstack(x), x); }, Code::invalid_argument,
          {"a list has no ones", line(__LINE__ - 1)});
  Expr list = list_unstack(x);
  refused([&] { gradients({list}, {x}, {x}); }, Code::invalid_argument,
          {"must be list(f64[]), not f64[3]"});
  // Integers and bools in a list carry none.
  Expr ints = list_unstack(cast(x, DType::i64)), y = cast(list_read(ints, 0), DType::f64) * sum(x);
  BOOST_TEST(evaluate_eagerly(g, {}, gradients(y, x))[0].at(2) == 1);
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_differences) {
  std::int64_t compared = 0;
  std::vector<Place> everywhere_else = all_places();
  for (const ListRow& row : list_rows())
    for (bool open : {false, true}) {
      try {
        CheckOptions options{.tolerance = 1e-6, .order = 2, .open_shapes = open};
        CheckReport report = check_gradients(row.f, row.xs, options);
        BOOST_CHECK_MESSAGE(report.ok(), row.name << (open ? " (open): " : ": ") << report.text);
        compared += report.compared;
        options.tolerance = 1e-12;
        report = check_dot_product(row.f, row.xs, options);
        BOOST_CHECK_MESSAGE(report.ok(), row.name
                                             << (open ? " (open), transposed: " : ", transposed: ")
                                             << report.text);
        // The other places give what the interpreter gives on the host.
        options.order = 1;
        for (const Place& place : everywhere_else) {
          options.evaluate = place.evaluate;
          report = check_dot_product(row.f, row.xs, options);
          BOOST_CHECK_MESSAGE(report.ok(), row.name << (open ? " (open), " : ", ") << place.name
                                                    << ": " << report.text);
        }
      } catch (const Error& e) {
        BOOST_ERROR(row.name << (open ? " (open)" : "") << " threw: " << e.what());
      }
    }
  fmt::print("lists: gradients of {} rows, {} numbers compared with differences\n",
             list_rows().size(), compared);
}

// The table of operations leaves to this suite what test/ops/tables/elsewhere.hpp names: just those
// stand in the graphs whose values and gradients, twice, were checked above.
BOOST_AUTO_TEST_CASE(just_the_list_ops_that_the_table_leaves_were_met) {
  std::set<std::string> met, left;
  for (const ListRow& row : list_rows()) {
    Graph g;
    Exprs xs, squares;
    for (const Tensor& x : row.xs)
      xs.push_back(g.input(fmt::format("x{}", xs.size()), DType::f64,
                           x.rank() == 2 ? Shape{kAny, kAny} : Shape{kAny}));
    for (const Expr& d : gradients(row.f(g, xs), xs)) squares.push_back(d * d);
    gradients(squares, xs);
    for (const Node& node : g.nodes()) {
      bool of_lists = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [](const ValueSpec& s) { return s.is_list(); });
      for (Edge e : node.inputs) of_lists = of_lists || g.spec(e).is_list();
      if (of_lists && node.op->name != "Identity") met.insert(node.op->name);
    }
  }
  for (const auto& [op, suite] : elsewhere())
    if (suite == kLists) left.insert(op);
  BOOST_TEST(met == left, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
