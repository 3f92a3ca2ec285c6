// Which of the scout's tensors stay in memory, in which form, and where.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "safetensors.h"

namespace smoe {

// How the matrices that every token reads are kept: those of attention, dense and shared MLPs, and the head.
// automatic: as stored up to kLargestStored bytes of them, q8 beyond.
enum class TrunkForm : std::uint8_t { automatic, stored, q8, q4 };

// Every token reads them all, at the speed of memory: 1 GiB takes 32 ms where that is 33 GB/s. Of less, q8 would save
// 16 ms a token at most, so there the trunk keeps every bit.
inline constexpr std::uint64_t kLargestStored = std::uint64_t{1} << 30;

// By the names "auto", "stored", "q8", "q4".
std::optional<TrunkForm> parse_trunk_form(std::string_view name);
std::string_view name_of(TrunkForm form);

// A token needs one row of an embedding that is not the head too. A larger one stays in the file: its memory is worth
// more as expert slots (622 MB of 2.5 GB at the 30B geometry), and a row is one read through the page cache.
inline constexpr std::uint64_t kLargestEmbedding = std::uint64_t{64} << 20;

struct PlacedTensor {
  std::string_view name;         // of the header's
  Storage source, storage;       // in the file, in memory
  std::uint64_t elements;
  std::uint64_t begin;           // in the file
  std::uint64_t data, scales;    // in memory; scales: where the storage is qN
};

struct TrunkLayout {
  std::vector<PlacedTensor> tensors;  // as they follow each other in the file
  std::optional<PlacedTensor> left_in_file;  // the embedding, where it has no place in memory
  std::uint64_t bytes = 0;            // of memory
  TrunkForm form = TrunkForm::stored;  // never automatic
};

// Tensors of a type that the engine cannot use have no place. The header must outlive the layout.
TrunkLayout lay_out_trunk(const SafetensorsHeader& header, int layers, TrunkForm form);

// Whether a model of so many layers uses a tensor of this name, as far as its name tells.
bool is_of_trunk(std::string_view name, int layers);

// Bytes of codes for so many weights.
std::uint64_t code_bytes(Storage storage, std::uint64_t weights);

}  // namespace smoe
