#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "check.h"
#include "vault_files.h"
#include "vault_reader.h"

using namespace smoe;
using namespace vault_files;

using Opened = std::unique_ptr<Vault>;

static Error open(const Folder& folder, const std::string& bytes, Opened* out, const std::string& scout = "",
                  const std::string& config = "") {
  const std::string scout_path = scout.empty() ? "" : folder.write("v.scout", scout);
  const std::string config_path = config.empty() ? "" : folder.write("config.json", config);
  return Vault::open(folder.write("v.smoe", bytes), scout_path, config_path, out);
}

static std::string refusal(const std::string& bytes, const std::string& scout = "", const std::string& config = "") {
  const Folder folder;
  Opened vault;
  std::string message = open(folder, bytes, &vault, scout, config).message;
  CHECK(message.find('\n') == std::string::npos);
  const std::string prefix = folder.path("v.smoe") + ": ";
  if (message.rfind(prefix, 0) == 0) message.erase(0, prefix.size());
  else if (!message.empty()) check::fail(__FILE__, __LINE__, "does not name the vault: " + message);
  return message;
}

static std::string broken(const std::function<void(VaultParts&)>& change, const Shape& shape = {}) {
  VaultParts parts = make_vault(shape);
  change(parts);
  return refusal(parts.bytes());
}

static Opened opened(const Folder& folder, const VaultParts& parts, const std::string& scout = "",
                     const std::string& config = "") {
  Opened vault;
  CHECK_EQ(open(folder, parts.bytes(), &vault, scout, config).message, "");
  if (!vault) throw std::runtime_error("not opened");
  return vault;
}

TEST(vaults_of_another_tool) {
  for (const int bits : {4, 2}) {
    const auto pair = interop("tiny-qwen3moe-q" + std::to_string(bits));
    const std::string path = (pair / "tiny-qwen3moe.smoe").string();
    Opened vault;
    CHECK_EQ(Vault::open(path, (pair / "tiny-qwen3moe.scout.safetensors").string(), "", &vault).message, "");
    if (!vault) continue;
    const Architecture& a = vault->architecture();
    CHECK_EQ(a.model_type, "qwen3_moe");
    CHECK(a.renormalize_top_k && a.qk_norm && !a.first_layer_dense);
    CHECK_EQ(a.rope_theta, 1e6f);
    CHECK_EQ(a.rms_epsilon, 1e-6f);
    CHECK_EQ(a.heads, 4);
    CHECK_EQ(a.kv_heads, 2);
    CHECK_EQ(a.head_dim, 32);
    CHECK_EQ(a.top_k, 2);
    CHECK_EQ(a.moe_ffn, 64);
    CHECK_EQ(a.layers, 3);
    CHECK_EQ(a.d_model, 128);
    CHECK_EQ(a.vocab, 512);
    CHECK_EQ(a.experts, 8);
    CHECK_EQ(a.bits, bits);
    CHECK_EQ(a.assumed, "");
    CHECK_EQ(a.trained_context, 0);
    const ExpertRecord& record = vault->expert(2, 4);
    CHECK_EQ(record.offset, 344064u);
    CHECK_EQ(record.bytes, bits == 4 ? 13056u : 6912u);
    Matrix gate, up, down;
    std::vector<std::uint16_t> memory(record.padded_bytes / 2);
    vault->matrices(record, memory.data(), &gate, &up, &down);
    const auto* base = reinterpret_cast<const unsigned char*>(memory.data());
    CHECK(gate.storage == (bits == 4 ? Storage::q4 : Storage::q2));
    CHECK(gate.rows == 64 && gate.cols == 128 && down.rows == 128 && down.cols == 64);
    CHECK_EQ(static_cast<const unsigned char*>(up.data) - base, bits == 4 ? 4352 : 2304);
    CHECK_EQ(reinterpret_cast<const unsigned char*>(down.scales) - base, bits == 4 ? 12800 : 6656);
  }
}

