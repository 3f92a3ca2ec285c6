// One request for one reply: fills the message as chunks arrive and keeps the record of where its time went.
import { Failure, streamChat } from "./api.js";

const newRun = () => ({
  at: Date.now(), phase: "queue", position: 0, ms: { queue: 0, boot: 0, prefill: 0, decode: 0 },
  total: 0, done: 0, cached: 0, tokens: 0, first: null, elapsed: 0,
});

const failure = ({ kind, message, wait }) => ({ kind, message, ...(wait && { until: Date.now() + 1000 * wait }) });

export class Reply {
  /** `changed(what)`: "text" as it grows, "phase" when the state changes, "end" once. */
  constructor(node, changed) {
    this.node = node;
    this.changed = changed;
    this.run = newRun();
    this.aborter = new AbortController();
    this.began = this.since = performance.now();
    Object.assign(node, { status: "streaming", finish: null, error: null, runs: [...(node.runs ?? []), this.run] });
  }

  stop() {
    this.aborter.abort();
  }

  async stream(body) {
    try {
      for await (const chunk of streamChat(body, this.aborter.signal)) this.take(chunk);
      if (!this.node.finish) throw new Failure("cut", "The reply ended without saying why.");
      this.end("done");
    } catch (error) {
      if (error.name === "AbortError") return this.end("stopped");
      if (this.leaving) return this.end("interrupted");
      this.node.error = failure(error);
      this.end("error");
    }
  }

  take({ choices = [], prompt_progress: progress, timings, usage, smoe, model }) {
    if (model) this.run.model = model;
    if (smoe) this.facts(smoe);
    if (progress) this.prefill(progress);
    for (const { delta, finish_reason } of choices) {
      if (delta) this.delta(delta, smoe?.tokens ?? 1);
      if (finish_reason) this.node.finish = finish_reason;
    }
    if (timings) this.timings = timings;
    if (usage) this.usage(usage);
  }

  delta({ content, reasoning_content: reasoning }, tokens) {
    if (!content && !reasoning) return;
    this.run.first ??= performance.now() - this.began;
    this.enter("decode");
    this.run.tokens += tokens;
    if (reasoning) this.node.reasoning = (this.node.reasoning ?? "") + reasoning;
    if (content) this.node.text += content;
    this.changed("text");
  }

  prefill({ total, processed, cache }) {
    Object.assign(this.run, { total, done: processed, cached: cache });
    this.enter("prefill");
  }

  facts({ state, position, model, context, ...figures }) {
    if (model) this.run.model = model;
    if (position) this.run.position = position;
    if (context) Object.assign(this.run, { window: context.window, slid: context.slid });
    this.figures = { ...this.figures, ...figures };
    const phase = { queued: "queue", booting: "boot", prefill: "prefill" }[state];
    if (phase) this.enter(phase);
  }

  usage({ prompt_tokens, completion_tokens, prompt_tokens_details: details }) {
    Object.assign(this.run, { total: prompt_tokens, done: prompt_tokens, tokens: completion_tokens });
    this.run.cached = details?.cached_tokens ?? this.run.cached;
  }

  enter(phase) {
    if (this.run.phase === phase) return;
    this.tick();
    this.run.phase = phase;
    this.changed("phase");
  }

  /** Books the time since the last tick on the phase that runs. */
  tick() {
    const now = performance.now();
    this.run.ms[this.run.phase] += now - this.since;
    this.run.elapsed = now - this.began;
    this.since = now;
  }

  end(status) {
    this.tick();
    this.settle(this.timings ?? {}, this.figures ?? {});
    Object.assign(this.node, { status, changed: Date.now() });
    this.run.phase = "end";
    this.changed("end");
  }

  /** The server's own figures replace what was measured from here. */
  settle({ prompt_ms, predicted_ms }, { queue_ms, boot_ms, stall_ms, expert_hits, expert_misses, bytes_read }) {
    const told = { queue: queue_ms, boot: boot_ms, prefill: prompt_ms, decode: predicted_ms };
    for (const [phase, ms] of Object.entries(told)) if (ms != null) this.run.ms[phase] = ms;
    Object.assign(this.run, { stall: stall_ms, hits: expert_hits, misses: expert_misses, read: bytes_read });
  }
}
