// Not under tsan: it has one thread.
// Checkpoints of objects: what is saved under which name, matching by edges, objects that come to
// be later, and what does not fit.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/object_checkpoint.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/test/support/eager_scopes.hpp>
#include <troupe/test/support/temp_directory.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(object_checkpoint_test)

namespace {

struct Layer {
  Variable w;
  std::optional<Variable> bias = {};
  void objects(ObjectEdges& to) { to.add("w", w).add("bias", bias); }
};

Layer layer(Eager& e, const std::string& name, double value) {
  return {e.variable(name + "/w", Tensor::of<double>({value, value}, {2}))};
}

using Names = std::vector<std::string>;

Names names_in(const std::string& file) {
  Names names;
  for (const auto& [name, value] : load_safetensors(file).tensors) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

BOOST_AUTO_TEST_CASE(objects_are_matched_by_edges_not_by_names) {
  const Folder folder;
  const std::string file = folder / "run";
  {
    Eager e;
    std::vector<Layer> layers = {layer(e, "first", 1), layer(e, "second", 2)};
    std::int64_t epoch = 7;
    std::string note = "warm";
    Tensor mask = Tensor::of<float>({1, 0});
    ObjectCheckpoint checkpoint(e);
    checkpoint.add("layers", layers)
        .add("epoch", epoch)
        .add("note", note)
        .add("mask", mask)
        .save(file);
  }
  BOOST_TEST(names_in(file) == (Names{"epoch", "layers/0/w", "layers/1/w", "mask", "note"}));
  in_each_scope([&](Eager& e) {
    std::vector<Layer> layers = {layer(e, "a", 0), layer(e, "b", 0)};
    std::int64_t epoch = 0;
    std::string note;
    Tensor mask = Tensor::of<float>({0, 0});
    ObjectCheckpoint checkpoint(e);
    checkpoint.add("layers", layers).add("epoch", epoch).add("note", note).add("mask", mask);
    const Restoration r = checkpoint.restore(file);
    BOOST_TEST(r.is_complete());
    BOOST_TEST(numbers(layers[0].w.read()) == (Numbers{1, 1}));
    BOOST_TEST(numbers(layers[1].w.read()) == (Numbers{2, 2}));
    BOOST_TEST(epoch == 7);
    BOOST_TEST(note == "warm");
    BOOST_TEST(mask.at(0) == 1);
  });
}

BOOST_AUTO_TEST_CASE(a_shared_object_is_saved_once) {
  const Folder folder;
  const std::string file = folder / "run";
  {
    Eager e;
    auto tied = std::make_shared<Layer>(layer(e, "tied", 3));
    Variable w = tied->w;
    ObjectCheckpoint checkpoint(e);
    checkpoint.add("encoder", tied).add("decoder", tied).add("w", w).save(file);
  }
  BOOST_TEST(names_in(file) == Names{"encoder/w"});
  Eager e;
  Layer encoder = layer(e, "encoder", 0), decoder = layer(e, "decoder", 0);
  ObjectCheckpoint checkpoint(e);
  checkpoint.add("decoder", decoder).add("encoder", encoder);
  BOOST_TEST(checkpoint.restore(file).is_complete());
  BOOST_TEST(numbers(encoder.w.read()) == (Numbers{3, 3}));
  BOOST_TEST(numbers(decoder.w.read()) == (Numbers{3, 3}));
}

BOOST_AUTO_TEST_CASE(optimizers_and_draws_go_on) {
  const Folder folder;
  const std::string file = folder / "run";
  const auto step = [](Eager& e, const Layer& l, const Optimizer& optimizer) {
    GradientTape tape;
    Expr noise = e.random_normal({2}, DType::f64);
    Expr loss = sum(square(l.w.read() - 1.0 + 0.1 * noise));
    optimizer.apply(tape.gradient(loss, {l.w}), {l.w});
  };
  Numbers wanted;
  {
    Eager e;
    e.set_seed(5);
    Layer l = layer(e, "l", 4);
    Adam adam({.learning_rate = 0.1});
    ObjectCheckpoint checkpoint(e);
    checkpoint.add("layer", l).add("adam", adam).add("random", e);
    for (int i = 0; i < 3; ++i) step(e, l, adam);
    checkpoint.save(file);
    for (int i = 0; i < 3; ++i) step(e, l, adam);
    wanted = numbers(l.w.read());
  }
  const Names names = names_in(file);
  BOOST_TEST(std::count(names.begin(), names.end(), "random") == 1);
  BOOST_TEST(std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("adam/slots/layer/w/");
  }));
  Eager e;
  Layer l = layer(e, "renamed", 0);
  Adam adam({.learning_rate = 0.1});
  ObjectCheckpoint checkpoint(e);
  checkpoint.add("layer", l).add("adam", adam).add("random", e);
  const Restoration r = checkpoint.restore(file);
  BOOST_TEST(r.text() == "");
  for (int i = 0; i < 3; ++i) step(e, l, adam);
  BOOST_TEST(numbers(l.w.read()) == wanted);
}