TEST(a_config_tells_the_trained_context_and_contradictions) {
  const Folder folder;
  const std::string config = read_file(interop("tiny-qwen3moe-checkpoint/config.json"));
  Opened vault;
  CHECK_EQ(Vault::open(interop("tiny-qwen3moe-q4/tiny-qwen3moe.smoe").string(), "",
                       folder.write("config.json", config), &vault).message, "");
  CHECK(vault && vault->architecture().trained_context == 4096 && vault->architecture().assumed.empty());
  const auto other = opened(folder, make_vault(), "", "{\"rope_theta\": 5000.0}");
  CHECK_EQ(other->architecture().rope_theta, 1e6f);
  CHECK(other->architecture().assumed.find("the config says 5000") != std::string::npos);
}

TEST(any_subset_of_layers_in_any_order_with_any_counts) {
  const Folder folder;
  Shape shape;
  shape.hidden_layers = 7;
  shape.layers = {{5, 3}, {1, 4}, {3, 2}};
  for (const int bits : {2, 4, 8}) {
    shape.bits = bits;
    const VaultParts parts = make_vault(shape);
    const auto vault = opened(folder, parts);
    CHECK_EQ(vault->architecture().moe_layers, 3);
    CHECK_EQ(vault->architecture().experts, 4);
    CHECK(vault->architecture().first_layer_dense);
    CHECK_EQ(vault->total_experts(), 9);
    CHECK_EQ(vault->moe_index(1), 0);
    CHECK_EQ(vault->moe_index(3), 1);
    CHECK_EQ(vault->moe_index(5), 2);
    CHECK_EQ(vault->layer_of(2), 5);
    CHECK(!vault->is_moe_layer(0) && !vault->is_moe_layer(-1) && !vault->is_moe_layer(6) && !vault->is_moe_layer(99));
    CHECK_EQ(vault->experts(2), 3);
    CHECK_EQ(vault->expert(2, 1).offset, std::uint64_t{parts.table[1].byte_offset});
    CHECK_EQ(vault->expert(0, 3).offset, std::uint64_t{parts.table[6].byte_offset});
    CHECK_EQ(vault->largest_record(), 16384u);
  }
}

TEST(records_of_different_padding) {
  const Folder folder;
  VaultParts parts = make_vault();
  parts.table[7].padded_size = 3 * 16384;
  std::string bytes = parts.bytes();
  bytes.resize(bytes.size() + 2 * 16384);
  Opened vault;
  CHECK_EQ(open(folder, bytes, &vault).message, "");
  CHECK(vault && vault->largest_record() == 49152u);
}

TEST(odd_fields_that_are_not_used_are_tolerated) {
  const Folder folder;
  VaultParts parts = make_vault();
  parts.header.ffn_dim = 12345;  // the tool of the interop pair writes another width here
  parts.block.moe_ffn_dim = 0;
  parts.block.dense_ffn_dim = 0;
  parts.block.reserved[3] = 9;
  CHECK_EQ(opened(folder, parts)->architecture().moe_ffn, 32);
  VaultParts interrupted = make_vault();  // an upgrade in place that wrote all but the version
  interrupted.header.version = 1;
  CHECK(refusal(interrupted.bytes()).find("version 1") == 0);
}

TEST(files_that_are_still_growing) {
  const std::string bytes = make_vault().bytes();
  CHECK_EQ(refusal(bytes.substr(0, 10)), "header: incomplete: needs 64 bytes, has 10");
  CHECK_EQ(refusal(""), "header: incomplete: needs 64 bytes, has 0");
  CHECK_EQ(refusal(bytes.substr(0, 1000)), "expert table: incomplete: needs 1504 bytes, has 1000");
  CHECK_EQ(refusal(bytes.substr(0, 1540)), "arch block: incomplete: needs 1664 bytes, has 1540");
  CHECK_EQ(refusal(bytes.substr(0, 40000)), "expert 1 of layer 0: incomplete: needs 49152 bytes, has 40000");
  CHECK_EQ(refusal(bytes.substr(0, bytes.size() - 1)),
           "expert 3 of layer 1: incomplete: needs 147456 bytes, has 147455");
}

