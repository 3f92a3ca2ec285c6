// Errors are values: nothing in the library prints, throws on purpose or exits.
#pragma once

#include <string>

namespace smoe {

// Empty message: no error. Otherwise one line that names the file, the field and what is wrong.
struct Error {
  std::string message;
  explicit operator bool() const { return !message.empty(); }
};

}  // namespace smoe
