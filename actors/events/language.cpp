#include <troupe/actors/events/language.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/events/language_tokens.hpp>
#include <troupe/actors/events/pattern.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

using TokenKind = Token::Kind;

std::string language_upper(std::string word) {
  for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return word;
}

constexpr const char* kLanguageWords[] = {
    "EVENT",    "WHEN",    "WHERE",  "OUTPUT", "AS",     "AND",           "OR",      "NOT",
    "SEQUENCE", "ALL",     "ANY",    "FIRST",  "LAST",   "EACH",          "CONSUME", "REUSE",
    "BY",       "ATLEAST", "ATMOST", "UNLESS", "CANCEL", "CORRELATIONKEY"};

bool language_reserves(const std::string& upper) {
  return std::find(std::begin(kLanguageWords), std::end(kLanguageWords), upper) !=
         std::end(kLanguageWords);
}

struct LanguageUnit {
  const char* name;
  std::int64_t seconds, parts;  // seconds / parts
};
constexpr LanguageUnit kLanguageUnits[] = {{"NANOSECOND", 1, 1'000'000'000},
                                           {"MICROSECOND", 1, 1'000'000},
                                           {"MILLISECOND", 1, 1'000},
                                           {"SECOND", 1, 1},
                                           {"MINUTE", 60, 1},
                                           {"HOUR", 3600, 1},
                                           {"DAY", 86400, 1},
                                           {"WEEK", 604800, 1}};

/// Parses by recursive descent, and builds the query as it goes.
class LanguageParser {
 public:
  LanguageParser(const std::string& text, const std::vector<EventType>& types, Time second)
      : tokens_(tokens_of(text)), types_(types), second_(second) {}

  Query parse() {
    do statement();
    while (accept(";") && peek().kind != TokenKind::end);
    if (peek().kind != TokenKind::end) refuse_token(peek(), "';' or the end");
    return std::move(query_);
  }

 private:
  static constexpr int kDeepest = 64;
  static constexpr int kMostOperators = 1000;  // a statement; formulas are as deep

  // ---- tokens
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& take() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  bool sees(const char* sign) const {
    return peek().kind == TokenKind::sign && peek().text == sign;
  }
  bool sees_word(const char* upper, std::size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::word && language_upper(peek(ahead).text) == upper;
  }
  bool accept(const char* sign) { return sees(sign) && (take(), true); }
  bool accept_word(const char* upper) { return sees_word(upper) && (take(), true); }
  void expect(const char* sign) {
    if (!accept(sign)) refuse_token(peek(), fmt::format("'{}'", sign));
  }
  void expect_word(const char* upper) {
    if (!accept_word(upper)) refuse_token(peek(), upper);
  }
  bool sees_name() const {
    return peek().kind == TokenKind::word && !language_reserves(language_upper(peek().text));
  }
  const Token& expect_name(const char* what) {
    if (!sees_name()) refuse_token(peek(), what);
    return take();
  }

  // ---- numbers and times
  double number();
  std::int64_t whole();
  const LanguageUnit* unit();
  Time units(const Token& number, const LanguageUnit* unit) const;
  Time time();
  Time bound();
  std::pair<Time, Time> slice();

  // ---- parts
  void statement();
  Pattern part(int depth);
  Pattern modes(Pattern pattern);
  Pattern pattern(int depth);
  Pattern combination(const std::string& kind, int depth);
  Pattern negation(const std::string& kind, int depth);
  Pattern at_most_event();
  Pattern plain_event();
  Pattern named_event(const Stream& stream, const Token& variable);
  Stream stream(const Token& name);

  // ---- conditions and outputs
  void where();
  void correlation_key();
  bool sees_correlation_key() const {
    return sees_word("CORRELATIONKEY") || (sees("{") && sees_word("CORRELATIONKEY", 1));
  }
  Formula combined(Formula::Op op, Formula left, Formula right) {
    if (++operators_ > kMostOperators)
      refuse_at(peek(), fmt::format("a statement has more than {} operators; cut it in two",
                                    kMostOperators));
    return {op, std::move(left), std::move(right)};
  }
  Formula either(int depth);
  Formula both(int depth);
  Formula negated(int depth);
  Formula comparison(int depth);
  Formula sum(int depth);
  Formula product(int depth);
  Formula value(int depth);
  Formula field_value();
  void outputs();

  const std::vector<Token> tokens_;
  std::size_t at_ = 0;
  const std::vector<EventType>& types_;
  const Time second_;
  Query query_;
  std::map<std::string, Stream> streams_;  // sources, and outputs of statements
  // the statement in hand
  std::map<std::string, Schema> variables_;
  MatchOptions options_;
  bool is_output_ = false;  // root and contributors have values
  int operators_ = 0;
};

// ---- numbers and times -------------------------------------------------------------------------

double LanguageParser::number() {
  if (peek().kind != TokenKind::number) refuse_token(peek(), "a number");
  const Token& token = take();
  double value = 0;
  const char* end = token.text.data() + token.text.size();
  const auto [stop, error] = std::from_chars(token.text.data(), end, value);
  if (error != std::errc() || stop != end) refuse_token(token, "a number");
  return value;
}

std::int64_t LanguageParser::whole() {
  if (peek().kind != TokenKind::number) refuse_token(peek(), "a whole number");
  const Token& token = take();
  std::int64_t value = 0;
  const char* end = token.text.data() + token.text.size();
  const auto [stop, error] = std::from_chars(token.text.data(), end, value);
  if (error != std::errc() || stop != end) refuse_token(token, "a whole number");
  return value;
}

/// Returns the unit that stands here; null: none.
const LanguageUnit* LanguageParser::unit() {
  for (const LanguageUnit& unit : kLanguageUnits)
    if (accept_word(unit.name) || accept_word((std::string(unit.name) + "S").c_str())) return &unit;
  return nullptr;
}

/// Returns a number of a unit, or of units of time, in units of time. Exact.
Time LanguageParser::units(const Token& number, const LanguageUnit* unit) const {
  constexpr std::size_t kMostDigits = 18;  // and 10^18 fits
  std::string digits = number.text;
  const std::size_t point = digits.find('.');
  const std::size_t places = point == std::string::npos ? 0 : digits.size() - point - 1;
  if (places > 0) digits.erase(point, 1);
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end || places > kMostDigits)
    refuse_token(number, "a number of at most 18 digits");
  const __int128 factor = unit ? static_cast<__int128>(unit->seconds) * second_ : 1;
  __int128 divisor = unit ? unit->parts : 1;
  for (std::size_t p = 0; p < places; ++p) divisor *= 10;
  const __int128 whole = value * factor / divisor;
  if (value * factor % divisor == 0 && whole < kForever) return static_cast<Time>(whole);
  refuse_at(number, fmt::format("a time is {} units, of which a second has {}; give a whole number",
                                static_cast<double>(value) * static_cast<double>(factor) /
                                    static_cast<double>(divisor),
                                second_));
}

Time LanguageParser::time() {
  const Token& place = peek();
  Time sum = 0;
  do {
    if (peek().kind != TokenKind::number) refuse_token(peek(), "a number");
    const Token& number = take();
    const LanguageUnit* of = unit();
    sum = later(sum, units(number, of));
    if (!of) break;
  } while (peek().kind == TokenKind::number);
  if (sum == kForever) refuse_at(place, "a time has no end; give a shorter one");
  return sum;
}

Time LanguageParser::bound() {
  if (accept_word("FOREVER")) return kForever;
  return accept("-") ? -time() : time();
}

std::pair<Time, Time> LanguageParser::slice() {
  const Token& place = peek();
  expect("[");
  const Time from = bound();
  expect(",");
  const Time to = bound();
  expect(")");
  if (from >= to) refuse_at(place, "a slice is empty; let it end after its begin");
  return {from, to};
}

// ---- patterns ----------------------------------------------------------------------------------

Stream LanguageParser::stream(const Token& name) {
  if (const auto known = streams_.find(name.text); known != streams_.end()) return known->second;
  std::string names;
  for (const EventType& type : types_) {
    if (type.name == name.text) {
      const Stream made = query_.source(type.name, type.schema, type.options);
      return streams_.emplace(name.text, made).first->second;
    }
    names += (names.empty() ? "" : ", ") + type.name;
  }
  for (const auto& [made, of] : streams_)
    if (query_.outputs().end() != std::find_if(query_.outputs().begin(), query_.outputs().end(),
                                               [&](const auto& port) { return port.name == made; }))
      names += (names.empty() ? "" : ", ") + made;
  refuse_token(name, names.empty() ? "an event; there is no source" : "one of the events " + names);
}

Pattern LanguageParser::named_event(const Stream& stream, const Token& variable) {
  if (!variables_.emplace(variable.text, stream.schema()).second)
    refuse_at(variable, fmt::format("two events are '{}'; give them variables", variable.text));
  return event(stream, variable.text);
}

Pattern LanguageParser::plain_event() {
  const Token& type = expect_name("an event or a pattern");
  const Stream of = stream(type);
  const bool has_as = accept_word("AS");
  if (has_as || sees_name()) return named_event(of, expect_name("a variable"));
  return named_event(of, type);
}

Pattern LanguageParser::at_most_event() {
  expect("(");
  const std::int64_t most = whole();
  std::vector<Stream> streams;
  while (accept(",") && peek().kind != TokenKind::number)
    streams.push_back(stream(expect_name("an event")));
  const Time within = time();
  std::vector<std::string> keys;
  if (accept_word("BY")) {
    do keys.push_back(expect_name("a field").text);
    while (accept(","));
  }
  expect(")");
  accept_word("AS");
  const Token& variable = expect_name("a variable");
  return named_event(at_most(most, streams, within, keys), variable);
}

Pattern LanguageParser::combination(const std::string& kind, int depth) {
  expect("(");
  std::int64_t count = 0;
  if (kind == "ATLEAST") {
    count = whole();
    expect(",");
  }
  std::vector<Pattern> parts{part(depth + 1)};
  while (accept(",") && peek().kind != TokenKind::number) parts.push_back(part(depth + 1));
  const bool has_time = peek().kind == TokenKind::number;
  if (!has_time && kind != "ANY") refuse_token(peek(), "',' and the time that the pattern spans");
  const Time within = has_time ? time() : 1;
  expect(")");
  if (kind == "SEQUENCE") return sequence(std::move(parts), within);
  if (kind == "ALL") return all(std::move(parts), within);
  return at_least(kind == "ANY" ? 1 : count, std::move(parts), within);
}

Pattern LanguageParser::negation(const std::string& kind, int depth) {
  expect("(");
  Pattern one = part(depth + 1);
  expect(",");
  Pattern other = part(depth + 1);
  if (kind != "UNLESS") {
    expect(")");
    return kind == "NOT" ? without(one, other) : cancel_when(one, other);
  }
  expect(",");
  std::int64_t contributor = 0;
  if (peek().kind == TokenKind::number && peek(1).kind == TokenKind::sign && peek(1).text == ",") {
    contributor = whole();
    expect(",");
    if (contributor < 1) refuse_token(peek(), "a contributor from 1 on");
  }
  const Time within = time();
  expect(")");
  return contributor > 0 ? unless(one, other, contributor, within) : unless(one, other, within);
}

Pattern LanguageParser::pattern(int depth) {
  if (depth > kDeepest)
    refuse_at(peek(), fmt::format("a pattern is nested deeper than {}; cut it in two", kDeepest));
  if (sees_word("CANCEL")) {
    take();
    expect("-");
    expect_word("WHEN");
    return negation("CANCEL-WHEN", depth);
  }
  for (const char* kind : {"UNLESS", "NOT"})
    if (accept_word(kind)) return negation(kind, depth);
  for (const char* kind : {"SEQUENCE", "ALL", "ANY", "ATLEAST"})
    if (accept_word(kind)) return combination(kind, depth);
  if (accept_word("ATMOST")) return at_most_event();
  return plain_event();
}

Pattern LanguageParser::part(int depth) { return modes(pattern(depth)); }

Pattern LanguageParser::modes(Pattern pattern) {
  for (;;) {
    if (accept_word("FIRST")) pattern = pattern.first();
    else if (accept_word("LAST")) pattern = pattern.last();
    else if (accept_word("CONSUME")) pattern = pattern.consume();
    else if (!accept_word("EACH") && !accept_word("REUSE")) return pattern;
  }
}

void LanguageParser::statement() {
  variables_.clear();
  options_ = {};
  is_output_ = false;
  operators_ = 0;
  expect_word("EVENT");
  const Token& name = expect_name("a name");
  for (const EventType& type : types_)
    if (type.name == name.text)
      refuse_at(name, fmt::format("the event '{}' is a source; name another", name.text));
  if (streams_.contains(name.text))
    refuse_at(name, fmt::format("two events are '{}'; rename one", name.text));
  expect_word("WHEN");
  const Token& place = peek();
  try {
    const Pattern matched = pattern(0);
    if (accept_word("WHERE")) where();
    if (accept_word("OUTPUT")) outputs();
    std::optional<std::pair<Time, Time>> occurrence, valid;
    if (accept("@")) occurrence = slice();
    if (accept("#")) valid = slice();
    const Projection wanted = options_.output;
    const bool has_occurrence = std::any_of(wanted.begin(), wanted.end(), [](const auto& field) {
      return field.first == "occurrence";
    });
    if (occurrence && !wanted.empty() && !has_occurrence)
      options_.output.emplace_back("occurrence", field("occurrence"));
    Stream out = match(matched, options_);
    if (occurrence) {
      out = out.select(field("occurrence") >= occurrence->first &&
                       field("occurrence") < occurrence->second);
      if (!wanted.empty() && !has_occurrence) {
        Projection kept;
        for (const auto& [kept_name, formula] : wanted)
          kept.emplace_back(kept_name, field(kept_name));
        out = out.project(kept);
      }
    }
    if (valid) out = out.slice(valid->first, valid->second);
    query_.output(name.text, out);
    streams_.emplace(name.text, out);
  } catch (const Error& error) {
    const std::string sentence = error.what();
    if (sentence.starts_with("line ")) throw;
    refuse_at(place, sentence);
  }
}

// ---- conditions and outputs --------------------------------------------------------------------

void LanguageParser::where() {
  const auto add = [&](Formula condition) {
    options_.where = options_.where ? combined(Formula::Op::both, *options_.where, condition)
                                    : std::move(condition);
  };
  for (;;) {
    if (sees_correlation_key()) {
      correlation_key();
    } else {
      std::optional<Formula> one = negated(0);
      // OR binds less than AND: all so far is its left side
      if (sees_word("OR")) {
        if (!options_.equal.empty() || !options_.unique.empty())
          refuse_token(peek(), "AND, because CorrelationKey is a part of the outermost AND");
        if (options_.where) one = combined(Formula::Op::both, *options_.where, *one);
        while (accept_word("OR")) one = combined(Formula::Op::either, *one, both(0));
        options_.where = std::move(one);
        return;
      }
      add(*one);
    }
    if (!accept_word("AND")) return;
  }
}

void LanguageParser::correlation_key() {
  const bool has_brace = accept("{");
  expect_word("CORRELATIONKEY");
  expect("(");
  const Token& attribute = expect_name("a field");
  for (const auto& [variable, schema] : variables_)
    if (!schema.has(attribute.text))
      refuse_at(attribute, fmt::format("the event '{}' has no field '{}'; its fields are {}",
                                       variable, attribute.text, schema.text()));
  expect(",");
  if (accept_word("EQUAL")) options_.equal.push_back(attribute.text);
  else if (accept_word("UNIQUE")) options_.unique.push_back(attribute.text);
  else refuse_token(peek(), "EQUAL or UNIQUE");
  expect(")");
  if (has_brace) expect("}");
}

Formula LanguageParser::either(int depth) {
  Formula left = both(depth);
  while (accept_word("OR")) left = combined(Formula::Op::either, left, both(depth));
  return left;
}

Formula LanguageParser::both(int depth) {
  Formula left = negated(depth);
  while (accept_word("AND")) left = combined(Formula::Op::both, left, negated(depth));
  return left;
}

Formula LanguageParser::negated(int depth) {
  if (depth > kDeepest)
    refuse_at(peek(), fmt::format("a condition is nested deeper than {}; cut it in two", kDeepest));
  if (accept_word("NOT")) return combined(Formula::Op::no, negated(depth + 1), 0);
  return comparison(depth);
}

Formula LanguageParser::comparison(int depth) {
  using Op = Formula::Op;
  constexpr std::pair<const char*, Op> kSigns[] = {{"=", Op::eq},  {"==", Op::eq}, {"!=", Op::ne},
                                                   {"<>", Op::ne}, {"<", Op::lt},  {"<=", Op::le},
                                                   {">", Op::gt},  {">=", Op::ge}};
  Formula left = sum(depth);
  for (const auto& [sign, op] : kSigns)
    if (accept(sign)) return combined(op, left, sum(depth));
  return left;
}

Formula LanguageParser::sum(int depth) {
  Formula left = product(depth);
  for (;;) {
    if (accept("+")) left = combined(Formula::Op::add, left, product(depth));
    else if (accept("-")) left = combined(Formula::Op::sub, left, product(depth));
    else return left;
  }
}

Formula LanguageParser::product(int depth) {
  Formula left = value(depth);
  for (;;) {
    if (accept("*")) left = combined(Formula::Op::mul, left, value(depth));
    else if (accept("/")) left = combined(Formula::Op::div, left, value(depth));
    else if (accept("%")) left = combined(Formula::Op::mod, left, value(depth));
    else return left;
  }
}

Formula LanguageParser::value(int depth) {
  if (depth > kDeepest)
    refuse_at(peek(), fmt::format("a condition is nested deeper than {}; cut it in two", kDeepest));
  for (const auto& [open, close] : {std::pair("(", ")"), std::pair("{", "}")})
    if (accept(open)) {
      Formula inner = either(depth + 1);
      expect(close);
      return inner;
    }
  if (accept("-")) return combined(Formula::Op::sub, 0, value(depth + 1));
  if (peek().kind == TokenKind::text) return take().text;
  if (peek().kind == TokenKind::number) {
    if (peek().text.find('.') != std::string::npos) return number();
    const Token& count = peek();
    const std::int64_t value = whole();
    const LanguageUnit* of = unit();
    return of ? units(count, of) : value;
  }
  return field_value();
}

Formula LanguageParser::field_value() {
  const Token& name = expect_name(is_output_ ? "a value, such as x.field or root"
                                             : "a value, such as x.field or 5");
  if (!sees(".")) {
    for (const char* special : {"root", "contributors", "occurrence"})
      if (is_output_ && name.text == special) return field(name.text);
    refuse_token(peek(), fmt::format("'.' and a field behind '{}'", name.text));
  }
  std::string names;
  for (const auto& [variable, schema] : variables_) names += (names.empty() ? "" : ", ") + variable;
  const auto variable = variables_.find(name.text);
  if (variable == variables_.end()) refuse_token(name, "one of the variables " + names);
  expect(".");
  if (peek().kind != TokenKind::word) refuse_token(peek(), "a field");
  const Token& attribute = take();
  if (!variable->second.has(attribute.text))
    refuse_token(attribute, "one of the fields " + variable->second.text());
  return field(name.text + "." + attribute.text);
}

void LanguageParser::outputs() {
  is_output_ = true;
  if (accept("*")) return;
  do {
    const std::size_t begin = at_;
    Formula formula = either(0);
    std::string name = peek(0).text;
    const auto is_same = [&](const auto& field) { return field.first == name; };
    if (accept_word("AS")) {
      if (peek().kind != TokenKind::word) refuse_token(peek(), "a name");
      name = take().text;
    } else if (at_ - begin == 1 || (at_ - begin == 3 && tokens_[begin + 1].text == ".")) {
      name = tokens_[at_ - 1].text;  // the field's
    } else {
      refuse_token(peek(), "AS and a name for the value");
    }
    if (std::any_of(options_.output.begin(), options_.output.end(), is_same))
      refuse_at(tokens_[at_ - 1],
                fmt::format("OUTPUT has two fields '{}'; rename one with AS", name));
    options_.output.emplace_back(std::move(name), std::move(formula));
  } while (accept(","));
}

}  // namespace

Query parse_query(const std::string& text, const std::vector<EventType>& types, Time second) {
  Query query = LanguageParser(text, types, second).parse();
  query.text_ = std::make_shared<const QueryText>(QueryText{text, types, second});
  return query;
}

}  // namespace troupe::events