TEST(foreign_files) {
  CHECK_EQ(refusal(std::string(1000, 'x')), "not a vault: it does not begin with SMOE");
  const Folder folder;
  Opened vault;
  CHECK_EQ(Vault::open(folder.path("absent"), "", "", &vault).message,
           folder.path("absent") + ": cannot be opened: No such file or directory");
}

TEST(header_fields) {
  CHECK_EQ(broken([](auto& p) { p.header.version = 3; }), "version: 3 is unknown (can read 1 and 2)");
  CHECK_EQ(broken([](auto& p) { p.header.bits = 5; }), "bits: 5 is unknown (can read 2, 4 and 8)");
  CHECK_EQ(broken([](auto& p) { p.header.group_size = 32; }), "group_size: 32 is not 64");
  CHECK_EQ(broken([](auto& p) { p.header.d_model = 0; }), "d_model: 0 is out of range");
  CHECK_EQ(broken([](auto& p) { p.header.total_experts = 0; }), "total_experts: 0 is out of range");
  CHECK_EQ(broken([](auto& p) { p.header.total_experts = 0xFFFFFFFF; }), "total_experts: 4294967295 is out of range");
  CHECK_EQ(broken([](auto& p) { p.header.table_offset = 8; }), "table_offset: lies inside the header");
  CHECK_EQ(broken([](auto& p) { p.header.table_offset = ~0ull - 100; }), "table_offset: overflows");
  CHECK_EQ(broken([](auto& p) { p.header.data_offset = 16000; }), "data_offset: is not a multiple of 16384");
  CHECK_EQ(broken([](auto& p) { p.header.data_offset = 0; }), "data_offset: lies inside the expert table");
  CHECK_EQ(broken([](auto& p) { p.header.num_moe_layers = 3; }), "num_moe_layers: 3, the table has 2");
  CHECK_EQ(broken([](auto& p) { p.header.max_experts_per_layer = 5; }), "max_experts_per_layer: 5, the table has 4");
  CHECK_EQ(broken([](auto& p) { p.header.max_experts_per_layer = 3; }),
           "expert 3 of layer 0: max_experts_per_layer is 3");
  for (const std::uint32_t bad : {0u, 1540u, 16384u, 0xFFFFFFC0u}) {
    VaultParts parts = make_vault();
    std::string bytes = parts.bytes();
    std::memcpy(bytes.data() + 60, &bad, 4);
    CHECK_EQ(refusal(bytes), "arch_offset: " + std::to_string(bad) + " is not 64-byte aligned between table and data");
  }
}

TEST(table_entries) {
  const std::string name = "expert 1 of layer 0: ";
  CHECK_EQ(broken([](auto& p) { p.table[1].group_size = 0; }), name + "group_size 0 is not 64");
  CHECK_EQ(broken([](auto& p) { p.table[1].num_groups = 95; }), name + "num_groups 95 is not 96");
  CHECK_EQ(broken([](auto& p) { p.table[1].padded_size = 16000; }), name + "padded_size is not a multiple of 16384");
  CHECK_EQ(broken([](auto& p) { p.table[1].padded_size = 0; }), name + "raw_size is more than padded_size");
  CHECK_EQ(broken([](auto& p) { p.table[1].raw_size = ~0ull; }), name + "raw_size is more than padded_size");
  CHECK_EQ(broken([](auto& p) { p.table[1].raw_size -= 1; }),
           "expert 1 of layer 0, down: scales_offset is past raw_size");
  CHECK_EQ(broken([](auto& p) { p.table[1].expert_id = 0; }), "expert 0 of layer 0: is in the table twice");
  CHECK_EQ(broken([](auto& p) { p.table[1].layer_id = 0x80000000; p.table[1].expert_id = 0; }).substr(0, 8),
           "layer 0:");
  CHECK_EQ(broken([](auto& p) { p.table[0].layer_id = 9; }),
           "layer 0: experts are missing: it has 3 up to number 3");
  CHECK_EQ(broken([](auto& p) { for (int i = 4; i < 8; ++i) p.table[i].layer_id = 2; }),
           "num_hidden_layers: 2, but layer 2 has experts");
  CHECK_EQ(broken([](auto& p) { for (int i = 4; i < 8; ++i) p.table[i].layer_id = 0xFFFFFFFF; }),
           "layer 4294967295: layer_id is out of range");
}

