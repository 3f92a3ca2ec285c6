#include <sys/stat.h>

#include "check.h"
#include "safetensors.h"
#include "vault_files.h"

using namespace smoe;
using vault_files::Folder;
using vault_files::safetensors;

static std::string refusal(const std::string& bytes) {
  const Folder folder;
  std::unique_ptr<Safetensors> out;
  std::string message = Safetensors::load(folder.write("x.safetensors", bytes), &out).message;
  CHECK(message.find('\n') == std::string::npos);
  if (const auto at = message.find("x.safetensors: "); at != std::string::npos) message.erase(0, at + 15);
  return message;
}

static std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

TEST(scout_of_another_tool) {
  const std::string path = vault_files::interop("tiny-qwen3moe-q4/tiny-qwen3moe.scout.safetensors");
  const std::string file = vault_files::read_file(path);
  std::unique_ptr<Safetensors> scout;
  CHECK_EQ(Safetensors::load(path, &scout).message, "");
  if (!scout) return;
  const Tensor* head = scout->find("lm_head.weight");
  CHECK(head && head->storage == Storage::bf16 && head->shape == (std::vector<std::int64_t>{512, 128}));
  CHECK_EQ(head->bytes, 131072u);
  // The header of that file is 3,080 bytes long and lm_head is its first tensor.
  CHECK(std::memcmp(head->data, file.data() + 8 + 3080, head->bytes) == 0);
  const Tensor* norm = nullptr;
  CHECK_EQ(scout->require("model.norm.weight", {128}, &norm).message, "");
  CHECK(norm == scout->find("model.norm.weight"));
  CHECK_EQ(scout->require("model.norm.weight", {64}, &norm).message,
           path + ": model.norm.weight: shape [128], expected [64]");
  CHECK_EQ(scout->require("model.absent", {64}, &norm).message, path + ": model.absent: missing");
  CHECK(scout->find("model.absent") == nullptr && !scout->has("model.absent"));
  CHECK(scout->metadata("config") == nullptr);
}

TEST(types_and_metadata) {
  const Folder folder;
  const std::string data("\x00\x3c\x80\x3f\x00\x00\x80\x3f\x07", 9);
  const std::string json = R"({"__metadata__":{"config":"{}"},"h":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},
    "b":{"dtype":"BF16","shape":[1,1],"data_offsets":[2,4]},"f":{"dtype":"F32","shape":[],"data_offsets":[4,8]},
    "i":{"dtype":"I8","shape":[1],"data_offsets":[8,9]},"z":{"dtype":"F32","shape":[0,5],"data_offsets":[8,8]}})";
  std::unique_ptr<Safetensors> out;
  std::uint64_t told = 0;
  const std::string path = folder.write("t", safetensors(json, data));
  ::chmod(path.c_str(), 0600);
  CHECK_EQ(Safetensors::load(path, &out, [&](std::uint64_t done, std::uint64_t) { told = done; }).message, "");
  if (!out) return;
  CHECK(told > 0);
  CHECK_EQ(*static_cast<const std::uint16_t*>(out->find("h")->data), 0x3c00);
  CHECK_EQ(*static_cast<const std::uint16_t*>(out->find("b")->data), 0x3f80);
  CHECK_EQ(*static_cast<const float*>(out->find("f")->data), 1.0f);
  CHECK_EQ(out->find("z")->bytes, 0u);
  CHECK(out->has("i") && out->find("i") == nullptr);
  const Tensor* tensor = nullptr;
  CHECK_EQ(out->require("i", {1}, &tensor).message, path + ": i: dtype I8 (can use F32, F16, BF16)");
  CHECK_EQ(*out->metadata("config"), "{}");
}

