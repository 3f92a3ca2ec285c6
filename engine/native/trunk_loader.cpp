#include "trunk_loader.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "memory.h"

namespace smoe {
namespace {

// A huge page: what one read fills at a time.
constexpr std::uint64_t kBlockBytes = std::uint64_t{2} << 20;
// Threads beside those that compute, for some always wait for the disk; and as many as any disk wants, which take no more
// memory than a program's growth (engine.cpp) allows for.
constexpr int kReadersBeside = 2, kMostThreads = 8;
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

// Threads that each read a block, convert it and take the next: while some wait for the disk, others compute.
class Loader {
 public:
  Loader(const File& scout, const Kernels& kernels, const LoadProgress& progress, unsigned char* memory)
      : scout_(scout), kernels_(kernels), progress_(progress), memory_(memory) {}

  Error run(const TrunkLayout& layout, int threads) {
    for (const PlacedTensor& tensor : layout.tensors) cut(tensor, &blocks_);
    for (const Block& block : blocks_) total_ += block.end - block.begin;
    std::vector<std::future<void>> others;
    const int most = std::min(threads, static_cast<int>(blocks_.size()));
    try {
      while (static_cast<int>(others.size()) + 1 < most) others.push_back(std::async(std::launch::async, [this] { help(); }));
    } catch (const std::system_error&) {  // no more threads to be had: slower, no more
    }
    Pages buffer;
    if (Error error = Pages::allocate(kBlockBytes, &buffer)) fail(std::move(error));
    work(buffer);
    for (std::future<void>& other : others) other.get();
    return error_;
  }

 private:
  // Without memory for one block more: slower, no more.
  void help() {
    Pages buffer;
    if (!Pages::allocate(kBlockBytes, &buffer)) work(buffer);
  }

  void work(const Pages& buffer) {
    for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < blocks_.size();) {
      if (Error error = read(blocks_[i], buffer.data())) return fail(std::move(error));
      for (const Piece& piece : blocks_[i].pieces) convert(piece, buffer.data() + (piece.tensor->begin - blocks_[i].begin));
      tell(blocks_[i].end - blocks_[i].begin);
    }
  }

  Error read(const Block& block, unsigned char* to) const {
    Error error = scout_.read_direct(block.begin, to, block.end - block.begin);
    if (!scout_.direct()) scout_.drop_cached(block.begin, block.end - block.begin);
    return error;
  }

  void convert(const Piece& piece, const unsigned char* tensor_bytes) const {
    const std::uint64_t size = element_bytes(*piece.tensor), end = piece.first + piece.count;
    for (std::uint64_t first = piece.first; first < end; first += kRun)
      smoe::convert(kernels_, *piece.tensor, tensor_bytes + first * size, first, std::min(kRun, end - first), memory_);
  }

  // The first error counts, and no block is begun after it.
  void fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    next_.store(blocks_.size(), std::memory_order_relaxed);
  }

  void tell(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

  const File& scout_;
  const Kernels& kernels_;
  const LoadProgress& progress_;
  unsigned char* const memory_;
  std::vector<Block> blocks_;
  std::uint64_t total_ = 0;
  std::atomic<std::size_t> next_{0};  // fetch_add after fail() steps past the end, which no count of threads wraps
  std::mutex mutex_;                  // guards error_ and done_, and calls of progress_
  Error error_;
  std::uint64_t done_ = 0;
};

}  // namespace

Error load_tensors(const File& scout, const TrunkLayout& layout, const Kernels& kernels, int threads, const LoadProgress& progress,
                   unsigned char* memory) {
  return Loader(scout, kernels, progress, memory).run(layout, std::clamp(threads + kReadersBeside, 1, kMostThreads));
}

}  // namespace smoe
