#include <troupe/test/support/programs/random_recipe.hpp>

#include <algorithm>
#include <utility>

namespace troupe::test {
namespace {

/// SplitMix64 (Steele, Lea and Flood, 2014).
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 0x1234567) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  /// In [0, n).
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  /// In [-1, 1), a multiple of 1/1024, and never near 0: f32 holds it.
  double real() {
    int n = below(2048) - 1024;
    return (n >= 0 ? n + 0.5 : n - 0.5) / 1024.0;
  }

 private:
  std::uint64_t state_;
};

class Cook {
 public:
  Cook(std::uint64_t seed, const Tastes& tastes) : dice_(seed), tastes_(tastes) {
    recipe_.seed = seed;
  }

  Recipe cook() {
    recipe_.real = dice_.chance(50) || tastes_.is_smooth ? DType::f64 : DType::f32;
    recipe_.runs = dice_.chance(40) ? 2 : 1;
    // Not by the dice: programs without slopes are what their seeds made before there were any.
    has_slopes_ = static_cast<int>(recipe_.seed * 37 % 100) < tastes_.slopes;
    is_stateful_ = tastes_.variables != Use::none && dice_.chance(70);
    if (is_stateful_)
      for (int k = dice_.between(1, 3); k > 0; --k) {
        Type t = dice_.chance(60) ? Type::f : Type::v;
        recipe_.variables.push_back({t, numbers(t), device()});
      }
    for (Type t : {Type::f, Type::v, Type::m, Type::d, Type::i, Type::b}) {
      if (!dice_.chance(t == Type::f || t == Type::i ? 90 : 50)) continue;
      Recipe::Input in{{fresh(), t}, {}};
      for (int r = 0; r < recipe_.runs; ++r) in.values.push_back(numbers(t));
      recipe_.inputs.push_back(in);
      visible_.push_back(in.name);
    }
    if (dice_.chance(40)) cook_functions();
    fill(recipe_.body, dice_.between(4, 9), 0, 1);
    finish();
    return std::move(recipe_);
  }

 private:
  int fresh() { return next_++; }

  std::vector<double> numbers(Type t) {
    int n = t == Type::v ? 3 : t == Type::m ? 6 : t == Type::d ? dice_.between(1, 4) : 1;
    std::vector<double> out;
    for (int k = 0; k < n; ++k) {
      switch (t) {
        case Type::i:
        case Type::l: out.push_back(dice_.between(0, 9)); break;
        case Type::b: out.push_back(dice_.below(2)); break;
        default: out.push_back(dice_.real());
      }
    }
    return out;
  }

  std::string device() {
    static const char* const names[] = {"cpu:0", "cpu:1", "cpu:2", "sim:0"};
    return dice_.chance(30) ? names[dice_.below(4)] : "";
  }

  // A value of that type: one that is in sight, rather a late one, or a constant.
  Named pick(Block& block, Type t) {
    std::vector<Named> fit;
    for (const Named& n : visible_)
      if (n.type == t) fit.push_back(n);
    if (fit.empty() || dice_.chance(4)) {
      Statement s{"constant", {}, {{fresh(), t}}};
      if (!is_list(t)) s.numbers = numbers(t);
      return add(block, std::move(s));
    }
    std::size_t last = std::min<std::size_t>(fit.size(), 3);
    return dice_.chance(60)
               ? fit[fit.size() - 1 - static_cast<std::size_t>(dice_.below(static_cast<int>(last)))]
               : fit[static_cast<std::size_t>(dice_.below(static_cast<int>(fit.size())))];
  }

  Named add(Block& block, Statement s) {
    for (const Named& n : s.out) visible_.push_back(n);
    Named first = s.out.empty() ? Named{} : s.out[0];
    block.statements.push_back(std::move(s));
    return first;
  }

  std::vector<Type> some_types(int low, int high, bool with_d) {
    static const Type choice[] = {Type::f, Type::f, Type::f, Type::v, Type::v, Type::m,  Type::i,
                                  Type::l, Type::b, Type::F, Type::F, Type::V, Type::FF, Type::d};
    std::vector<Type> out;
    for (int k = dice_.between(low, high); k > 0; --k)
      out.push_back(choice[dice_.below(with_d ? 14 : 13)]);
    return out;
  }