TEST(odd_header_lengths_still_give_aligned_tensors) {
  for (int pad = 0; pad < 8; ++pad) {
    const Folder folder;
    const std::string json = one("F32", "[2]", "[0,8]") + std::string(static_cast<std::size_t>(pad), ' ');
    std::unique_ptr<Safetensors> out;
    const std::string path = folder.write("t", safetensors(json, std::string("\0\0\x80\x3f\0\0\0\x40", 8)));
    CHECK_EQ(Safetensors::load(path, &out).message, "");
    if (!out) continue;
    const auto* values = static_cast<const float*>(out->find("t")->data);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(values) % 4, 0u);
    CHECK_EQ(values[0], 1.0f);
    CHECK_EQ(values[1], 2.0f);
  }
}

TEST(a_large_file_is_read_in_pieces) {
  const Folder folder;
  std::string data(std::size_t{40} << 20, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 131 >> 7);
  const std::string json = one("F16", "[20971520]", "[0,41943040]");
  std::unique_ptr<Safetensors> out;
  int pieces = 0;
  const std::string path = folder.write("t", safetensors(json, data));
  CHECK_EQ(Safetensors::load(path, &out, [&](auto, auto) { ++pieces; }).message, "");
  CHECK(pieces > 1);
  CHECK(out && std::memcmp(out->find("t")->data, data.data(), data.size()) == 0);
}

TEST(refusals) {
  const std::string four(4, '\0');
  CHECK_EQ(refusal("abc"), "incomplete: needs 8 bytes at least, has 3");
  CHECK_EQ(refusal(safetensors("{}").substr(0, 9)), "incomplete: needs 10 bytes, has 9");
  CHECK_EQ(refusal(std::string(16, '\xff')), "not a safetensors file: a header of 18446744073709551615 bytes");
  CHECK_EQ(refusal(safetensors("[]")), "header: not a JSON object");
  CHECK_EQ(refusal(safetensors("{\"a\":1}")), "a: dtype is missing");
  CHECK_EQ(refusal(safetensors("{\"__metadata__\":{\"a\":1}}")), "__metadata__.a: not a string");
  CHECK_EQ(refusal(safetensors(one("F32", "[1]", "[0,4]"), "abc")),
           "t: incomplete: data_offsets need 4 bytes of data, the file has 3");
  CHECK_EQ(refusal(safetensors(one("F32", "[2]", "[0,4]"), four)),
           "t: shape [2] of F32 needs 8 bytes, data_offsets give 4");
  CHECK_EQ(refusal(safetensors(one("F32", "[-1]", "[0,4]"), four)), "t: shape is not made of counts");
  CHECK_EQ(refusal(safetensors(one("F32", "[1.5]", "[0,4]"), four)), "t: shape is not made of counts");
  CHECK_EQ(refusal(safetensors(one("F32", "[1]", "[4,0]"), four)), "t: data_offsets do not ascend from 0");
  CHECK_EQ(refusal(safetensors(one("F32", "[1]", "[-4,0]"), four)), "t: data_offsets do not ascend from 0");
  CHECK_EQ(refusal(safetensors(one("F32", "[1]", "[0]"), four)), "t: data_offsets is not a pair of offsets");
  CHECK_EQ(refusal(safetensors(one("F32", "[4294967296,4294967296,4]", "[0,0]"), "")), "t: shape overflows");
  const std::string twice = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                               "b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})";
  CHECK_EQ(refusal(safetensors(twice, four + four)), "b: data_offsets overlap those of a");
  const std::string same = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                              "a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  CHECK(refusal(safetensors(same, four + four)).find("\"a\" appears twice") != std::string::npos);
}

TEST(what_is_no_file) {
  const Folder folder;
  std::unique_ptr<Safetensors> out;
  CHECK_EQ(Safetensors::load(folder.path("no"), &out).message,
           folder.path("no") + ": cannot be opened: No such file or directory");
  CHECK_EQ(Safetensors::load(folder.path(""), &out).message, folder.path("") + ": not a regular file");
  ::mkfifo(folder.path("pipe").c_str(), 0600);
  CHECK_EQ(Safetensors::load(folder.path("pipe"), &out).message, folder.path("pipe") + ": not a regular file");
}
