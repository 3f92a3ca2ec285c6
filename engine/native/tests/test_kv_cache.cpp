#include "kv_cache.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>

#include "check.h"

using namespace smoe;

namespace {

constexpr KvShape kShape{2, 3, 3, 8, 4, false};  // layers, widths, window, chunk: a ring of 12
// Two layers whose keys take 8 MiB each at full length, and as much their values.
constexpr KvShape kLarge{2, 1024, 1024, 2044, 4, false};

// A key and a value that tell the layer, the position and the id that they are of.
std::vector<float> mark(int layer, int position, int id, int half) {
  return {static_cast<float>(layer * 2 + half), static_cast<float>(position), static_cast<float>(id)};
}

void append(Conversation& conversation, const std::vector<int>& ids) {
  const Kernels& kernels = *select_kernels("scalar");
  for (std::size_t done = 0; done < ids.size();) {
    const std::size_t count = std::min<std::size_t>(ids.size() - done, 4);
    const int first = conversation.length();
    conversation.begin(static_cast<int>(count));
    for (int layer = 0; layer < 2; ++layer)
      for (std::size_t i = 0; i < count; ++i) {
        const int position = first + static_cast<int>(i), id = ids[done + i];
        conversation.store(kernels, layer, position, mark(layer, position, id, 0).data(), mark(layer, position, id, 1).data());
      }
    conversation.commit(std::span(ids).subspan(done, count));
    done += count;
  }
}

// Everything that the next query would see is what these ids stored.
bool sees(const Conversation& conversation, const std::vector<int>& ids) {
  for (int position = std::max(0, conversation.length() - 7); position < conversation.length(); ++position)
    for (int layer = 0; layer < 2; ++layer)
      for (int half = 0; half < 2; ++half) {
        const auto* data = static_cast<const float*>(half == 0 ? conversation.keys(layer) : conversation.values(layer));
        const std::vector<float> wanted = mark(layer, position, ids[static_cast<std::size_t>(position)], half);
        if (!std::equal(wanted.begin(), wanted.end(), data + position % conversation.shape().capacity() * 3)) return false;
      }
  return true;
}

std::vector<int> count(int length, int start = 0) {
  std::vector<int> ids(static_cast<std::size_t>(length));
  std::iota(ids.begin(), ids.end(), start);
  return ids;
}

std::unique_ptr<Conversation> holding(const std::vector<int>& ids) {
  std::unique_ptr<Conversation> conversation;
  CHECK(!Conversation::create(kShape, true, &conversation));
  append(*conversation, ids);
  return conversation;
}

Conversations slots(int count) {
  Conversations conversations;
  CHECK(!Conversations::create(kShape, count, std::uint64_t{1} << 40, &conversations));
  return conversations;
}

int ask(Conversations& conversations, const std::vector<int>& ids) {
  const Conversations::Match match = conversations.match(ids);
  Conversation& conversation = conversations.open(match);
  CHECK_EQ(conversation.length(), match.cached);
  CHECK(sees(conversation, ids));
  append(conversation, std::vector<int>(ids.begin() + match.cached, ids.end()));
  CHECK(sees(conversation, ids));
  return match.cached;
}

}  // namespace

TEST(the_longest_common_prefix_is_kept) {
  auto conversation = holding({1, 2, 3, 4, 5});
  CHECK_EQ(conversation->reusable(std::vector<int>{1, 2, 9, 4}), 2);
  CHECK_EQ(conversation->reusable(std::vector<int>{1, 2, 3, 4, 5, 6}), 5);
  CHECK_EQ(conversation->reusable(std::vector<int>{9, 2}), 0);
}

TEST(the_last_id_is_evaluated_again) {
  auto conversation = holding({1, 2, 3});
  CHECK_EQ(conversation->reusable(std::vector<int>{1, 2, 3}), 2);
  CHECK_EQ(conversation->reusable(std::vector<int>{1, 2}), 1);
  CHECK_EQ(conversation->reusable(std::vector<int>{1}), 0);
}

TEST(a_prefix_whose_window_is_overwritten_is_gone) {
  auto conversation = holding(count(20));  // the ring holds 8 .. 19
  std::vector<int> ids = count(20);
  ids.push_back(99);
  CHECK_EQ(conversation->reusable(ids), 20);
  CHECK_EQ(conversation->reusable(count(16)), 15);  // sees 8 .. 15
  CHECK_EQ(conversation->reusable(count(15)), 0);   // would see 7
  conversation->truncate(15);
  CHECK(sees(*conversation, count(20)));
}

TEST(truncation_does_not_bring_back_what_was_overwritten) {
  auto conversation = holding(count(20));
  conversation->truncate(16);
  CHECK_EQ(conversation->reusable(count(15)), 0);
  append(*conversation, {16, 17});
  CHECK_EQ(conversation->reusable(count(15)), 0);
}

