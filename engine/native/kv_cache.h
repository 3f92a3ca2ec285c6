// The keys and values of conversations, each a ring of window + chunk positions. Latent attention keeps one vector a
// position, for all heads and for both.
//
// The query at absolute position p sees exactly the positions max(0, p - window + 1) .. p. The extra chunk of slots is
// what lets a chunk's keys be stored before its first query has looked, and a history lose up to a chunk of its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "error.h"
#include "kernels.h"
#include "memory.h"

namespace smoe {

struct KvShape {
  int layers;
  int key_width, value_width;  // elements of a position; value_width 0: values are the first elements of keys
  int window, chunk;           // positions
  bool half;                   // f16 in place of f32

  int capacity() const { return window + chunk; }
  std::size_t element_bytes() const { return half ? 2 : 4; }
  std::size_t key_bytes() const { return part_bytes(capacity(), key_width); }  // of a layer
  std::size_t layer_bytes() const { return key_bytes() + part_bytes(capacity(), value_width); }
  std::size_t bytes() const { return static_cast<std::size_t>(layers) * layer_bytes(); }
  std::size_t part_bytes(int positions, int width) const {
    return static_cast<std::size_t>(positions) * static_cast<std::size_t>(width) * element_bytes();
  }
};

class Conversation {
 public:
  // begins_small: its memory begins in small pages, at the cost of four mappings a layer.
  static Error create(const KvShape& shape, bool begins_small, std::unique_ptr<Conversation>* out);

  const KvShape& shape() const { return shape_; }
  int length() const { return static_cast<int>(ids_.size()); }

  // Positions that can be kept for a prompt of these ids: their longest common prefix, always less than the prompt
  // (its last id is evaluated again), or 0 when the ring has overwritten what the next query would have to see.
  int reusable(std::span<const int> ids) const;
  void truncate(int length);
  void drop();  // everything, and the memory with it
  void copy_prefix(const Conversation& from, int length);  // of the same shape; from.reusable(...) told the length

  // Positions length() .. length() + tokens - 1 are going to be stored, at most a chunk. Until commit() they do not
  // count, so that an interrupted chunk leaves the conversation as it was.
  void begin(int tokens);
  // key: [key_width], value: [value_width], null where that is 0
  void store(const Kernels& kernels, int layer, int position, const float* key, const float* value);
  void commit(std::span<const int> ids);

  const void* keys(int layer) const { return key_data(layer); }      // [capacity][key_width]
  const void* values(int layer) const { return value_data(layer); }  // [capacity][value_width], or the keys

  // The most memory that it takes with so many positions: more than their bytes, for pages round up.
  std::uint64_t held_with(int positions) const;
  std::uint64_t resident() const { return pages_.resident(); }

  std::uint64_t last_used = 0;

 private:
  Conversation(const KvShape& shape, bool begins_small) : shape_(shape), begins_small_(begins_small) {}
  std::uint64_t held_part(int width, std::uint64_t slots) const;
  // Calls work(offset in pages_, width) for each layer's keys and values.
  template <class Work>
  void for_parts(Work work) const {
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(shape_.layers); ++layer) {
      work(layer * shape_.layer_bytes(), shape_.key_width);
      if (shape_.value_width > 0) work(layer * shape_.layer_bytes() + shape_.key_bytes(), shape_.value_width);
    }
  }
  void put(const Kernels& kernels, const float* row, int width, int position, unsigned char* part) const;

  unsigned char* key_data(int layer) const { return pages_.data() + static_cast<std::size_t>(layer) * shape_.layer_bytes(); }
  unsigned char* value_data(int layer) const { return key_data(layer) + (shape_.value_width > 0 ? shape_.key_bytes() : 0); }

  KvShape shape_;
  bool begins_small_;
  Pages pages_;
  std::vector<int> ids_;  // of the positions that are whole in every layer
  int written_ = 0;       // one past the highest position ever stored: what is below written_ - capacity is gone
  int touched_ = 0;       // slots of the ring whose memory has been written since drop()
};

// Several conversations, so that a client's side request does not cost another one its prefix. Each may grow to its
// full length, but all together hold no more than a budget: the least recently used ones make room.
class Conversations {
 public:
  struct Match {
    int slot, cached;
  };

  // budget: bytes, at least shape.bytes(). Memory is taken as conversations grow.
  static Error create(const KvShape& shape, int count, std::uint64_t budget, Conversations* out);

  // What open() would find; changes nothing.
  Match match(std::span<const int> ids) const;
  // The conversation that holds exactly the first `cached` ids: the matching one cut down, or, where the cut would
  // cost it more than it keeps, a copy of the prefix in the least recently used slot.
  Conversation& open(const Match& match);
  // Called with the bytes that conversations may hold from now on, before they take them.
  void before_growth(std::function<void(std::uint64_t)> told) { before_growth_ = std::move(told); }

  // Before this one, that open() gave, grows to so many positions.
  void make_room(Conversation& growing, int positions) { make_room(growing, positions, growing); }
  void reset();

  int count() const { return static_cast<int>(slots_.size()); }
  std::uint64_t budget() const { return budget_; }
  std::uint64_t held() const;      // the most bytes that they take now
  std::uint64_t resident() const;  // bytes in memory now; any thread may ask
  int positions() const;  // held in all of them
  int used() const;       // conversations that hold any

 private:
  int oldest() const;
  bool make_room(Conversation& growing, int positions, const Conversation& kept);

  std::vector<std::unique_ptr<Conversation>> slots_;
  std::uint64_t budget_ = 0, clock_ = 0;
  std::function<void(std::uint64_t)> before_growth_;
};

}  // namespace smoe
