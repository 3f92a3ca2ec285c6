#include "routing_log.h"

#include <algorithm>
#include <utility>

namespace smoe {

RoutingLog::RoutingLog(std::string path, int moe_layers, int top_k, int chunk)
    : path_(std::move(path)),
      file_(path_, std::ios::binary),
      layers_(static_cast<std::size_t>(moe_layers)),
      top_k_(static_cast<std::size_t>(top_k)),
      batch_(static_cast<std::size_t>(chunk) * layers_ * top_k_) {}

Error RoutingLog::create(const std::string& path, int moe_layers, int top_k, int chunk, std::unique_ptr<RoutingLog>* out) {
  out->reset(new RoutingLog(path, moe_layers, top_k, chunk));
  return (*out)->file_ ? Error{} : Error{"--routing: " + path + " cannot be written"};
}

void RoutingLog::note(int moe_index, int tokens, const int* experts) {
  const std::size_t layer = static_cast<std::size_t>(moe_index) * top_k_;
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token)
    std::copy_n(experts + token * top_k_, top_k_, &batch_[token * layers_ * top_k_ + layer]);
}

Error RoutingLog::write(int tokens) {
  const std::size_t count = static_cast<std::size_t>(tokens) * layers_ * top_k_;
  file_.write(reinterpret_cast<const char*>(batch_.data()), static_cast<std::streamsize>(count * sizeof(std::int32_t)));
  return file_.flush() ? Error{} : Error{"--routing: " + path_ + " cannot be written; start the engine without the flag"};
}

}  // namespace smoe