  std::vector<Named> fresh_of(const std::vector<Type>& types) {
    std::vector<Named> out;
    for (Type t : types) out.push_back({fresh(), t});
    return out;
  }

  // `times`: how often the block runs.
  void fill(Block& block, int count, int depth, int times) {
    for (int k = 0; k < count; ++k) {
      const int what = dice_.below(100);
      const bool nests = depth < tastes_.depth;
      if (callable() > 0 && !is_last_ && dice_.chance(is_in_function_ ? 12 : 10)) {
        add_call(block);
        continue;
      }
      if (has_slopes_ && nests && dice_.chance(10)) {
        add_slope(block, depth, times);
        continue;
      }
      if (nests && what < 12) add_cond(block, depth, times);
      else if (nests && what < 15) add_switch(block, depth, times);
      else if (nests && what < 27) add_while(block, depth, times);
      else if (nests && what < 34) add_scan(block, depth, times);
      else add_operation(block);
    }
  }

  void season(Statement& s) {
    s.device = device();
    if (!is_in_function_ && dice_.chance(6) && !visible_.empty())
      s.after.push_back(
          visible_[static_cast<std::size_t>(dice_.below(static_cast<int>(visible_.size())))].id);
  }

  // The arguments of functions are drawn first, because functions call each other; then their
  // bodies.
  void cook_functions() {
    for (int k = dice_.between(1, has_slopes_ ? 4 : 2); k > 0; --k) {
      Recipe::Function f;
      std::vector<Type> arguments{Type::i};
      for (Type t : some_types(0, 3, true)) arguments.push_back(t);
      f.arguments = fresh_of(arguments);
      for (Type t : some_types(1, 2, true)) f.last.results.push_back({-1, t});
      recipe_.functions.push_back(std::move(f));
    }
    is_in_function_ = true;
    for (std::size_t k = 0; k < recipe_.functions.size(); ++k) {
      Recipe::Function& f = recipe_.functions[k];
      std::vector<Type> results;
      for (const Named& n : f.last.results) results.push_back(n.type);
      in_function_ = static_cast<int>(k);
      is_last_ = true;
      f.last = inner(f.arguments, results, 0, 3, 2, 20);
      is_last_ = false;
      f.step = inner(f.arguments, results, 1, 5, 1, 10);
    }
    is_in_function_ = false;
  }

  // How many functions may be called here. A gradient is of functions that are defined, and so are
  // all that they lead to.
  int callable() const {
    const int all = static_cast<int>(recipe_.functions.size());
    return !is_in_function_ || !has_slopes_ ? all : is_in_slope_ ? in_function_ : in_function_ + 1;
  }

  void add_slope(Block& block, int depth, int times) {
    Statement s{"slope", {}, {}};
    const std::vector<Type> types(static_cast<std::size_t>(dice_.between(1, 2)), Type::f);
    for (Type t : types) s.in.push_back(pick(block, t));
    const bool outer = std::exchange(is_in_slope_, true);
    // Differences take four of them for each argument.
    s.blocks.push_back(inner(fresh_of(types), {Type::f}, 2, 5, depth + 1, times * 4));
    is_in_slope_ = outer;
    s.out = fresh_of(types);
    season(s);
    add(block, std::move(s));
  }

  void add_call(Block& block) {
    const int k = dice_.below(callable());
    const Recipe::Function& f = recipe_.functions[static_cast<std::size_t>(k)];
    Statement s{"call", {}, {}};
    for (std::size_t i = 1; i < f.arguments.size(); ++i)
      s.in.push_back(pick(block, f.arguments[i].type));
    std::vector<Type> results;
    for (const Named& n : f.last.results) results.push_back(n.type);
    s.out = fresh_of(results);
    s.numbers = {static_cast<double>(k), static_cast<double>(dice_.between(0, 3))};
    season(s);
    add(block, std::move(s));
  }