BOOST_AUTO_TEST_CASE(pairs_maps_and_values_are_objects) {
  const Folder folder;
  const std::string file = folder / "run";
  struct Objects {
    std::pair<Variable, std::int64_t> counted;
    std::map<std::string, Variable> named;
    Exprs values;
    void objects(ObjectEdges& to) {
      to.add("counted", counted).add("named", named).add("values", values);
    }
  };
  const auto made = [](Eager& e, double v) {
    return Objects{{e.variable("c", Tensor::scalar(v)), static_cast<std::int64_t>(v)},
                   {{"x", e.variable("x", Tensor::scalar(v + 1))}},
                   {e.constant(v + 2), e.constant(v + 3)}};
  };
  {
    Eager e;
    Objects all = made(e, 4);
    ObjectCheckpoint(e).add("all", all).save(file);
  }
  BOOST_TEST(names_in(file) == (Names{"all/counted/0", "all/counted/1", "all/named/x",
                                      "all/values/0", "all/values/1"}));
  in_each_scope([&](Eager& e) {
    Objects all = made(e, 0);
    ObjectCheckpoint checkpoint(e);
    BOOST_TEST(checkpoint.add("all", all).restore(file).is_complete());
    BOOST_TEST(number(all.counted.first.read()) == 4);
    BOOST_TEST(all.counted.second == 4);
    BOOST_TEST(number(all.named.at("x").read()) == 5);
    BOOST_TEST(number(all.values[1]) == 7);
  });
}

BOOST_AUTO_TEST_CASE(keys_that_are_no_integers_keep_their_digits) {
  const Folder folder;
  const std::string file = folder / "run";
  struct Objects {
    std::map<double, std::int64_t> doubles = {{0.1, 1}, {0.1000001, 2}, {1e-9, 3}, {2, 4}};
    std::map<float, std::int64_t> floats = {{0.1F, 5}};
    std::map<long double, std::int64_t> longs = {{0.1L, 6}};
    std::map<int, std::int64_t> integers = {{-3, 7}};
    void objects(ObjectEdges& to) {
      to.add("d", doubles).add("f", floats).add("l", longs).add("i", integers);
    }
  };
  Eager e;
  Objects all, other;
  ObjectCheckpoint(e).add("all", all).save(file);
  BOOST_TEST(names_in(file) == (Names{"all/d/0.1", "all/d/0.1000001", "all/d/1e-09", "all/d/2",
                                      "all/f/0.1", "all/i/-3", "all/l/0.1"}));
  for (auto& [key, value] : other.doubles) value = 0;
  other.floats[0.1F] = other.longs[0.1L] = other.integers[-3] = 0;
  BOOST_TEST(ObjectCheckpoint(e).add("all", other).restore(file).is_complete());
  BOOST_TEST((other.doubles == all.doubles && other.floats == all.floats &&
              other.longs == all.longs && other.integers == all.integers));
}