TEST(an_interrupted_chunk_leaves_the_conversation_as_it_was) {
  auto conversation = holding(count(12));
  const Kernels& kernels = *select_kernels("scalar");
  conversation->begin(4);
  const float garbage[] = {-1, -1, -1};
  for (int position = 12; position < 16; ++position) conversation->store(kernels, 0, position, garbage, garbage);
  CHECK_EQ(conversation->length(), 12);
  CHECK(sees(*conversation, count(12)));
  CHECK_EQ(conversation->reusable(count(10)), 0);  // sees 2 .. 9: 2 and 3 are overwritten
  CHECK_EQ(conversation->reusable(count(12)), 11);
}

// One vector a position is key and value: of latent attention.
TEST(values_that_lie_in_the_keys_take_no_memory) {
  KvShape latent = kShape;
  latent.value_width = 0;
  CHECK_EQ(latent.bytes() * 2, kShape.bytes());
  std::unique_ptr<Conversation> conversation, copy;
  CHECK(!Conversation::create(latent, true, &conversation) && !Conversation::create(latent, true, &copy));
  append(*conversation, count(20));
  copy->copy_prefix(*conversation, 19);
  for (const auto& [held, layer] : {std::pair{conversation.get(), 0}, {conversation.get(), 1}, {copy.get(), 1}}) {
    CHECK(held->keys(layer) == held->values(layer));
    const auto* rows = static_cast<const float*>(held->keys(layer));
    for (int position = 12; position < 19; ++position) {
      const std::vector<float> wanted = mark(layer, position, position, 0);
      CHECK(std::equal(wanted.begin(), wanted.end(), rows + position % latent.capacity() * 3));
    }
  }
  CHECK(conversation->held_with(20) <= latent.bytes());
  KvShape large = kLarge;
  large.value_width = 0;
  CHECK(!Conversation::create(large, true, &conversation));
  CHECK_EQ(conversation->held_with(8), 2 * (8 * 1024 * sizeof(float) + 2 * page_bytes()));
}

TEST(half_precision_holds_the_same_values) {
  KvShape shape = kShape;
  shape.half = true;
  std::unique_ptr<Conversation> conversation;
  CHECK(!Conversation::create(shape, true, &conversation));
  append(*conversation, count(5));
  const auto* keys = static_cast<const std::uint16_t*>(conversation->keys(1));
  for (std::size_t i = 0; i < 3; ++i) CHECK_EQ(half_to_float(keys[3 * 3 + i]), mark(1, 3, 3, 0)[i]);
}

TEST(one_slot_is_cut_in_place) {
  Conversations conversations = slots(1);
  CHECK_EQ(ask(conversations, count(8)), 0);
  CHECK_EQ(ask(conversations, {0, 1, 7}), 2);
  CHECK_EQ(ask(conversations, count(8)), 2);
}

TEST(a_side_request_does_not_cost_a_conversation_its_prefix) {
  Conversations conversations = slots(2);
  ask(conversations, count(10));
  CHECK_EQ(ask(conversations, {50, 51}), 0);
  CHECK_EQ(ask(conversations, count(12)), 10);
  CHECK_EQ(ask(conversations, {50, 51, 52}), 2);
}

TEST(a_shared_beginning_is_copied) {
  Conversations conversations = slots(3);
  ask(conversations, count(10));
  CHECK_EQ(ask(conversations, {0, 1, 2, 70, 71}), 3);
  CHECK_EQ(ask(conversations, count(11)), 10);
  CHECK_EQ(ask(conversations, {0, 1, 2, 70, 71, 72}), 5);
  CHECK_EQ(conversations.used(), 2);
}

TEST(a_beginning_is_copied_from_a_ring_that_has_wrapped) {
  Conversations conversations;
  KvShape wide = kShape;
  wide.chunk = 40;
  CHECK(!Conversations::create(wide, 2, std::uint64_t{1} << 40, &conversations));
  ask(conversations, count(60));  // the ring of 48 holds 12 .. 59
  std::vector<int> other = count(20);
  other.push_back(99);
  CHECK_EQ(ask(conversations, other), 20);
  CHECK_EQ(conversations.used(), 2);
}

TEST(the_least_recently_used_gives_way) {
  Conversations conversations = slots(2);
  ask(conversations, {1, 2});
  ask(conversations, {3, 4});
  ask(conversations, {1, 2, 5});
  ask(conversations, {6, 7});
  CHECK_EQ(conversations.match(std::vector<int>{3, 4, 8}).cached, 0);
  CHECK_EQ(conversations.match(std::vector<int>{1, 2, 5, 8}).cached, 3);
  conversations.reset();
  CHECK_EQ(conversations.positions(), 0);
}

void grow(Conversations& conversations, Conversation& conversation, int start, int length) {
  const std::vector<int> ids = count(length, start);
  const std::vector<float> row(1024, 1.0f);
  for (int done = conversation.length(); done < length; ++done) {
    conversations.make_room(conversation, done + 1);
    conversation.begin(1);
    for (int layer = 0; layer < 2; ++layer)
      conversation.store(*select_kernels("scalar"), layer, done, row.data(), row.data());
    conversation.commit(std::span(ids).subspan(static_cast<std::size_t>(done), 1));
  }
}

