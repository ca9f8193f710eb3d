#include <troupe/actors/events/language_tokens.hpp>

#include <cctype>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

bool token_is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool token_is_digit(char c) { return c >= '0' && c <= '9'; }

/// Reads a text once, from the left to the right.
class Tokenizer {
 public:
  explicit Tokenizer(const std::string& text) : text_(text) {}

  std::vector<Token> all() {
    constexpr std::size_t kMostTokens = 10'000;
    std::vector<Token> tokens;
    do {
      skip_blanks();
      tokens.push_back(next());
      if (tokens.size() > kMostTokens)
        refuse_at(tokens.back(),
                  fmt::format("a query has more than {} tokens; cut it in two", kMostTokens));
    } while (tokens.back().kind != Token::Kind::end);
    return tokens;
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  char take() {
    const char c = text_[at_++];
    if (c == '\n') {
      ++line_;
      column_ = 1;
    } else {
      ++column_;
    }
    return c;
  }
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (peek() == '-' && peek(1) == '-')
        while (at_ < text_.size() && peek() != '\n') take();
      else if (std::isspace(static_cast<unsigned char>(peek()))) take();
      else return;
    }
  }
  Token next() {
    Token token{Token::Kind::end, "", line_, column_};
    if (at_ == text_.size()) return token;
    const char c = peek();
    if (token_is_digit(c)) {
      token.kind = Token::Kind::number;
      while (token_is_digit(peek()) || (peek() == '.' && token_is_digit(peek(1))))
        token.text += take();
    } else if (token_is_word(c)) {
      token.kind = Token::Kind::word;
      while (token_is_word(peek())) token.text += take();
    } else if (c == '\'' || c == '"') {
      read_text(token);
    } else {
      read_sign(token);
    }
    return token;
  }
  void read_text(Token& token) {
    token.kind = Token::Kind::text;
    const char quote = take();
    while (at_ < text_.size()) {
      const char c = take();
      if (c == quote && peek() != quote) return;
      if (c == quote) take();
      token.text += c;
    }
    refuse_at(token, fmt::format("a text is not closed; end it with {}", quote));
  }
  void read_sign(Token& token) {
    token.kind = Token::Kind::sign;
    for (const char* two : {"<=", ">=", "<>", "!=", "=="})
      if (peek() == two[0] && peek(1) == two[1]) {
        token.text = {take(), take()};
        return;
      }
    if (std::string_view("(){}[],;.=<>+-*/%@#").find(peek()) == std::string_view::npos)
      refuse_at(token,
                fmt::format("the language has no character {}; remove it",
                            std::isprint(static_cast<unsigned char>(peek()))
                                ? fmt::format("'{}'", peek())
                                : fmt::format("of code {}", static_cast<unsigned char>(peek()))));
    token.text = take();
  }

  const std::string& text_;
  std::size_t at_ = 0;
  int line_ = 1, column_ = 1;
};

}  // namespace

std::string Token::shown() const {
  constexpr std::size_t kMostShown = 40;
  if (kind == Kind::end) return "the end";
  if (kind == Kind::text) return "a text";
  return fmt::format("'{}'", text.substr(0, kMostShown));
}

std::vector<Token> tokens_of(const std::string& text) { return Tokenizer(text).all(); }

void refuse_at(const Token& place, const std::string& sentence) {
  throw Error(Code::invalid_argument,
              fmt::format("line {}, column {}: {}", place.line, place.column, sentence));
}

void refuse_token(const Token& found, const std::string& expected) {
  refuse_at(found, fmt::format("found {}; expected {}", found.shown(), expected));
}

}  // namespace troupe::events
