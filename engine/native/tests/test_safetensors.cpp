#include <sys/stat.h>

#include "check.h"
#include "safetensors.h"
#include "vault_files.h"

using namespace smoe;
using vault_files::Folder;
using vault_files::safetensors;

static Error read_header(const std::string& path, SafetensorsHeader* out) {
  std::unique_ptr<File> file;
  if (Error error = File::open(path, &file)) return error;
  return read_safetensors_header(*file, out);
}

static std::string refusal(const std::string& bytes) {
  const Folder folder;
  SafetensorsHeader out;
  std::string message = read_header(folder.write("x.safetensors", bytes), &out).message;
  CHECK(message.find('\n') == std::string::npos);
  if (const auto at = message.find("x.safetensors: "); at != std::string::npos) message.erase(0, at + 15);
  return message;
}

static std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

TEST(scout_of_another_tool) {
  SafetensorsHeader scout;
  CHECK_EQ(read_header(vault_files::interop("tiny-qwen3moe-q4/tiny-qwen3moe.scout.safetensors"), &scout).message, "");
  CHECK_EQ(scout.data_offset, 8u + 3080u);
  const SafetensorsEntry* const head = scout.find("lm_head.weight");
  CHECK(head && head->dtype == "BF16" && head->shape == (std::vector<std::int64_t>{512, 128}));
  CHECK(head && head->begin == 0 && head->end == 131072);
  CHECK(scout.find("model.absent") == nullptr && scout.metadata.empty());
}

TEST(elements_as_floats) {
  const unsigned char bytes[] = {0, 0x00, 0x3c, 0x80, 0x3f, 0x00, 0x00, 0x80, 0xbf};  // from 1 on: misaligned
  float value = 0;
  to_floats(Storage::f16, bytes + 1, 1, &value);
  CHECK_EQ(value, 1.0f);
  to_floats(Storage::bf16, bytes + 3, 1, &value);
  CHECK_EQ(value, 1.0f);
  to_floats(Storage::f32, bytes + 5, 1, &value);
  CHECK_EQ(value, -1.0f);
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
  SafetensorsHeader out;
  CHECK_EQ(read_header(folder.path("no"), &out).message,
           folder.path("no") + ": cannot be opened: No such file or directory");
  CHECK_EQ(read_header(folder.path(""), &out).message, folder.path("") + ": not a regular file");
  ::mkfifo(folder.path("pipe").c_str(), 0600);
  CHECK_EQ(read_header(folder.path("pipe"), &out).message, folder.path("pipe") + ": not a regular file");
}
