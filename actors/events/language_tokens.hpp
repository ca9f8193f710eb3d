// The words of the query language, with their places.
//
//   for (const Token& token : tokens_of(text)) ...      // the last one is Token::Kind::end
//
// `--` begins a comment, which ends with its line. Texts stand in '...' or "..."; the quote doubled
// is the quote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::events {

struct Token {
  enum class Kind : std::uint8_t { word, number, text, sign, end };
  Kind kind = Kind::end;
  std::string text = {};  // without quotes
  int line = 1, column = 1;

  /// Returns the token for messages: `'WHEN'`, `the end`.
  std::string shown() const;
};

/// Throws Error (invalid_argument) with the place, for a character outside of the language, an open
/// text, and more than 10,000 tokens.
std::vector<Token> tokens_of(const std::string& text);

/// Throws Error (invalid_argument): `line 2, column 7: found ')'; expected a duration`.
[[noreturn]] void refuse_token(const Token& found, const std::string& expected);
/// Throws Error (invalid_argument): `line 2, column 7: SENTENCE`.
[[noreturn]] void refuse_at(const Token& place, const std::string& sentence);

}  // namespace troupe::events