// byte_offset is changed in the finished file: bytes() places records by it.
TEST(record_offsets) {
  const std::string name = "expert 1 of layer 0: ";
  const auto with_offset = [](std::uint64_t offset) {
    std::string bytes = make_vault().bytes();
    std::memcpy(bytes.data() + 64 + 48 + 8, &offset, 8);
    return refusal(bytes);
  };
  CHECK_EQ(with_offset(20000), name + "byte_offset is not a multiple of 16384");
  CHECK_EQ(with_offset(0), name + "byte_offset lies before data_offset");
  CHECK(with_offset(16384).find("its record overlaps that of expert") != std::string::npos);
  CHECK_EQ(with_offset(0xFFFFFFFFFFFFC000), name + "byte_offset overflows");
  CHECK_EQ(with_offset(0x7FFFFFFFFFFFC000), name + "byte_offset overflows");
  CHECK_EQ(with_offset(1 << 20), name + "incomplete: needs 1064960 bytes, has 147456");
}

TEST(descriptors) {
  const std::string up = "expert 1 of layer 0, up: ";
  CHECK_EQ(broken([](auto& p) { p.tensors[4].tensor_type = 2; }), up + "tensor_type 2 is not 1");
  CHECK_EQ(broken([](auto& p) { p.tensors[4].ndim = 3; }), up + "ndim 3 is not 2");
  CHECK_EQ(broken([](auto& p) { p.tensors[4].rows = 31; }), up + "rows x cols 31 x 64 is not 32 x 64");
  CHECK_EQ(broken([](auto& p) { p.tensors[4].cols = 0; }), up + "rows x cols 32 x 0 is not 32 x 64");
  CHECK_EQ(broken([](auto& p) { p.tensors[0].rows = 0; }), "expert 0 of layer 0, gate: rows is out of range");
  CHECK_EQ(broken([](auto& p) { p.tensors[4].packed_size = 1023; }), up + "packed_size 1023 is not 1024");
  CHECK_EQ(broken([](auto& p) { p.tensors[4].scales_size = 62; }), up + "scales_size 62 is not 64");
  CHECK_EQ(broken([](auto& p) { p.tensors[4].packed_offset = ~0ull; }), up + "packed_offset is past raw_size");
  CHECK_EQ(broken([](auto& p) { p.tensors[4].scales_offset = ~0ull - 1; }), up + "scales_offset is past raw_size");
  CHECK_EQ(broken([](auto& p) { p.tensors[4].scales_offset -= 1; }), up + "scales_offset is odd");
}

