#include "trunk_loader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "memory.h"

namespace smoe {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{8} << 20;
// Elements that are converted at a time: a multiple of a scale's 64, and their floats stay in the first cache.
constexpr std::uint64_t kRun = 2048;

struct Piece {
  const PlacedTensor* tensor;
  std::uint64_t first, count;  // elements; first: a multiple of kRun
};

// A range of the file that is read at once: from a whole I/O block on, so that the read can be direct.
struct Block {
  std::uint64_t begin, end;
  std::vector<Piece> pieces;
};

std::uint64_t element_bytes(const PlacedTensor& tensor) { return tensor.source == Storage::f32 ? 4 : 2; }

void cut(const PlacedTensor& tensor, std::vector<Block>* blocks) {
  const std::uint64_t size = element_bytes(tensor);
  for (std::uint64_t first = 0; first < tensor.elements;) {
    const std::uint64_t at = tensor.begin + first * size, rest = tensor.elements - first;
    const std::uint64_t limit = blocks->empty() ? 0 : blocks->back().begin + kBlockBytes;
    const std::uint64_t room = limit > at ? (limit - at) / size : 0;
    const std::uint64_t count = rest <= room ? rest : room / kRun * kRun;
    if (count == 0) {
      blocks->push_back({at / kIoBlock * kIoBlock, at, {}});
      continue;
    }
    blocks->back().pieces.push_back({&tensor, first, count});
    blocks->back().end = at + count * size;
    first += count;
  }
}

void convert(const Kernels& kernels, const PlacedTensor& tensor, const unsigned char* from, std::uint64_t first, std::uint64_t count,
             unsigned char* memory) {
  unsigned char* const data = memory + tensor.data;
  if (tensor.storage == tensor.source) {
    std::memcpy(data + first * element_bytes(tensor), from, count * element_bytes(tensor));
    return;
  }
  std::array<float, kRun> values;
  to_floats(tensor.source, from, count, values.data());
  kernels.quantize_row(tensor.storage, values.data(), static_cast<int>(count), data + code_bytes(tensor.storage, first),
               reinterpret_cast<std::uint16_t*>(memory + tensor.scales) + first / 64);
}

void convert(const Block& block, const unsigned char* bytes, const Kernels& kernels, ThreadPool& pool, unsigned char* memory) {
  constexpr int kGrain = 8;  // runs that are worth another thread's wake-up
  for (const Piece& piece : block.pieces) {
    const PlacedTensor& tensor = *piece.tensor;
    const unsigned char* const tensor_bytes = bytes + (tensor.begin - block.begin);
    pool.for_range(static_cast<int>((piece.count + kRun - 1) / kRun), kGrain, [&](int begin, int end) {
      const std::uint64_t last = piece.first + std::min(piece.count, static_cast<std::uint64_t>(end) * kRun);
      for (std::uint64_t i = piece.first + static_cast<std::uint64_t>(begin) * kRun; i < last; i += kRun)
        convert(kernels, tensor, tensor_bytes + i * element_bytes(tensor), i, std::min(kRun, last - i), memory);
    });
  }
}

Error read(const File& scout, const Block& block, unsigned char* to) {
  Error error = scout.read_direct(block.begin, to, block.end - block.begin);
  if (!scout.direct()) scout.drop_cached(block.begin, block.end - block.begin);
  return error;
}

}  // namespace

Error load_tensors(const File& scout, const TrunkLayout& layout, const Kernels& kernels, ThreadPool& pool, const LoadProgress& progress,
                   unsigned char* memory) {
  std::vector<Block> blocks;
  for (const PlacedTensor& tensor : layout.tensors) cut(tensor, &blocks);
  std::uint64_t total = 0, done = 0;
  for (const Block& block : blocks) total += block.end - block.begin;

  std::array<Pages, 2> buffers;
  for (Pages& buffer : buffers)
    if (Error error = Pages::allocate(kBlockBytes, &buffer)) return error;
  const auto begin_read = [&](std::size_t i) {
    return std::async(std::launch::async, [&, i] { return read(scout, blocks[i], buffers[i % 2].data()); });
  };
  std::future<Error> coming;
  if (!blocks.empty()) coming = begin_read(0);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (Error error = coming.get()) return error;
    if (i + 1 < blocks.size()) coming = begin_read(i + 1);
    convert(blocks[i], buffers[i % 2].data(), kernels, pool, memory);
    if (progress) progress(done += blocks[i].end - blocks[i].begin, total);
  }
  return {};
}

}  // namespace smoe