TEST(a_short_conversation_holds_little_memory) {
  Conversations conversations;
  CHECK(!Conversations::create(kLarge, 1, kLarge.bytes(), &conversations));
  for (const int length : {10, 400, 900, 2040}) {
    Conversation& conversation = conversations.open(conversations.match(count(length)));
    grow(conversations, conversation, 0, length);
    CHECK(conversations.resident() <= conversation.held_with(length));
    CHECK(conversations.resident() >= 4u * 4096 * static_cast<std::uint64_t>(length));
  }
  conversations.reset();
  grow(conversations, conversations.open({0, 0}), 0, 10);
  CHECK(conversations.resident() <= 4 * 11 * 4096);
}

// A process may have 65,530 mappings on Linux: the rest of the engine needs some of them.
TEST(many_conversations_take_no_more_mappings_than_a_system_gives) {
  constexpr int kMany = 2049;
  Conversations conversations;
  CHECK(!Conversations::create(kLarge, kMany, kLarge.bytes(), &conversations));
  std::ifstream maps("/proc/self/maps");
  const auto lines = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  CHECK(lines < 16384);
  Conversation& conversation = conversations.open(conversations.match(count(10)));
  grow(conversations, conversation, 0, 10);
  CHECK(conversations.resident() <= conversation.held_with(10));
}

TEST(growth_is_told_before_it_takes_memory) {
  Conversations conversations;
  CHECK(!Conversations::create(kLarge, 3, 2 * kLarge.bytes(), &conversations));
  std::uint64_t told = 0;
  conversations.before_growth([&](std::uint64_t held) {
    CHECK(conversations.resident() <= held);
    told = held;
  });
  grow(conversations, conversations.open(conversations.match(count(1000))), 0, 1000);
  CHECK(told >= conversations.resident());
  CHECK_EQ(told, conversations.held());
  std::vector<int> other = count(900);
  other.push_back(77);
  told = 0;
  conversations.open(conversations.match(other));  // a cut in place
  CHECK_EQ(told, 0u);
  grow(conversations, conversations.open(conversations.match(count(2040))), 0, 2040);
  told = 0;
  CHECK_EQ(conversations.open(conversations.match(other)).length(), 900);  // a copy
  CHECK(told >= conversations.resident());
  conversations.reset();
  CHECK_EQ(conversations.held(), 0u);
}

TEST(a_short_conversation_does_not_hold_what_a_long_one_took) {
  Conversations conversations;
  CHECK(!Conversations::create(kLarge, 1, kLarge.bytes(), &conversations));
  grow(conversations, conversations.open({0, 0}), 0, 2040);
  grow(conversations, conversations.open(conversations.match(count(10, 5000))), 5000, 10);
  CHECK(conversations.held() <= 4 * 12 * 4096);
  CHECK(conversations.resident() <= conversations.held());
}

TEST(conversations_share_a_budget) {
  Conversations conversations;
  CHECK(!Conversations::create(kLarge, 5, kLarge.bytes(), &conversations));
  CHECK_EQ(conversations.resident(), 0u);
  for (const int start : {0, 5000, 10000, 15000, 20000}) {
    const std::vector<int> ids = count(480, start);
    grow(conversations, conversations.open(conversations.match(ids)), start, 480);
    CHECK(conversations.resident() <= conversations.budget());
  }
  CHECK_EQ(conversations.used(), 4);  // each takes 4 x 1.9 of 4 x 8 MiB; the first made room
  CHECK_EQ(conversations.match(count(480, 0)).cached, 0);
  CHECK_EQ(conversations.match(count(480, 5000)).cached, 479);
  Conversation& last = conversations.open(conversations.match(count(480, 5000)));
  grow(conversations, last, 5000, 2040);
  CHECK_EQ(conversations.used(), 1);
  CHECK_EQ(last.length(), 2040);
  CHECK(conversations.resident() <= conversations.budget());
  conversations.reset();
  CHECK_EQ(conversations.resident(), 0u);
}

// 1,000 positions in common of 2,040: worth a copy only where there is room for both.
TEST(a_prefix_is_not_copied_at_the_cost_of_its_source) {
  for (const int rooms : {1, 2}) {
    Conversations conversations;
    CHECK(!Conversations::create(kLarge, 2, static_cast<std::uint64_t>(rooms) * kLarge.bytes(), &conversations));
    grow(conversations, conversations.open(conversations.match(count(2040))), 0, 2040);
    std::vector<int> other = count(1000);
    other.push_back(77);
    const Conversation& chosen = conversations.open(conversations.match(other));
    CHECK_EQ(chosen.length(), 1000);
    CHECK_EQ(conversations.used(), rooms);
  }
}