TEST(arch_block) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  CHECK_EQ(broken([](auto& p) { p.block.magic[0] = 'X'; }), "arch block: does not begin with SARC");
  CHECK_EQ(broken([](auto& p) { p.block.block_version = 2; }), "arch block_version: 2 is unknown (can read 1)");
  CHECK_EQ(broken([](auto& p) { p.block.block_size = 64; }), "arch block_size: 64 is not 128");
  CHECK_EQ(broken([](auto& p) { p.block.flags |= 8; }), "arch flags: bits 8 ask for something that is unknown here");
  CHECK_EQ(broken([](auto& p) { p.block.activation = 1; }), "activation: 1 is unknown (can run 0, SiLU)");
  CHECK_EQ(broken([](auto& p) { p.block.moe_ffn_dim = 33; }), "moe_ffn_dim: 33, the experts' tensors have 32");
  CHECK_EQ(broken([](auto& p) { p.block.model_type[2] = '\n'; }), "model_type: not a printable word");
  CHECK_EQ(broken([=](auto& p) { p.block.rope_theta = nan; }), "rope_theta: nan is not a positive number");
  CHECK_EQ(broken([=](auto& p) { p.block.rope_theta = infinite; }), "rope_theta: inf is not a positive number");
  CHECK_EQ(broken([](auto& p) { p.block.rope_theta = 0; }), "rope_theta: 0.000000 is not a positive number");
  CHECK_EQ(broken([=](auto& p) { p.block.rms_norm_eps = nan; }), "rms_norm_eps: nan is not a positive number");
  CHECK_EQ(broken([](auto& p) { p.block.rms_norm_eps = -1e-6f; }).substr(0, 12), "rms_norm_eps");
  CHECK_EQ(broken([](auto& p) { p.block.num_heads = 0; }), "num_heads: 0 is not within 1 to 4096");
  CHECK_EQ(broken([](auto& p) { p.block.num_heads = 0xFFFFFFFF; }), "num_heads: 2147483647 is not within 1 to 4096");
  CHECK_EQ(broken([](auto& p) { p.block.num_kv_heads = 0; }), "num_kv_heads: 0 is not within 1 to 4");
  CHECK_EQ(broken([](auto& p) { p.block.num_kv_heads = 3; }), "num_kv_heads: 3 does not divide num_heads 4");
  CHECK_EQ(broken([](auto& p) { p.block.head_dim = 15; }), "head_dim: 15 is odd: RoPE turns pairs");
  CHECK_EQ(broken([](auto& p) { p.block.moe_top_k = 5; }), "moe_top_k: 5 is not within 1 to 4");
  CHECK_EQ(broken([](auto& p) { p.block.moe_top_k = 0; }), "moe_top_k: 0 is not within 1 to 4");
  CHECK_EQ(broken([](auto& p) { p.block.num_hidden_layers = 1; }), "num_hidden_layers: 1, but layer 1 has experts");
  CHECK_EQ(broken([](auto& p) { p.block.flags |= kFirstLayerDense; }),
           "arch flags: layer 0 is said to be dense, but it has experts");
  CHECK_EQ(broken([](auto& p) { p.header.vocab_size = 0; }), "vocab_size: 0 is not within 1 to 16777216");
  Shape few;
  few.layers = {{0, 4}, {1, 1}};
  CHECK_EQ(broken([](auto&) {}, few), "moe_top_k: 2 is more than the 1 experts of layer 1");
  Shape dense;
  dense.hidden_layers = 3;
  CHECK_EQ(broken([](auto& p) { p.block.dense_ffn_dim = 0; }, dense),
           "dense_ffn_dim: 0, but 1 layers have no experts");
}

// A scout's header for Shape{}: shapes only, every tensor without bytes would be refused, so the data are zeros.
static std::string scout(int vocab, int router_rows, bool qk_norm, int heads = 4, const std::string& config = "") {
  std::string json = "{", data;
  const auto add = [&](const std::string& name, std::vector<int> shape) {
    std::string dims;
    std::size_t bytes = 2;
    for (const int n : shape) {
      dims += (dims.empty() ? "" : ",") + std::to_string(n);
      bytes *= static_cast<std::size_t>(n);
    }
    json += (json.size() > 1 ? ",\"" : "\"") + name + R"(":{"dtype":"BF16","shape":[)" + dims + R"(],"data_offsets":[)" +
            std::to_string(data.size()) + "," + std::to_string(data.size() + bytes) + "]}";
    data.append(bytes, '\0');
  };
  add("model.embed_tokens.weight", {vocab, 64});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add(prefix + "mlp.gate.weight", {router_rows, 64});
    add(prefix + "self_attn.q_proj.weight", {heads * 16, 64});
    add(prefix + "self_attn.k_proj.weight", {32, 64});
    if (qk_norm) add(prefix + "self_attn.q_norm.weight", {16});
  }
  if (!config.empty()) json += ",\"__metadata__\":{\"config\":" + config + "}";
  return safetensors(json + "}", data);
}

