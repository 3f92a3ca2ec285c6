#include "json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace smoe::json {
namespace {

constexpr int kDeepest = 64;
constexpr std::size_t kMostValues = std::size_t{1} << 21;  // about 300 MB of them at worst

bool by_key(const Value::Member& a, const Value::Member& b) { return a.key < b.key; }
bool same_key(const Value::Member& a, const Value::Member& b) { return a.key == b.key; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The length of the well-formed UTF-8 sequence that begins here (Unicode 15, table 3-7); 0 if there is none.
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const unsigned first = byte(0), second = byte(1);
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0, surrogate = first == 0xED && second > 0x9F;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90, too_large = first == 0xF4 && second > 0x8F;
    return follows(1) && follows(2) && follows(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

void append_utf8(std::uint32_t c, std::string* out) {
  const auto put = [&](std::uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

class Parser {
 public:
  Parser(std::string_view text, Dialect dialect) : text_(text), dialect_(dialect) {}

  Error document(Value* out) {
    if (value(out, 0)) {
      skip_space();
      if (at_ != text_.size()) fail("text after the value");
    }
    return std::move(error_);
  }

 private:
  bool fail(const std::string& what) {
    if (!error_) error_.message = "byte " + std::to_string(at_) + ": " + what;
    return false;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool value(Value* out, int depth) {
    skip_space();
    if (depth > kDeepest) return fail("nested too deeply");
    if (++values_ > kMostValues) return fail("too many values");
    switch (peek()) {
      case '{': return object(out, depth);
      case '[': return array(out, depth);
      case '"': out->kind = Kind::string; return string(&out->string);
      default: return word(out) || number(out);
    }
  }

  bool word(Value* out) {
    if (take_word("null")) return true;
    if (take_word("true") || take_word("false")) {
      out->kind = Kind::boolean;
      out->boolean = text_[at_ - 2] == 'u';
      return true;
    }
    return dialect_ == Dialect::python && constant(out);
  }

  bool constant(Value* out) {
    if (take_word("NaN")) out->number = NAN;
    else if (take_word("Infinity")) out->number = INFINITY;
    else if (take_word("-Infinity")) out->number = -INFINITY;
    else return false;
    out->kind = Kind::number;
    return true;
  }

  bool digits() {
    const std::size_t start = at_;
    while (is_digit(peek())) ++at_;
    return at_ > start;
  }

  bool number(Value* out) {
    const std::size_t start = at_;
    take('-');
    if (!take('0') && !digits()) return fail("no value here");
    bool whole = true;
    if (take('.')) {
      whole = false;
      if (!digits()) return fail("a number without digits after its point");
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      if (!take('+')) take('-');
      if (!digits()) return fail("a number without digits in its exponent");
    }
    return convert(text_.substr(start, at_ - start), whole, out);
  }

  bool convert(std::string_view digits, bool whole, Value* out) {
    out->kind = Kind::number;
    out->number = std::strtod(std::string(digits).c_str(), nullptr);
    if (!std::isfinite(out->number)) return fail("a number that is too large");
    std::int64_t integer;
    if (whole && std::from_chars(digits.data(), digits.data() + digits.size(), integer).ec == std::errc())
      out->integer = integer;
    return true;
  }

  bool string(std::string* out) {
    ++at_;
    while (!take('"')) {
      if (at_ == text_.size()) return fail("a string without end");
      if (static_cast<unsigned char>(peek()) < 0x20) return fail("a control character in a string");
      if (take('\\')) {
        if (!escape(out)) return false;
        continue;
      }
      const std::size_t length = utf8_length(text_.substr(at_));
      if (length == 0) return fail("a string that is not UTF-8");
      out->append(text_.substr(at_, length));
      at_ += length;
    }
    return true;
  }

  bool escape(std::string* out) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (take('u')) return unicode_escape(out);
    const std::size_t which = at_ < text_.size() ? kNames.find(peek()) : std::string_view::npos;
    if (which == std::string_view::npos) return fail("an unknown escape in a string");
    out->push_back(kMeanings[which]);
    ++at_;
    return true;
  }

  bool unicode_escape(std::string* out) {
    std::uint32_t code = 0, low = 0;
    if (!hex4(&code)) return false;
    if (code >= 0xDC00 && code <= 0xDFFF) return fail("half a surrogate pair in a string");
    if (code >= 0xD800 && code <= 0xDBFF) {
      if (!take_word("\\u") || !hex4(&low) || low < 0xDC00 || low > 0xDFFF)
        return fail("half a surrogate pair in a string");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(code, out);
    return true;
  }

  bool hex4(std::uint32_t* out) {
    const std::string_view hex = text_.substr(at_, 4);
    const auto [end, status] = std::from_chars(hex.data(), hex.data() + hex.size(), *out, 16);
    if (hex.size() != 4 || status != std::errc() || end != hex.data() + 4)
      return fail("an escape without four hexadecimal digits");
    at_ += 4;
    return true;
  }

  bool array(Value* out, int depth) {
    out->kind = Kind::array;
    ++at_;
    skip_space();
    if (take(']')) return true;
    do {
      if (!value(&out->items.emplace_back(), depth + 1)) return false;
      skip_space();
    } while (take(','));
    return take(']') || fail("an array without end");
  }

  bool object(Value* out, int depth) {
    out->kind = Kind::object;
    ++at_;
    skip_space();
    if (take('}')) return true;
    do {
      if (!member(&out->members.emplace_back(), depth)) return false;
      skip_space();
    } while (take(','));
    return take('}') ? index(out) : fail("an object without end");
  }

  bool member(Value::Member* out, int depth) {
    skip_space();
    if (peek() != '"' || !string(&out->key)) return fail("a key is missing");
    skip_space();
    return take(':') ? value(&out->value, depth + 1) : fail("a key without a value");
  }

  bool index(Value* out) {
    std::sort(out->members.begin(), out->members.end(), by_key);
    const auto twin = std::adjacent_find(out->members.begin(), out->members.end(), same_key);
    return twin == out->members.end() || fail("the key \"" + twin->key + "\" appears twice in one object");
  }

  std::string_view text_;
  Dialect dialect_;
  std::size_t at_ = 0, values_ = 0;
  Error error_;
};

}  // namespace

const Value* Value::find(std::string_view key) const {
  const auto place = std::lower_bound(members.begin(), members.end(), key,
                                      [](const Member& member, std::string_view k) { return member.key < k; });
  return place != members.end() && place->key == key ? &place->value : nullptr;
}

Error parse(std::string_view text, Value* out, Dialect dialect) {
  *out = {};
  return Parser(text, dialect).document(out);
}

}  // namespace smoe::json