  void add_operation(Block& block) {
    if (tastes_.is_large && dice_.chance(20)) {
      const Rule& r = *find_rule(dice_.chance(60) ? "large" : "large_state");
      Statement s{r.name, {}, {}};
      for (Type t : r.in) s.in.push_back(pick(block, t));
      s.out = fresh_of(r.out);
      s.numbers = {dice_.real(), dice_.real()};
      season(s);
      add(block, std::move(s));
      return;
    }
    for (;;) {
      const Rule& r = rule();
      if (r.may_fail && !(tastes_.may_fail && dice_.chance(30))) continue;
      if (r.variable >= 0 && (!is_stateful_ || dice_.chance(30))) continue;
      if (r.is_effect && tastes_.variables == Use::reads) continue;
      if (tastes_.is_large && std::string(r.name) == "unstack_d") continue;
      if (tastes_.is_smooth &&
          (std::string(r.name).rfind("relu", 0) == 0 || std::string(r.name).rfind("clip", 0) == 0 ||
           std::string(r.name).rfind("max", 0) == 0 || std::string(r.name).rfind("min", 0) == 0 ||
           std::string(r.name).rfind("where", 0) == 0))
        continue;
      Statement s{r.name, {}, {}};
      for (Type t : r.in) s.in.push_back(pick(block, t));
      s.out = fresh_of(r.out);
      s.numbers = {dice_.real(), dice_.real()};
      season(s);
      if (r.variable >= 0) s.device.clear();  // on the device of its variable
      add(block, std::move(s));
      return;
    }
  }

  const Rule& rule() {
    static const int total = [] {
      int sum = 0;
      for (const Rule& r : rules()) sum += r.weight;
      return sum;
    }();
    int at = dice_.below(total);
    for (const Rule& r : rules())
      if ((at -= r.weight) < 0) return r;
    return rules()[0];
  }

  // A block of its own scope.
  Block inner(const std::vector<Named>& arguments, const std::vector<Type>& results, int low,
              int high, int depth, int times) {
    Block b;
    b.arguments = arguments;
    std::vector<Named> outside = visible_;
    visible_.insert(visible_.end(), arguments.begin(), arguments.end());
    fill(b, dice_.between(low, high), depth, times);
    for (Type t : results) b.results.push_back(pick(b, t));
    visible_ = std::move(outside);
    return b;
  }

  void add_cond(Block& block, int depth, int times) {
    Statement s{"cond", {pick(block, Type::b)}, {}};
    std::vector<Type> results = some_types(1, 3, true);
    for (int k = 0; k < 2; ++k) s.blocks.push_back(inner({}, results, 0, 4, depth + 1, times));
    s.out = fresh_of(results);
    season(s);
    add(block, std::move(s));
  }

  void add_switch(Block& block, int depth, int times) {
    Statement s{"switch", {pick(block, dice_.chance(50) ? Type::i : Type::l)}, {}};
    std::vector<Type> results = some_types(1, 2, true);
    for (int k = dice_.between(1, 4); k > 0; --k)
      s.blocks.push_back(inner({}, results, 0, 3, depth + 1, times));
    s.out = fresh_of(results);
    season(s);
    add(block, std::move(s));
  }

  int trips(int times) {
    int most = times <= 1 ? tastes_.trips : times <= 6 ? 5 : times <= 25 ? 3 : 1;
    return dice_.chance(12) ? 0 : dice_.between(1, most);
  }

  int parallel() { return dice_.chance(20) ? 32 : dice_.between(1, 8); }

  // An operation as often as not. Not by the dice: programs of earlier seeds stay as they were but
  // for this.
  double made_by() const { return static_cast<double>(std::max(0, next_ % 6 - 2)); }

  void add_while(Block& block, int depth, int times) {
    Statement s{"while", {}, {}};
    std::vector<Type> types = some_types(1, 4, true);
    for (Type t : types) s.in.push_back(pick(block, t));
    const int n = trips(times);
    s.numbers = {static_cast<double>(n), dice_.chance(20) ? 1.0 : 0.0, made_by()};
    s.parallel = parallel();
    std::vector<Type> all{Type::i};
    all.insert(all.end(), types.begin(), types.end());
    std::vector<Type> predicate;
    if (dice_.chance(35)) predicate.push_back(Type::b);
    s.blocks.push_back(
        inner(fresh_of(all), predicate, 0, predicate.empty() ? 1 : 3, depth + 1, times * (n + 1)));
    s.blocks.push_back(inner(fresh_of(all), types, 1, 6, depth + 1, times * std::max(1, n)));
    s.out = fresh_of(all);
    season(s);
    add(block, std::move(s));
  }