TEST(a_scout_of_another_model_is_refused) {
  const std::string bytes = make_vault().bytes();
  CHECK_EQ(refusal(bytes, scout(100, 4, true)), "");
  CHECK_EQ(refusal(bytes, scout(101, 4, true)),
           "the scout's model.embed_tokens.weight: its shape is not 100 x 64: not this vault's scout");
  CHECK_EQ(refusal(bytes, scout(100, 5, true)),
           "the scout's model.layers.0.mlp.gate.weight: its shape is not 4 x 64: not this vault's scout");
  VaultParts parts = make_vault();
  parts.header.vocab_size = 0;
  const Folder folder;
  CHECK_EQ(opened(folder, parts, scout(101, 4, true))->architecture().vocab, 101);
}

static const char* const kOldConfig = R"({"model_type": "qwen3_moe", "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 16, "num_experts_per_tok": 2, "norm_topk_prob": true, "num_hidden_layers": 2, "hidden_size": 64,
  "moe_intermediate_size": 32, "intermediate_size": 48, "num_experts": 4, "rope_theta": 10000000, "rms_norm_eps": 1e-05,
  "hidden_act": "silu", "rope_scaling": null, "max_position_embeddings": 32768, "x": Infinity})";

TEST(version_1_with_an_old_config) {
  const Folder folder;
  const auto vault = opened(folder, make_version1(), scout(100, 4, true), kOldConfig);
  const Architecture& a = vault->architecture();
  CHECK_EQ(a.model_type, "qwen3_moe");
  CHECK(a.renormalize_top_k && a.qk_norm && !a.first_layer_dense);
  CHECK_EQ(a.heads, 4);
  CHECK_EQ(a.kv_heads, 2);
  CHECK_EQ(a.head_dim, 16);
  CHECK_EQ(a.top_k, 2);
  CHECK_EQ(a.rope_theta, 1e7f);
  CHECK_EQ(a.rms_epsilon, 1e-5f);
  CHECK_EQ(a.dense_ffn, 48);
  CHECK_EQ(a.shared_ffn, 0);
  CHECK_EQ(a.layers, 2);
  CHECK_EQ(a.trained_context, 32768);
  CHECK_EQ(a.assumed, "");
  CHECK(!opened(folder, make_version1(), scout(100, 4, false), kOldConfig)->architecture().qk_norm);
}

TEST(version_1_with_a_config_of_transformers_5) {
  const Folder folder;
  const std::string config = R"({"num_attention_heads": 4, "num_key_value_heads": 2, "num_experts_per_tok": 1,
    "num_hidden_layers": 2, "num_local_experts": 4,
    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}})";
  const auto vault = opened(folder, make_version1(), scout(100, 4, false), config);
  CHECK_EQ(vault->architecture().rope_theta, 5e5f);
  CHECK_EQ(vault->architecture().head_dim, 16);  // 64 / 4
  CHECK(!vault->architecture().renormalize_top_k);
  CHECK_EQ(vault->architecture().assumed,
           "norm_topk_prob false (not in the config); rms_norm_eps 1e-6 (not in the config)");
}

TEST(version_1_with_the_config_in_its_scout) {
  const Folder folder;
  std::string escaped = "\"";
  for (const char c : std::string(kOldConfig)) escaped += c == '"' ? "\\\"" : c == '\n' ? " " : std::string(1, c);
  const auto vault = opened(folder, make_version1(), scout(100, 4, true, 4, escaped + "\""));
  CHECK_EQ(vault->architecture().rope_theta, 1e7f);
  CHECK_EQ(refusal(make_version1().bytes(), scout(100, 4, true, 4, "\"{\"")),
           "the scout's metadata key \"config\": byte 1: a key is missing");
  CHECK_EQ(refusal(make_vault().bytes(), scout(100, 4, true, 4, "\"{\"")), "");
}

