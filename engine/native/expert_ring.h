// The expert cache: a fixed number of slots of one size in one pool, filled by I/O threads. Out goes what is likely
// to be needed last (next_use.h). Knows files and bytes, no math. One compute thread calls it; the I/O threads are its own.
#pragma once

#include <cstdint>
#include <memory>

#include "vault_reader.h"

namespace smoe {

// A request counts once: a hit when the expert was whole in memory, else a miss (also while its read is under way).
struct RingCounters {
  std::uint64_t hits, misses, bytes_read;
  double stall_ms;  // time that wait() spent waiting
};

class ExpertRing {
 public:
  struct Options {
    int slots;    // at least 1; no more are made than the vault has experts
    int workers;  // I/O threads, at least 1
  };
  // The vault must outlive the ring.
  static Error create(const Vault& vault, const Options& options, std::unique_ptr<ExpertRing>* out);
  virtual ~ExpertRing() = default;  // drops queued reads, waits for those under way

  // Asks for an expert: pins its slot if it is cached or begins to read it. False when every slot is pinned: release
  // something first. (Where hints are being read into all others, it waits for one of them.) Each request that
  // returned true is paired with one release(), and with a wait() before the bytes are used.
  virtual bool request(int moe_index, int expert) = 0;
  // Blocks until the requested expert is whole in memory. Null on a read error (see error()): release() then drops
  // the slot, and the next request reads again.
  virtual const void* wait(int moe_index, int expert) = 0;
  virtual bool ready(int moe_index, int expert) const = 0;  // requested and done: wait() will not block
  virtual void release(int moe_index, int expert) = 0;

  // A hint: read this if a slot is free or cold, without pinning it. Later requests overtake it. True: a read is queued.
  virtual bool prefetch(int moe_index, int expert) = 0;
  // A hint is no longer wanted: nothing happens where its read has begun, or someone has requested it.
  virtual void forget(int moe_index, int expert) = 0;

  // Has a slot's memory at hand before it is read into: the first touch of a page costs as much as reading it. Before the
  // first request; slots fill up from the first on.
  virtual void touch(int slot) = 0;

  // What earlier runs tell of an expert: the share of passes that need it. For eviction; before the first request.
  virtual void expect(int moe_index, int expert, float share) = 0;
  virtual bool hints_wait() const = 0;   // for an I/O thread
  virtual int free_slots() const = 0;    // that hold nothing: a hint costs no other expert its slot

  // So many slots may be used from now on, of those it was made with: the coldest go and their memory with them,
  // or they come back. Pinned slots stay, so that more may be left than asked for; reads that have begun are waited for.
  virtual void resize(int slots) = 0;

  virtual std::uint64_t slot_bytes() const = 0;
  // These may be called from any thread.
  virtual int slots() const = 0;
  virtual std::uint64_t resident() const = 0;  // bytes of the slots that are in memory
  virtual int used() const = 0;
  virtual RingCounters counters() const = 0;
  virtual std::uint32_t uses(int moe_index, int expert) const = 0;  // requests since the boot

  virtual Error error() const = 0;  // of the last wait() that gave null
};

}  // namespace smoe
