// The native tests' harness: including it gives CHECK macros, TEST(name){...} and main().
// A failed check prints the place and the values and lets the test go on; the exit code is 1 if any failed.
// `test_x NAME` runs only the tests whose name contains NAME.
#pragma once

#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace check {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Registrar {
  Registrar(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

template <class T>
std::string show(const T& value) {
  std::ostringstream out;
  out.precision(9);
  if constexpr (requires { out << value; }) {
    if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::int8_t>) out << int{value};
    else out << value;
  } else if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else {
    out << "(value)";
  }
  return out.str();
}

inline void fail(const char* file, int line, const std::string& what) {
  ++failures();
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

template <class A, class B>
void equal(const char* file, int line, const char* text, const A& a, const B& b) {
  if (!(a == b)) fail(file, line, std::string(text) + ": " + show(a) + " != " + show(b));
}

inline void near(const char* file, int line, const char* text, double a, double b, double tolerance) {
  if (!(std::fabs(a - b) <= tolerance))
    fail(file, line, std::string(text) + ": " + show(a) + " and " + show(b) + " differ by more than " +
                         show(tolerance));
}

inline void run(const Case& test) {
  try {
    test.body();
  } catch (const std::exception& error) {
    fail(test.name, 0, std::string("exception: ") + error.what());
  }
}

}  // namespace check

#define CHECK(condition) \
  do { \
    if (!(condition)) check::fail(__FILE__, __LINE__, "CHECK(" #condition ")"); \
  } while (0)
#define CHECK_EQ(a, b) check::equal(__FILE__, __LINE__, #a " == " #b, a, b)
#define CHECK_NEAR(a, b, tolerance) check::near(__FILE__, __LINE__, #a " ~ " #b, a, b, tolerance)

#define TEST(name) \
  static void test_##name(); \
  static const check::Registrar registrar_##name(#name, test_##name); \
  static void test_##name()

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  int ran = 0;
  for (const check::Case& test : check::cases()) {
    if (std::string(test.name).find(only) == std::string::npos) continue;
    const int before = check::failures();
    check::run(test);
    ++ran;
    std::printf("%s %s\n", check::failures() == before ? "ok  " : "FAIL", test.name);
  }
  std::printf("%d tests, %d failed checks\n", ran, check::failures());
  return check::failures() != 0 || ran == 0;
}
