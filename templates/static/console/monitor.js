// The line under a reply that tells where its time goes: live while it runs, then exact.
import { bytes, count, percent, rate, seconds, tokens } from "./format.js";
import { h } from "./dom.js";

const NAMES = { queue: "Queue", boot: "Boot", prefill: "Prefill", decode: "Decode" };
const FINISH = { stop: "finished", length: "length", tool_calls: "tool calls", content_filter: "filtered" };

const temperature = ({ cached }) => (cached ? `warm, ${count(cached)} cached` : "cold");

const live = {
  queue: (run) => [run.position ? `Queued, position ${run.position}` : "Waiting for the server"],
  boot: (run) => [`Booting ${run.model ?? "the vault"}`],
  prefill: (run) => (run.total ? [`Prefilling ${count(run.done)} of ${count(run.total)}`, temperature(run)] : ["Prefilling"]),
  decode: (run) => [tokens(run.tokens), `${rate(run.tokens, run.ms.decode)} tok/s`, `first after ${seconds(run.first)}`],
};

function frozen(run) {
  if (!run.tokens && run.done < run.total) return [`prefilled ${count(run.done)} of ${count(run.total)}`, temperature(run), seconds(run.elapsed)];
  if (!run.tokens && !run.total) return [`waited ${seconds(run.elapsed)}`];
  return [
    tokens(run.tokens),
    run.tokens > 1 && `${rate(run.tokens, run.ms.decode)} tok/s`,
    run.first !== null && `first after ${seconds(run.first)}`,
    run.total && `prompt ${count(run.total)}, ${temperature(run)}`,
  ].filter(Boolean);
}

/** What the line says; `disk` is {hits: share, rate: bytes a second} while it is known. */
export function summary(run, disk) {
  if (run.phase === "end") return frozen(run);
  const parts = live[run.phase](run);
  if (run.phase !== "decode") return [...parts, seconds(run.elapsed)];
  return disk ? [...parts, `ring ${Math.round(100 * disk.hits)}%`, `${bytes(disk.rate)}/s`] : parts;
}

function facts(run) {
  return [
    ...Object.entries(NAMES).map(([phase, name]) => [name, seconds(run.ms[phase]), phase]),
    run.stall != null && ["Waiting for disk", `${seconds(run.stall)}, ${percent(run.stall, run.ms.prefill + run.ms.decode)} of prefill and decode`, "stall"],
    run.hits != null && ["Ring hits", `${percent(run.hits, run.hits + run.misses)} of ${count(run.hits + run.misses)}`],
    run.read != null && ["Read from disk", bytes(run.read)],
    run.slid && ["Left the window", tokens(run.slid)],
    run.model && ["Model", run.model],
  ].filter(Boolean);
}

export class Monitor {
  constructor() {
    this.line = h("span", { className: "line" });
    this.finish = h("span", { className: "finish" });
    this.segments = Object.keys(NAMES).map((phase) => h("i", { className: phase }));
    this.stall = h("b");
    this.segments.at(-1).append(this.stall);
    this.rest = h("u"); // of a prefill, what is still to do
    this.facts = h("dl");
    this.element = h("details", { className: "monitor" },
      h("summary", { title: "Where the time went" }, this.finish, this.line, h("span", { className: "bar", "aria-hidden": "true" }, this.segments, this.rest)), this.facts);
  }

  update(run, { disk, finish }) {
    this.line.textContent = summary(run, disk).join(" · ");
    this.finish.textContent = FINISH[finish] ?? finish ?? "";
    this.finish.className = `finish ${finish ?? ""}`;
    this.element.classList.toggle("live", run.phase !== "end");
    this.segments.forEach((segment) => (segment.style.flexGrow = run.ms[segment.className] || 0));
    this.rest.style.flexGrow = run.phase === "prefill" && run.done ? (run.elapsed * (run.total - run.done)) / run.done : 0;
    this.stall.style.width = run.stall ? percent(Math.min(run.stall, run.ms.decode), run.ms.decode) : "0";
    if (this.element.open || run.phase === "end") {
      this.facts.replaceChildren(...facts(run).map(([name, value, phase]) => h("div", { className: phase ?? "" }, h("dt", {}, name), h("dd", {}, value))));
    }
  }
}
