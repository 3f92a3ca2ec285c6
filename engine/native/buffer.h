// Buffers that are written anew by every batch.
#pragma once

#include <cstddef>
#include <vector>

namespace smoe {

// What was in it is lost, so that old and new are never in memory together.
template <class T>
void reallocate(std::vector<T>& buffer, std::size_t count) {
  std::vector<T>().swap(buffer);
  buffer.resize(count);
}

}  // namespace smoe