// A config, with `changes` in place of its own values or beside them.
static std::string deepseek_config(const std::map<std::string, std::string>& changes = {}) {
  std::map<std::string, std::string> fields = {
      {"model_type", "\"deepseek_v3\""}, {"num_hidden_layers", "2"}, {"num_attention_heads", "4"}, {"num_key_value_heads", "2"},
      {"num_experts_per_tok", "2"}, {"moe_intermediate_size", "32"}, {"intermediate_size", "48"}, {"n_group", "2"},
      {"topk_group", "1"}, {"head_dim", "6"}, {"q_lora_rank", "null"}, {"kv_lora_rank", "32"}, {"v_head_dim", "12"},
      {"qk_nope_head_dim", "10"}, {"qk_rope_head_dim", "6"},
      {"rope_scaling", R"({"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.5})"}};
  for (const auto& [name, value] : changes) fields[name] = value;
  std::string json;
  for (const auto& [name, value] : fields) json += (json.empty() ? "{\"" : ", \"") + name + "\": " + value;
  return json + "}";
}

static VaultParts deepseek(const Shape& shape = {}) {
  VaultParts parts = make_vault(shape);
  std::memcpy(parts.block.model_type, "deepseek_v3", 12);
  return parts;
}

TEST(latent_attention_is_what_the_config_says) {
  const Folder folder;
  const auto vault = opened(folder, deepseek(), scout(100, 4, false), deepseek_config());
  const Architecture& a = vault->architecture();
  CHECK(a.latent.has_value());
  CHECK_EQ(a.latent->query_rank, 0);
  CHECK_EQ(a.latent->rank, 32);
  CHECK_EQ(a.latent->value_dim, 12);
  CHECK_EQ(a.head_dim, 16);
  CHECK_EQ(a.rotary_dim, 6);
  CHECK(a.latent->pairs == RopePairs::neighbours);
  const double grown = 0.05 * std::log(40.0) + 1;
  CHECK_NEAR(a.latent->scale, grown * grown / 4, 1e-6);
  CHECK_NEAR(a.yarn->attention_factor, (0.1 * std::log(40.0) + 1) / grown, 1e-12);
  CHECK_EQ(a.groups.count, 2);
  CHECK_EQ(a.groups.kept, 1);
  CHECK_EQ(a.routed_scale, 2.5f);
  const auto first = opened(folder, [] {
    VaultParts parts = deepseek();
    parts.header.version = 1;
    return parts;
  }(), scout(100, 4, false), deepseek_config());
  CHECK_EQ(first->architecture().head_dim, 16);
  CHECK_EQ(first->architecture().latent->rank, 32);
}

TEST(latent_attention_left_to_its_class) {
  const Folder folder;
  VaultParts parts = deepseek();
  parts.block.head_dim = 192;
  const std::string config = R"({"model_type": "deepseek_v3", "n_group": 1, "topk_group": 1})";
  const auto vault = opened(folder, parts, scout(100, 4, false), config);
  const Architecture& a = vault->architecture();
  CHECK_EQ(a.latent->query_rank, 1536);
  CHECK_EQ(a.latent->rank, 512);
  CHECK_EQ(a.rotary_dim, 64);
  CHECK_EQ(a.latent->value_dim, 128);
  CHECK_NEAR(a.latent->scale, 1 / std::sqrt(192.0), 1e-8);
  CHECK(!a.yarn);
}