BOOST_AUTO_TEST_CASE(keys_of_earlier_files_are_found) {
  Eager e;
  Layer l = layer(e, "l", 1);
  const Momentum momentum({.learning_rate = 0.1});
  momentum.apply(Exprs{matrix(e, {1, 2}, {2})}, {l.w});
  std::map<double, Layer> layers = {{0.1, l}, {2, layer(e, "two", 2)}};
  // an earlier version wrote six digits
  TensorFile earlier;
  const auto add = [&](const std::string& name, double value) {
    earlier.tensors.emplace_back(name, Tensor::of<double>({value, value}, {2}));
  };
  add("layers/0.100000/w", 5);
  add("layers/2.000000/w", 6);
  add("momentum/slots/layers/0.100000/w/velocity", 7);
  ObjectCheckpoint checkpoint(e);
  checkpoint.add("layers", layers).add("momentum", momentum);
  const Restoration r = checkpoint.restore(earlier);
  BOOST_TEST(r.text() == "");
  BOOST_TEST(numbers(layers.at(0.1).w.read()) == (Numbers{5, 5}));
  BOOST_TEST(numbers(layers.at(2).w.read()) == (Numbers{6, 6}));
  BOOST_TEST(numbers(e.find_variable("l/w/momentum/velocity").read()) == (Numbers{7, 7}));

  // one of them had that name, and it is open which
  std::map<double, Layer> close = {{0.1, l}, {0.10000001, layers.at(2)}};
  const Restoration open = ObjectCheckpoint(e).add("layers", close).restore(earlier);
  BOOST_TEST(open.missing() == (Names{"layers/0.1/w", "layers/0.10000001/w"}));
}

BOOST_AUTO_TEST_CASE(slots_that_the_file_does_not_hold_are_missing) {
  const Folder folder;
  const std::string file = folder / "run";
  Eager e;
  Layer l = layer(e, "l", 1);
  const Momentum momentum({.learning_rate = 0.1});
  ObjectCheckpoint checkpoint(e);
  checkpoint.add("l", l).add("momentum", momentum).save(file);
  BOOST_TEST(checkpoint.restore(file).is_complete());
  momentum.apply(Exprs{matrix(e, {1, 2}, {2})}, {l.w});
  const Restoration r = checkpoint.restore(file);
  BOOST_TEST(!r.is_complete());
  BOOST_REQUIRE_EQUAL(r.missing().size(), 1U);
  BOOST_TEST(r.missing()[0].starts_with("momentum/slots/l/w/"));
}

BOOST_AUTO_TEST_CASE(objects_that_shared_a_variable_have_its_slots_each) {
  const Folder folder;
  const std::string file = folder / "run";
  const Momentum momentum({.learning_rate = 0.1});
  const auto step = [&](Eager& e, const Layer& l) {
    momentum.apply(Exprs{matrix(e, {1, 2}, {2})}, {l.w});
  };
  Numbers wanted;
  {
    Eager e;
    Layer l = layer(e, "l", 1);
    step(e, l);
    ObjectCheckpoint(e).add("a", l).add("b", l).add("momentum", momentum).save(file);
    step(e, l);
    wanted = numbers(l.w.read());
  }
  Eager e;
  Layer a = layer(e, "a", 0), b = layer(e, "b", 0);
  ObjectCheckpoint checkpoint(e);
  checkpoint.add("a", a).add("b", b).add("momentum", momentum);
  Restoration r = checkpoint.restore(file);
  BOOST_TEST(r.is_complete());
  step(e, a);
  step(e, b);
  BOOST_TEST(numbers(a.w.read()) == wanted);
  BOOST_TEST(numbers(b.w.read()) == wanted);
  r.update();  // slots are restored once
  step(e, a);
  step(e, b);
  BOOST_TEST(numbers(a.w.read()) == numbers(b.w.read()));
  BOOST_TEST(numbers(a.w.read()) != wanted);
}