  void add_scan(Block& block, int depth, int times) {
    static const char* const names[] = {"map", "scan", "fold"};
    Statement s{names[dice_.below(3)], {}, {}};
    struct Kind {
      Type whole, each;
    };
    static const Kind kinds[] = {{Type::v, Type::f}, {Type::m, Type::v}, {Type::d, Type::f}};
    // not an iteration for each of so many
    const Kind k = kinds[dice_.below(tastes_.is_large ? 2 : 3)];
    s.in.push_back(pick(block, k.whole));
    s.numbers = {1};
    if (dice_.chance(25) && k.whole != Type::d) {
      s.in.push_back(pick(block, k.whole));
      s.numbers = {2};
    }
    std::vector<Type> elements(s.in.size(), k.each), states, arguments, results, out;
    if (s.op != "map")
      for (Type t : some_types(1, 2, false)) {
        // A stacked value must be a tensor whose stack has a type.
        if (s.op == "scan") t = k.whole == Type::m && dice_.chance(50) ? Type::v : Type::f;
        states.push_back(t);
        s.in.push_back(pick(block, t));
      }
    auto stacked = [&](Type t) {
      return t == Type::v ? Type::m : k.whole == Type::v ? Type::v : Type::d;
    };
    if (s.op == "map") {
      for (int r = dice_.between(1, 2); r > 0; --r)
        results.push_back(k.whole == Type::m && dice_.chance(60) ? Type::v : Type::f);
    } else {
      results = states;
    }
    for (Type t : results) out.push_back(s.op == "fold" ? t : stacked(t));
    arguments = states;
    arguments.insert(arguments.end(), elements.begin(), elements.end());
    s.parallel = parallel();
    s.reverse = dice_.chance(30);
    s.blocks.push_back(inner(fresh_of(arguments), results, 1, 4, depth + 1, times * 4));
    s.out = fresh_of(out);
    season(s);
    add(block, std::move(s));
  }

  bool has_effect(const Statement& s) const {
    if (s.op == "call") return is_stateful_;
    const Rule* r = find_rule(s.op);
    if (r && r->is_effect) return true;
    for (const Block& b : s.blocks)
      for (const Statement& inner : b.statements)
        if (has_effect(inner)) return true;
    return false;
  }

  // Fetches from several places; mostly all effects happen, otherwise those that the fetches need.
  void finish() {
    std::vector<Named> fit;
    for (const Named& n : visible_)
      if (!is_list(n.type)) fit.push_back(n);
    for (const Named& n : visible_)
      if (n.type == Type::F || n.type == Type::V) {
        if (!dice_.chance(50)) continue;
        Statement s{n.type == Type::F ? "stack_F" : "concat_V", {n}, {{fresh(), Type::d}}};
        fit.push_back(s.out[0]);
        recipe_.body.statements.push_back(std::move(s));
      }
    std::size_t first = fit.size() > 12 ? fit.size() - 12 : 0;
    for (std::size_t k = first; k < fit.size(); ++k)
      if (dice_.chance(40) || k + 1 == fit.size()) recipe_.body.results.push_back(fit[k]);
    if (dice_.chance(80) || tastes_.does_all) {
      Statement all{"all", {}, {{fresh(), Type::b}}};
      for (const Statement& s : recipe_.body.statements)
        if (has_effect(s) && !s.out.empty()) all.in.push_back(s.out[0]);
      if (!all.in.empty()) {
        recipe_.body.results.push_back(all.out[0]);
        recipe_.body.statements.push_back(std::move(all));
      }
    }
    if (recipe_.body.results.empty()) recipe_.body.results.push_back(pick(recipe_.body, Type::f));
  }

  Dice dice_;
  const Tastes tastes_;
  Recipe recipe_;
  bool is_stateful_ = false;
  bool is_in_function_ = false;
  int in_function_ = 0;  // which
  bool has_slopes_ = false;
  bool is_in_slope_ = false;
  bool is_last_ = false;  // in what a function yields when its counter has come to 0
  std::vector<Named> visible_;
  int next_ = 0;
};

}  // namespace

Recipe random_recipe(std::uint64_t seed, const Tastes& tastes) { return Cook(seed, tastes).cook(); }

}  // namespace troupe::test