TEST(latent_attention_that_cannot_be_run) {
  const std::string bytes = deepseek().bytes();
  const auto refused = [&](const std::map<std::string, std::string>& changes) {
    const std::string line = refusal(bytes, scout(100, 4, false), deepseek_config(changes)), file = "config.json: ";
    return line.find(file) == std::string::npos ? line : line.substr(line.find(file) + file.size());
  };
  const std::string unfit = ", of which topk_group 1, do not fit the 4 experts of layer 0 and top 2";
  CHECK_EQ(refused({{"kv_lora_rank", "40"}}), "kv_lora_rank: 40 is not a multiple of 16");
  CHECK_EQ(refused({{"kv_lora_rank", "0"}}), "kv_lora_rank: 0 is not within 16 to 16384");
  CHECK_EQ(refused({{"kv_lora_rank", "1048576"}}), "kv_lora_rank: 1048576 is not within 16 to 16384");
  CHECK_EQ(refused({{"v_head_dim", "0"}}), "v_head_dim: 0 is not within 1 to 4096");
  CHECK_EQ(refused({{"q_lora_rank", "-1"}}), "q_lora_rank: not a count up to 16777216");
  CHECK_EQ(refused({{"qk_nope_head_dim", "12"}}), "qk_nope_head_dim: 12, with qk_rope_head_dim 6, but the vault has head_dim 16");
  CHECK_EQ(refused({{"qk_nope_head_dim", "11"}, {"qk_rope_head_dim", "5"}}), "rotary dimension: 5 is odd: RoPE turns pairs");
  CHECK_EQ(refused({{"qk_nope_head_dim", "16"}, {"qk_rope_head_dim", "0"}}), "rotary dimension: 0 is not within 2 to 16");
  CHECK_EQ(refused({{"partial_rotary_factor", "0.5"}}), "partial_rotary_factor: RoPE turns all of qk_rope_head_dim");
  CHECK_EQ(refused({{"rope_interleave", "1"}}), "rope_interleave: not true or false");
  CHECK_EQ(refused({{"topk_method", "\"greedy\""}}), "topk_method: \"greedy\" cannot be run");
  CHECK_EQ(refused({{"topk_group", "3"}}), "topk_group: not within 1 to n_group");
  CHECK_EQ(refused({{"n_group", "0"}}), "n_group: not above 0");
  CHECK_EQ(refused({{"n_group", "4"}}), "n_group: 4" + unfit);
  CHECK_EQ(refused({{"n_group", "3"}}), "n_group: 3" + unfit);
  Shape uneven;
  uneven.layers = {{0, 4}, {1, 5}};
  CHECK_EQ(refusal(deepseek(uneven).bytes(), scout(100, 4, false), deepseek_config()),
           "n_group: 2, of which topk_group 1, do not fit the 5 experts of layer 1 and top 2");
}

TEST(version_1_refusals) {
  const std::string bytes = make_version1().bytes();
  const auto with = [&](const std::string& config, int heads = 4) {
    const std::string message = refusal(bytes, scout(100, 4, true, heads), config);
    const auto at = message.find("config.json: ");
    return at == std::string::npos ? message : message.substr(at + 13);
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string config = kOldConfig;
    config.replace(config.find(from), from.size(), to);
    return with(config);
  };
  CHECK_EQ(refusal(bytes), "version 1: its scout is needed too (--scout)");
  const std::string advice = "give the checkpoint's config.json with --config";
  CHECK(refusal(bytes, scout(100, 4, true)).find(advice) != std::string::npos);
  CHECK_EQ(with("{}"), "num_attention_heads, num_experts_per_tok, num_hidden_layers missing: give the checkpoint's own "
                       "config.json with --config");
  CHECK_EQ(with("[]"), "not a JSON object");
  CHECK_EQ(with("{\"a\":1} x"), "byte 8: text after the value");
  CHECK_EQ(changed("\"num_experts\": 4", "\"num_experts\": 8"), "num_experts: 8, the vault has 4 a layer");
  CHECK_EQ(changed("\"hidden_size\": 64", "\"hidden_size\": 65"), "hidden_size: 65, the vault has 64");
  CHECK_EQ(changed("\"silu\"", "\"gelu\""), "hidden_act: \"gelu\" cannot be run");
  CHECK_EQ(changed("\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"yarn\"}"),
           "rope_scaling: RoPE kind \"yarn\" cannot be run");
  CHECK_EQ(changed("\"num_attention_heads\": 4", "\"num_attention_heads\": -4"),
           "num_attention_heads: not a count up to 16777216");
  CHECK_EQ(changed("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": \"x\""), "rms_norm_eps: not a number");
  CHECK_EQ(changed("\"norm_topk_prob\": true", "\"norm_topk_prob\": 1"), "norm_topk_prob: not true or false");
  CHECK_EQ(with(kOldConfig, 8),
           "the scout's model.layers.0.self_attn.q_proj.weight: its shape does not fit the config");
}
