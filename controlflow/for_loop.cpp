// Loops with a counter, and the choice of the first predicate that holds: made of a while_loop and
// a switch_case.
#include <troupe/controlflow/functional.hpp>

#include <limits>
#include <utility>

#include <fmt/format.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {
namespace detail {
namespace {

/// A for_loop's bounds, in one reader: the counter is `first + k * step` for k in [0, count), or,
/// where the step is 1 or -1, goes from `first` to `end` itself.
class CountedLoop {
 public:
  CountedLoop(std::string title, Reader& reader) : title_(std::move(title)), reader_(reader) {}

  void set_bounds(const Operand& begin, const Operand& end, const Operand& step) {
    const std::pair<const char*, const Operand*> all[] = {
        {"begin", &begin}, {"end", &end}, {"step", &step}};
    for (const auto& [what, operand] : all) require_dtype(what, *operand);
    const bool is_known = begin.is_number() && end.is_number();
    const auto by = step.is_number() ? number(step, "step") : std::int64_t{0};
    if (step.is_number() && by == 0) refuse("the step is 0; give it one that is not");
    if (is_known && step.is_number()) {
      const std::int64_t from = number(begin, "begin"), to = number(end, "end");
      (void)constant(to);
      count_ = reader_.constant(known_count(from, to, by), at_source());
    }
    first_ = value(begin, "begin");
    step_ = value(step, "step");
    if (by == 1 || by == -1) {
      is_plain_ = true;
      is_up_ = by > 0;
      end_ = value(end, "end");
    } else if (count_.is_empty()) {
      count_ = counted(value(end, "end"), step.is_number() ? by : std::int64_t{0});
    }
  }

  /// The first value of the loop's own variable.
  Expr start() const { return is_plain_ ? first_ : reader_.constant(std::int64_t{0}, at_source()); }
  Expr goes_on(const Expr& own) const {
    if (!is_plain_) return own < count_;
    return is_up_ ? own < end_ : own > end_;
  }
  Expr counter(const Expr& own) const {
    return is_plain_ ? own : first_ + cast(own, dtype_) * step_;
  }
  Expr next(const Expr& own) const { return is_plain_ ? own + step_ : own + 1; }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Code::invalid_argument, title_ + ": " + why);
  }

 private:
  // Constants are bound within an AtSite, whose line counts.
  static std::source_location at_source() { return std::source_location::current(); }

  void require_dtype(const char* what, const Operand& o) {
    if (o.is_number()) return;
    const ValueSpec spec = o.is_expr() ? o.expr().spec() : spec_of_value(o.literal());
    if (spec.is_list() || (spec.dtype != DType::i32 && spec.dtype != DType::i64) ||
        (spec.shape.has_rank() && !spec.shape.is_scalar()))
      refuse(fmt::format("{} must be a number or an i32 or i64 scalar, not {}", what, spec.text()));
    if (has_dtype_ && spec.dtype != dtype_)
      refuse(fmt::format("{} is {}, and what comes before it {}; cast one of them", what,
                         name_of(spec.dtype), name_of(dtype_)));
    has_dtype_ = true;
    dtype_ = spec.dtype;
  }
  std::int64_t number(const Operand& o, const char* what) const {
    return o.number_as(DType::i64, fmt::format("{}: {} ", title_, what)).item<std::int64_t>();
  }
  Expr constant(std::int64_t n) const {
    return reader_.constant(Operand(n).number_as(dtype_, title_ + ": a bound "), at_source());
  }
  Expr value(const Operand& o, const char* what) const {
    if (o.is_number())
      return reader_.constant(o.number_as(dtype_, fmt::format("{}: {} ", title_, what)),
                              at_source());
    const Expr e = o.is_expr() ? o.expr() : reader_.constant(o.literal(), at_source());
    const Expr here = &e.reader() == &reader_ ? e : reader_.adopt(e, o.site());
    return here.shape().has_rank() ? here : reshape(here, Shape{});
  }
  std::int64_t known_count(std::int64_t from, std::int64_t to, std::int64_t by) const {
    const __int128 gap = static_cast<__int128>(to) - from;
    __int128 n = gap / by + (gap % by != 0 && (gap > 0) == (by > 0));
    if (n < 0) n = 0;
    if (n > std::numeric_limits<std::int64_t>::max()) refuse("it has more iterations than an i64");
    return static_cast<std::int64_t>(n);
  }
  // Returns the number of iterations. `by`: the step, 0 if it is known only at run time.
  Expr counted(const Expr& end, std::int64_t by) {
    if (by == 0)
      step_ = bind1("Require", {step_, step_ != 0},
                    Attrs{{"what", title_ + ": the step is 0; give it one that is not"}});
    const Expr gap = cast(end, DType::i64) - cast(first_, DType::i64),
               step = cast(step_, DType::i64), size = abs(step),
               way = by == 0  ? where(step > 0, gap, -gap)
                     : by > 0 ? gap
                              : -gap;
    return where(way > 0, (maximum(way, 1) - 1) / size + 1, std::int64_t{0});
  }

