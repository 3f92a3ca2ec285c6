// One generation: reuse, prefill, then token by token. Knows no lines and no threads.
#pragma once

#include <span>

#include "engine.h"
#include "protocol.h"

namespace smoe {

// Who hears of a generation, and may end it. Called by the computing thread.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void progress(int done, int total, int cached) = 0;
  virtual void token(int token, const Logprobs* logprobs) = 0;
  // Where the request asks for the prompt's: each id in turn, null with the first. After the progress() of its chunk began.
  virtual void prompt_token(int /*token*/, const Logprobs* /*logprobs*/) {}
  // What may come next. Blocks until it is known; false ends the generation.
  virtual bool next_mask(Mask* mask) = 0;
  // Asked between layers: ends the generation with fin=cancel.
  virtual bool interrupted() = 0;
};

// Why a generation did not end with figures: an ERR line's words. Empty reason: it did.
struct Failure {
  std::string reason, detail;
};

class Generator {
 public:
  explicit Generator(Engine& engine) : engine_(engine), sampler_(engine.model().vocabulary()) {}

  Failure run(const GenerateRequest& request, Listener& listener, Figures* figures);

 private:
  enum class Step : std::uint8_t { go_on, interrupted, failed };

  Failure admit(const GenerateRequest& request, Conversations::Match* match) const;
  Step prefill(const GenerateRequest& request, Listener& listener, Conversation& conversation);
  Step tell_prompt(const GenerateRequest& request, int done, int count, Listener& listener);
  Step decode(const GenerateRequest& request, Listener& listener, Conversation& conversation, Figures* figures);
  Step forward(std::span<const int> ids, Listener& listener, Conversation& conversation, FunctionRef<void(int layer)> before_layer);
  Step not_finite();
  bool ends(int token, const GenerateRequest& request) const;

  Engine& engine_;
  Sampler sampler_;
  bool given_up_ = false;  // the last prompt, before it was whole: the next comes in short chunks, so that trying again gets further
  int last_ = 0;  // of the last batch: whose logits are next
  Failure failure_;
};

}  // namespace smoe
