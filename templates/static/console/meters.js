// Context, memory and the engine: polled while the page is looked at, faster while it works.
import { $, h } from "./dom.js";
import { count, gibibytes } from "./format.js";
import { getJson } from "./api.js";

const AMBER = 0.8; // share of the window from which its meter warns
const ENGINE = { up: "Engine up", booting: "Engine booting", down: "Engine down", locked: "Key needed" };

export function showContext(used, window) {
  const meter = $("context");
  meter.hidden = !window;
  if (!window) return;
  const value = Math.min(used, window);
  const words = `${count(value)} / ${count(window)}`;
  $("context-text").textContent = words;
  $("context-fill").style.width = `${(100 * value) / window}%`;
  meter.classList.toggle("amber", value >= AMBER * window);
  const attributes = { "aria-valuenow": value, "aria-valuemax": window, "aria-valuetext": `${words} tokens of the window`, title: `Context: ${words} tokens` };
  for (const [name, text] of Object.entries(attributes)) meter.setAttribute(name, text);
}

export class Meters {
  constructor(changed) {
    this.changed = changed;
    this.engine = "unknown";
    this.disk = null; // {hits, rate} between the last two readings
    document.addEventListener("visibilitychange", () => this.poll());
    this.poll();
  }

  /** Busy while a reply runs: then every second and a half, else every four. */
  set busy(on) {
    this.working = on;
    this.disk = null;
    this.last = null;
    this.poll();
  }

  async poll() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    await Promise.all([this.readEngine(), this.readMemory()]);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.poll(), this.working ? 1500 : 4000);
  }

  async readEngine() {
    const health = await getJson("/health").catch(({ kind }) => ({ engine: kind === "key" ? "locked" : "gone" }));
    const state = health.engine;
    this.window = health.context || this.window;
    if (state === this.engine) return;
    this.engine = state;
    $("engine").dataset.state = state;
    $("engine-text").textContent = ENGINE[state] ?? "Server gone";
    this.changed(state);
  }

  async readMemory() {
    const memory = await getJson("/sysmem").catch(() => null);
    $("memory").hidden = !memory;
    if (!memory) return;
    this.limit = memory.limit;
    $("memory").dataset.pressure = memory.pressure.level;
    $("memory-text").textContent = `${(memory.used / 2 ** 30).toFixed(1)} / ${gibibytes(memory.installed)}`;
    const { trunk, ring, kv, rss } = memory.engine;
    const rows = { Used: memory.used, Free: memory.free, Installed: memory.installed, "Engine's resident set": rss, "– trunk": trunk, "– ring": ring, "– KV cache": kv };
    const lines = Object.entries(rows).filter(([, value]) => value).map(([name, value]) => h("div", {}, h("span", {}, name), h("span", {}, gibibytes(value))));
    $("memory-tip").replaceChildren(...lines, h("div", {}, h("span", {}, "Pressure"), h("span", {}, memory.pressure.level)));
    if (memory.engine.hits !== undefined) this.readRing(memory.engine);
  }

  /** The engine's counters run since its boot: what counts is their change. */
  readRing({ hits, misses, bytes: read }) {
    const now = { hits, misses, read, at: performance.now() };
    const { last } = this;
    this.last = now;
    if (!last || now.hits + now.misses <= last.hits + last.misses) return;
    const asked = now.hits + now.misses - last.hits - last.misses;
    this.disk = { hits: (now.hits - last.hits) / asked, rate: (1000 * (now.read - last.read)) / (now.at - last.at) };
  }
}
