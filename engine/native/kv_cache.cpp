#include "kv_cache.h"

#include <algorithm>
#include <cstring>

namespace smoe {
namespace {

// A layer's keys, and its values, begin in small pages: a short conversation would hold 2 MiB for each of them else, which
// for 48 layers is 192 MiB to be zeroed before the first token.
constexpr std::uint64_t kHugePage = 2 << 20;

// A system maps a process's memory in so many ranges at most (Linux: 65,530), and other parts want some too.
constexpr int kMostMappings = 1 << 14;

// An empty one first: it costs nobody anything.
std::uint64_t rank(const Conversation& conversation) {
  return conversation.length() == 0 ? 0 : conversation.last_used;
}

}  // namespace

Error Conversation::create(const KvShape& shape, bool begins_small, std::unique_ptr<Conversation>* out) {
  std::unique_ptr<Conversation> made(new Conversation(shape, begins_small));
  if (Error error = Pages::allocate(shape.bytes(), &made->pages_)) return error;
  if (begins_small)
    made->for_parts([&](std::size_t offset, int width) {
      made->pages_.keep_small(offset, std::min<std::uint64_t>(shape.part_bytes(shape.capacity(), width), kHugePage));
    });
  *out = std::move(made);
  return {};
}

int Conversation::reusable(std::span<const int> ids) const {
  const auto common = std::mismatch(ids.begin(), ids.end(), ids_.begin(), ids_.end()).first - ids.begin();
  const int length = static_cast<int>(std::min<std::ptrdiff_t>(common, static_cast<std::ptrdiff_t>(ids.size()) - 1));
  const int first_seen = std::max(0, length - shape_.window + 1);
  return first_seen >= written_ - shape_.capacity() ? std::max(0, length) : 0;
}

void Conversation::truncate(int length) {
  ids_.resize(static_cast<std::size_t>(length));
  if (length == 0) written_ = 0;
}

void Conversation::drop() {
  truncate(0);
  pages_.discard(0, pages_.bytes());
  touched_ = 0;
}

std::uint64_t Conversation::held_with(int positions) const {
  const auto slots = static_cast<std::uint64_t>(std::max(touched_, std::min(positions, shape_.capacity())));
  if (slots == 0) return 0;
  const std::uint64_t layer = held_part(shape_.key_width, slots) + held_part(shape_.value_width, slots);
  return std::min<std::uint64_t>(shape_.bytes(), static_cast<std::uint64_t>(shape_.layers) * layer);
}

std::uint64_t Conversation::held_part(int width, std::uint64_t slots) const {
  const std::uint64_t part = slots * static_cast<std::uint64_t>(width) * shape_.element_bytes();
  if (part == 0) return 0;
  return part + (begins_small_ && part <= kHugePage ? 2 * page_bytes() : kHugePage);  // rounded at both ends
}

void Conversation::copy_prefix(const Conversation& from, int length) {
  ids_.assign(from.ids_.begin(), from.ids_.begin() + length);
  written_ = std::max(length, from.written_ > shape_.capacity() ? from.written_ : 0);
  touched_ = std::max(touched_, std::min(written_, shape_.capacity()));
  for_parts([&](std::size_t offset, int width) {
    const std::size_t bytes = shape_.part_bytes(std::min(written_, shape_.capacity()), width);
    std::memcpy(pages_.data() + offset, from.pages_.data() + offset, bytes);
  });
}

void Conversation::begin(int tokens) {
  written_ = std::max(written_, length() + tokens);
  touched_ = std::max(touched_, std::min(written_, shape_.capacity()));
}

void Conversation::store(const Kernels& kernels, int layer, int position, const float* key, const float* value) {
  put(kernels, key, shape_.key_width, position, key_data(layer));
  if (shape_.value_width > 0) put(kernels, value, shape_.value_width, position, value_data(layer));
}

void Conversation::put(const Kernels& kernels, const float* row, int width, int position, unsigned char* part) const {
  unsigned char* const to = part + shape_.part_bytes(position % shape_.capacity(), width);
  if (shape_.half) kernels.to_half(row, width, reinterpret_cast<std::uint16_t*>(to));
  else std::memcpy(to, row, shape_.part_bytes(1, width));
}

void Conversation::commit(std::span<const int> ids) { ids_.insert(ids_.end(), ids.begin(), ids.end()); }

Error Conversations::create(const KvShape& shape, int count, std::uint64_t budget, Conversations* out) {
  out->budget_ = budget;
  out->slots_.resize(static_cast<std::size_t>(count));
  const bool few = std::int64_t{count} * shape.layers * 4 <= kMostMappings;
  for (auto& slot : out->slots_)
    if (Error error = Conversation::create(shape, few, &slot)) return error;
  return {};
}

Conversations::Match Conversations::match(std::span<const int> ids) const {
  Match best{oldest(), 0};
  for (int i = 0; i < count(); ++i) {
    const int cached = slots_[static_cast<std::size_t>(i)]->reusable(ids);
    if (cached > best.cached) best = {i, cached};
  }
  return best;
}

Conversation& Conversations::open(const Match& match) {
  Conversation* chosen = slots_[static_cast<std::size_t>(match.slot)].get();
  const int lost = chosen->length() - match.cached;
  Conversation* spare = slots_[static_cast<std::size_t>(oldest())].get();
  if (match.cached > 0 && lost > match.cached && spare != chosen && make_room(*spare, match.cached, *chosen)) {
    spare->copy_prefix(*chosen, match.cached);
    chosen = spare;
  }
  if (match.cached > 0) chosen->truncate(match.cached);
  else chosen->drop();  // a short conversation does not go on holding what a long one took
  chosen->last_used = ++clock_;
  return *chosen;
}

void Conversations::reset() {
  for (auto& slot : slots_) slot->drop();
}

// Drops the least recently used of the others, but not `kept`, until it fits; false where it cannot.
bool Conversations::make_room(Conversation& growing, int positions, const Conversation& kept) {
  for (;;) {
    std::uint64_t held = growing.held_with(positions);
    Conversation* victim = nullptr;
    for (auto& slot : slots_) {
      if (slot.get() == &growing || slot->held_with(0) == 0) continue;
      held += slot->held_with(0);
      if (slot.get() != &kept && (victim == nullptr || rank(*slot) < rank(*victim))) victim = slot.get();
    }
    if (held <= budget_) {
      if (before_growth_) before_growth_(held);
      return true;
    }
    if (victim == nullptr) return false;
    victim->drop();
  }
}

std::uint64_t Conversations::held() const {
  std::uint64_t sum = 0;
  for (const auto& slot : slots_) sum += slot->held_with(0);
  return sum;
}

std::uint64_t Conversations::resident() const {
  std::uint64_t sum = 0;
  for (const auto& slot : slots_) sum += slot->resident();
  return sum;
}

int Conversations::oldest() const {
  const auto found = std::min_element(slots_.begin(), slots_.end(),
                                      [](const auto& a, const auto& b) { return rank(*a) < rank(*b); });
  return static_cast<int>(found - slots_.begin());
}

int Conversations::positions() const {
  int sum = 0;
  for (const auto& slot : slots_) sum += slot->length();
  return sum;
}

int Conversations::used() const {
  return static_cast<int>(std::count_if(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->length() > 0; }));
}

}  // namespace smoe