  std::string title_;
  Reader& reader_;
  DType dtype_ = DType::i64;
  bool has_dtype_ = false, is_plain_ = false, is_up_ = true;
  Expr first_, end_, step_, count_;
};

std::string title_of(const char* what, const std::string& name, const Site& at) {
  return name.empty() ? fmt::format("{} ({})", what, at.text())
                      : fmt::format("{} '{}' ({})", what, name, at.text());
}

}  // namespace

Exprs for_loop(Reader* reader, const Operand& begin, const Operand& end, const Operands& initial,
               const LoopBody& body, const ForOptions& options, const Site& at) {
  const std::string title = title_of("for_loop", options.name, at);
  if (!reader) {
    Operands all = initial;
    all.insert(all.end(), {begin, end, options.step});
    reader = reader_of(all);
  }
  const auto refuse = [&](const std::string& why) {
    throw Error(Code::invalid_argument, title + ": " + why);
  };
  if (!reader)
    refuse(
        "neither a bound nor a variable is an expression; pass the graph, or start one from "
        "g.constant(...)");
  Reader& here = reader->current();
  if (const auto* graph = dynamic_cast<Graph*>(&here); initial.empty() && graph && !graph->outer())
    refuse(
        "it has no variables, so that nothing could ask for its end and it would never run; "
        "give it one");
  if (options.shape_invariants.size() > initial.size())
    refuse(fmt::format("{} shape invariants are given for {} variables",
                       options.shape_invariants.size(), initial.size()));
  CountedLoop loop(title, here);
  Operands variables = initial;
  {
    const Reader::AtSite line(here, at);
    loop.set_bounds(begin, end, options.step);
    variables.emplace_back(loop.start(), at);
  }
  const WhileOptions how{.name = options.name,
                         .parallel_iterations = options.parallel_iterations,
                         .shape_invariants = options.shape_invariants,
                         .back_prop = options.back_prop};
  Exprs last = while_loop(
      &here, variables,
      [&](const Exprs& v) {
        const Reader::AtSite line(v.back().reader(), at);
        return loop.goes_on(v.back());
      },
      [&](const Exprs& v) {
        Exprs seen = v;
        {
          const Reader::AtSite line(v.back().reader(), at);
          seen.back() = loop.counter(v.back());
        }
        Operands next = body(seen);
        if (next.size() != initial.size())
          refuse(fmt::format("its body yields {} values for {} variables", next.size(),
                             initial.size()));
        const Reader::AtSite line(v.back().reader(), at);
        next.emplace_back(loop.next(v.back()), at);
        return next;
      },
      how, at, "for_loop");
  last.pop_back();
  return last;
}

Exprs case_of(const Operands& predicates, const std::vector<Branch>& branches,
              const CondOptions& options, const Site& at) {
  const std::string title = title_of("case_of", options.name, at);
  const auto refuse = [&](const std::string& why) {
    throw Error(Code::invalid_argument, title + ": " + why);
  };
  if (predicates.empty()) refuse("there is no case; give one at least");
  Reader* reader = reader_of(predicates);
  if (!reader) refuse("none of the predicates is an expression: use C++'s own if");
  Reader& here = reader->current();
  const Reader::AtSite line(here, at);
  Expr index = here.constant(static_cast<std::int64_t>(predicates.size()));
  for (std::size_t k = predicates.size(); k-- > 0;) {
    const Operand& p = predicates[k];
    const ValueSpec spec = p.is_expr() ? p.expr().spec() : spec_of_value(p.literal());
    if (spec.is_list() || spec.dtype != DType::boolean ||
        (spec.shape.has_rank() && !spec.shape.is_scalar()))
      refuse(fmt::format("the predicate of case {} must be a bool scalar, not {}", k, spec.text()));
    index = where(p.at(at), static_cast<std::int64_t>(k), index);
  }
  return switch_case(Operand(index, at), branches, options, "case_of", at);
}

}  // namespace detail
}  // namespace troupe
