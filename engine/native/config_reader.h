// A checkpoint's config.json, field by field: each value checked, the first bad one and all missing ones remembered.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "error.h"
#include "json.h"

namespace smoe {

struct CheckpointConfig {
  std::string source;  // for messages: a path, or "the scout's metadata"; empty when there is none
  json::Value root;
  bool found() const { return !source.empty(); }
};

class ConfigReader {
 public:
  static constexpr int kLargest = 1 << 24;  // of any width: products of two fit 64 bits with room, sums fit 32

  explicit ConfigReader(const CheckpointConfig& config) : config_(config) {}

  const json::Value* find(const char* name) const {
    const json::Value* value = config_.root.find(name);
    return value && !value->is(json::Kind::null) ? value : nullptr;
  }

  // Said to be none, which is not the same as left out.
  bool is_null(const char* name) const {
    const json::Value* value = config_.root.find(name);
    return value && value->is(json::Kind::null);
  }

  // transformers 5 keeps theta and its like inside rope_parameters, older ones beside rope_scaling, or in it.
  const json::Value* find_rope(const char* name) const {
    for (const char* place : {"rope_scaling", "rope_parameters"}) {
      const json::Value* parameters = find(place);
      const json::Value* value = parameters ? parameters->find(name) : nullptr;
      if (value && !value->is(json::Kind::null)) return value;
    }
    return find(name);
  }

  // What says how RoPE is scaled: rope_parameters in what transformers 5 writes, rope_scaling before; null: nothing does.
  const json::Value* rope_settings() const {
    for (const char* name : {"rope_scaling", "rope_parameters"})
      if (const json::Value* value = find(name); value && !value->members.empty()) return value;
    return nullptr;
  }

  static std::string_view rope_kind(const json::Value& settings) {
    const json::Value* kind = settings.find("rope_type");
    if (!kind) kind = settings.find("type");
    return kind ? std::string_view(kind->string) : "default";
  }

  std::optional<int> count(const char* name) {
    const json::Value* value = find(name);
    if (!value) return std::nullopt;
    const auto integer = value->integer;
    if (integer && *integer >= 0 && *integer <= kLargest) return static_cast<int>(*integer);
    refuse(name, "not a count up to " + std::to_string(kLargest));
    return std::nullopt;
  }

  int needed(const char* name) {
    if (const auto value = count(name)) return *value;
    missing_ += (missing_.empty() ? "" : ", ") + std::string(name);
    return 0;
  }

  std::optional<double> number(const json::Value* value, const char* name) {
    if (!value) return std::nullopt;
    if (value->is(json::Kind::number)) return value->number;
    refuse(name, "not a number");
    return std::nullopt;
  }

  // value: may be null or JSON's null, like an absent one.
  double positive(const json::Value* value, const char* name, double otherwise) {
    const auto found = value && value->is(json::Kind::null) ? std::nullopt : number(value, name);
    if (found && !(*found > 0 && std::isfinite(*found))) refuse(name, "not a positive number");
    return found.value_or(otherwise);
  }

  bool flag(const char* name, bool otherwise) { return flag(find(name), name, otherwise); }

  bool flag(const json::Value* value, const char* name, bool otherwise) {
    if (!value) return otherwise;
    if (!value->is(json::Kind::boolean)) refuse(name, "not true or false");
    return value->boolean;
  }

  std::string text(const char* name) {
    const json::Value* value = find(name);
    if (value && !value->is(json::Kind::string)) refuse(name, "not a string");
    return value ? value->string : "";
  }

  void refuse(const std::string& name, const std::string& what) {
    if (!error_) error_ = Error{config_.source + ": " + name + ": " + what};
  }

  Error error() const {
    if (error_ || missing_.empty()) return error_;
    return {config_.source + ": " + missing_ + " missing: give the checkpoint's own config.json with --config"};
  }

 private:
  const CheckpointConfig& config_;
  std::string missing_;
  Error error_;
};

}  // namespace smoe