BOOST_AUTO_TEST_CASE(a_restoration_outlives_its_checkpoint) {
  const Folder folder;
  const std::string file = folder / "run";
  Eager e;
  Layer l = layer(e, "l", 1);
  l.bias = e.variable("l/bias", Tensor::scalar(9.0));
  ObjectCheckpoint(e).add("layer", l).save(file);
  Layer later = layer(e, "later", 0);
  auto checkpoint = std::make_unique<ObjectCheckpoint>(e);
  Restoration r = checkpoint->add("layer", later).restore(file);
  checkpoint.reset();
  later.bias = e.variable("later/bias", Tensor::scalar(0.0));
  r.update();
  BOOST_TEST(number(later.bias->read()) == 9);
}

BOOST_AUTO_TEST_CASE(objects_that_come_later_get_their_values) {
  const Folder folder;
  const std::string file = folder / "run";
  {
    Eager e;
    Layer l = layer(e, "l", 1);
    l.bias = e.variable("l/bias", Tensor::scalar(9.0));
    ObjectCheckpoint checkpoint(e);
    checkpoint.add("layer", l).save(file);
  }
  in_each_scope([&](Eager& e) {
    Layer l = layer(e, "l", 0);
    ObjectCheckpoint checkpoint(e);
    checkpoint.add("layer", l);
    Restoration r = checkpoint.restore(file);
    BOOST_TEST(r.missing().empty());
    BOOST_TEST(r.left_over() == Names{"layer/bias"});
    auto f = function("f", [&](Expr x) {
      if (!l.bias) l.bias = e.variable("l/bias", Tensor::scalar(0.0));
      return x + *l.bias;
    });
    f(e.constant(1.0));
    l.w.assign(e.constant(Tensor::of<double>({5, 5}, {2})));
    r.update();
    BOOST_TEST(r.is_complete());
    BOOST_TEST(number(f(e.constant(1.0))) == 10);
    BOOST_TEST(numbers(l.w.read()) == (Numbers{5, 5}));  // it was restored before
  });
}

BOOST_AUTO_TEST_CASE(restore_reports_entries_of_one_side_only) {
  const Folder folder;
  const std::string file = folder / "run";
  Eager e;
  Layer l = layer(e, "l", 1);
  std::int64_t epoch = 1, added = 2;
  ObjectCheckpoint saved(e), other(e);
  saved.add("layer", l).add("epoch", epoch).save(file);
  other.add("layer", l).add("added", added);
  const Restoration r = other.restore(file);
  BOOST_TEST(!r.is_complete());
  BOOST_TEST(r.text() == "missing: added; left over: epoch");
  BOOST_TEST(added == 2);
}

BOOST_AUTO_TEST_CASE(a_value_that_does_not_fit_changes_nothing) {
  const Folder folder;
  const std::string file = folder / "run";
  Eager e;
  std::int64_t epoch = 3;
  Layer l = layer(e, "l", 1);
  ObjectCheckpoint saved(e), other(e);
  saved.add("epoch", epoch).add("layer", l).save(file);
  Layer wide{e.variable("wide", Tensor::zeros(DType::f64, {3}))};
  epoch = 0;
  other.add("epoch", epoch).add("layer", wide);
  BOOST_CHECK_EXCEPTION(other.restore(file), Error, [](const Error& error) {
    return says(error, Code::invalid_argument,
                {"'layer/w' is f64[3]", "f64[2]", "nothing was restored"});
  });
  BOOST_TEST(epoch == 0);
}

BOOST_AUTO_TEST_CASE(edges_have_names_of_their_own) {
  Eager e, another;
  std::int64_t n = 0;
  Variable foreign = another.variable("v", Tensor::scalar(1.0));
  const Folder folder;
  const auto refuses = [&](ObjectCheckpoint& checkpoint, const char* part) {
    BOOST_CHECK_EXCEPTION(checkpoint.save(folder / "run"), Error, [&](const Error& error) {
      return says(error, Code::invalid_argument, {part});
    });
  };
  ObjectCheckpoint twice(e), slash(e), elsewhere(e);
  refuses(twice.add("n", n).add("n", n), "two edges of the root are named 'n'");
  refuses(slash.add("a/b", n), "is named 'a/b'");
  refuses(elsewhere.add("v", foreign), "'v' at 'v' is not of the checkpoint's scope");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
