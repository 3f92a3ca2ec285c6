// The keys and values of conversations, each a ring of window + chunk positions.
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
  int layers, width;   // width: kv_heads * head_dim
  int window, chunk;   // positions
  bool half;           // f16 in place of f32

  int capacity() const { return window + chunk; }
  std::size_t element_bytes() const { return half ? 2 : 4; }
  std::size_t layer_bytes() const {
    return static_cast<std::size_t>(capacity()) * static_cast<std::size_t>(width) * element_bytes();
  }
  std::size_t bytes() const { return 2 * static_cast<std::size_t>(layers) * layer_bytes(); }
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
  void store(const Kernels& kernels, int layer, int position, const float* key, const float* value);  // [width] each
  void commit(std::span<const int> ids);

  const void* keys(int layer) const { return data(layer, 0); }  // [capacity][width]
  const void* values(int layer) const { return data(layer, 1); }

  // The most memory that it takes with so many positions: more than their bytes, for pages round up.
  std::uint64_t held_with(int positions) const;
  std::uint64_t resident() const { return pages_.resident(); }

  std::uint64_t last_used = 0;

 private:
  Conversation(const KvShape& shape, bool begins_small) : shape_(shape), begins_small_(begins_small) {}
  unsigned char* data(int layer, int half) const {
    return pages_.data() + (2 * static_cast<std::size_t>(layer) + static_cast<std::size_t>(half)) * shape_.layer_bytes();
  }

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
