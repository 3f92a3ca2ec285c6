// What tokens were routed to, for a simulator: int32 [tokens][MoE layers][top k] of expert numbers, ascending, in the order
// in which tokens were computed. `make bench ARGS="ring --routing FILE"` replays such a file.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "error.h"

namespace smoe {

class RoutingLog {
 public:
  // Begins the file anew. chunk: the most tokens of a batch.
  static Error create(const std::string& path, int moe_layers, int top_k, int chunk, std::unique_ptr<RoutingLog>* out);

  // experts: [tokens][top_k], the choice of one layer for the present batch.
  void note(int moe_index, int tokens, const int* experts);
  // The batch is whole; what is noted of others is forgotten.
  Error write(int tokens);

 private:
  RoutingLog(std::string path, int moe_layers, int top_k, int chunk);

  std::string path_;
  std::ofstream file_;
  std::size_t layers_, top_k_;
  std::vector<std::int32_t> batch_;  // [chunk][MoE layers][top k]
};

}  // namespace smoe
