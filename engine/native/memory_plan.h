// One budget over everything that the engine keeps: trunk, expert slots, conversations, a chunk's buffers, the program.
#pragma once

#include <cstdint>

#include "error.h"

namespace smoe {

// What the vault needs and the machine has. Bytes unless a name says otherwise.
struct MemoryFacts {
  std::uint64_t total;                  // for this process, what it holds already included
  std::uint64_t trunk, program;         // program: code, tables, stacks
  std::uint64_t slot;                   // of an expert
  int experts, top_k;
  int trained_context;                  // positions; 0: unknown
  std::uint64_t position;               // of a conversation, in all layers
  std::uint64_t buffers, buffers_token; // of the computation: whatever the chunk, and each of its tokens
};

// What the flags ask for; 0 where they leave it open.
struct MemoryWishes {
  int ring = 0, context = 0;
  int chunk = 0, conversations = 4;
  std::uint64_t conversation_bytes = 0;
};

struct MemoryPlan {
  int slots = 0, context = 0, chunk = 0;  // slots: beside conversations and buffers that hold all they may
  int most_slots = 0;                     // beside neither: the ring has what they do not hold yet
  int long_chunk = 0;                     // at least `chunk`: tokens at once where no position is overwritten
  std::uint64_t conversations = 0;        // bytes that they may hold together; one of full length always fits
  std::uint64_t buffers = 0;              // of a chunk, with the program
  std::uint64_t shared = 0;               // between ring, conversations and what a long chunk's buffers take beyond a chunk's

  int slots_beside(std::uint64_t held, std::uint64_t slot_bytes) const;  // by conversations and a long chunk
};

// An open window is the longest one, from 4,096 up to the trained length, whose keys and values fit into
// `conversation_bytes` (an eighth of all, where that is left open). What does not fit shrinks in this order:
// conversations down to one, an open window down to 4,096, the chunk down to 32 tokens, the ring down to one token's
// experts of a layer. Past that the error tells what the least would be. An open chunk is 512 tokens. Where not every
// expert has a slot a long one is twice that, or four times, as far as its buffers take no more than a sixteenth of the ring:
// each chunk reads nearly every expert, so that reading binds a short one.
Error plan_memory(const MemoryFacts& facts, const MemoryWishes& wishes, MemoryPlan* out);

// Of `available` bytes, those to leave to the system: a sixteenth, 256 MiB at least, but never more than a quarter.
std::uint64_t system_reserve(std::uint64_t available);

// Bytes that the ring should give back (positive) or may take again (negative) when so much is available: it keeps
// away from the half of the system's reserve, or from twice of it while others wait for memory (`pressed`).
std::int64_t ring_excess(std::uint64_t available, std::uint64_t reserve, bool pressed);

}  // namespace smoe
