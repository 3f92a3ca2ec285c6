#include "check.h"
#include "json.h"

using namespace smoe::json;

static bool accepts(const std::string& text, Dialect dialect = Dialect::strict) {
  Value value;
  return !parse(text, &value, dialect);
}

static Value parsed(const std::string& text) {
  Value value;
  CHECK_EQ(parse(text, &value).message, "");
  return value;
}

TEST(values) {
  const Value v = parsed(R"( {"a": [1, -2.5e3, true, null], "b": {"c": "d"}, "empty": {}, "none": []} )");
  CHECK_EQ(v.find("a")->items.size(), 4u);
  CHECK_EQ(*v.find("a")->items[0].integer, 1);
  CHECK_EQ(v.find("a")->items[1].number, -2500.0);
  CHECK(!v.find("a")->items[1].integer);
  CHECK(v.find("a")->items[2].boolean);
  CHECK(v.find("a")->items[3].is(Kind::null));
  CHECK_EQ(v.find("b")->find("c")->string, "d");
  CHECK(v.find("empty")->is(Kind::object) && v.find("none")->is(Kind::array));
  CHECK(v.find("z") == nullptr);
  CHECK(v.find("a")->find("x") == nullptr);
  CHECK(!parsed("false").boolean);
}

TEST(integers) {
  CHECK_EQ(*parsed("9223372036854775807").integer, INT64_MAX);
  CHECK_EQ(*parsed("-9223372036854775808").integer, INT64_MIN);
  CHECK(!parsed("9223372036854775808").integer);
  CHECK_NEAR(parsed("9223372036854775808").number, 9223372036854775808.0, 0);
  CHECK_EQ(*parsed("-0").integer, 0);
}

TEST(strings) {
  CHECK_EQ(parsed(R"("\"\\\/\b\f\n\r\t")").string, "\"\\/\b\f\n\r\t");
  CHECK_EQ(parsed(R"("\u00e9\u20AC\ud83d\ude00")").string, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  CHECK_EQ(parsed("\"\xF0\x9F\x98\x80\"").string, "\xF0\x9F\x98\x80");
  CHECK_EQ(parsed(R"("\u0000")").string, std::string(1, '\0'));
}

// A selection of JSONTestSuite's "must be refused" cases (https://github.com/nst/JSONTestSuite).
TEST(refuses_what_is_not_json) {
  const char* const bad[] = {
      "", " ", "{", "[", "[1,]", "[,1]", "[1 2]", "{\"a\":1,}", "{\"a\" 1}", "{a:1}", "{1:1}", "\"", "\"\\\"", "'a'",
      "01", "-", "+1", ".5", "1.", "1e", "1e+", "0x1", "--1", "1 1", "nul", "tru", "True", "NaN", "Infinity",
      "-Infinity",
      "1e999", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\ude00\"", "\"\\ud800\\u0041\"", "\"\n\"",
      "\"\x80\"", "\"\xC0\xAF\"", "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xE2\x82\"", "[1]x", "\xEF\xBB\xBF{}",
      "{\"a\":1,\"a\":1}", "{\"a\":1,\"b\":2,\"\\u0061\":3}", "[\"\\u+123\"]", "[\"\\u-123\"]", "//\n1", "{\"a\":}"};
  for (const char* text : bad)
    if (accepts(text)) check::fail(__FILE__, __LINE__, std::string("accepted: ") + text);
  CHECK(!accepts(std::string("1\0", 2)));
  CHECK(!accepts(std::string("\"a\0\"", 4)));
}

TEST(errors_name_the_place) {
  Value value;
  CHECK_EQ(parse("{\"a\":1,\"a\":2}", &value).message, "byte 13: the key \"a\" appears twice in one object");
  CHECK_EQ(parse("[1,2", &value).message, "byte 4: an array without end");
}

TEST(depth_is_bounded) {
  CHECK(accepts(std::string(64, '[') + std::string(64, ']')));
  CHECK(!accepts(std::string(100, '[') + std::string(100, ']')));
  CHECK(!accepts(std::string(1 << 20, '[')));
}

TEST(number_of_values_is_bounded) {
  std::string many = "[0";
  for (int i = 0; i < 1 << 21; ++i) many += ",0";
  CHECK(!accepts(many + "]"));
}

TEST(python_constants_only_where_asked) {
  CHECK(accepts("[NaN, Infinity, -Infinity]", Dialect::python));
  CHECK(!accepts("[+Infinity]", Dialect::python));
  CHECK(!accepts("[nan]", Dialect::python));
}
