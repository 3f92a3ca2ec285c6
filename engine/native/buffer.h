// A vector whose elements begin with whatever their memory holds: memory for a whole chunk is taken when a chunk comes.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace smoe {

template <class T>
struct Uninitialized : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = Uninitialized<U>;
  };
  template <class U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;
  }
  template <class U, class... Arguments>
  void construct(U* place, Arguments&&... arguments) {
    ::new (static_cast<void*>(place)) U(std::forward<Arguments>(arguments)...);
  }
};

template <class T>
using Buffer = std::vector<T, Uninitialized<T>>;

}  // namespace smoe
