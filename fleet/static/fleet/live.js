// The cockpit: polls one JSON view and writes its figures into the page. Rates are differences between two looks.
"use strict";

const EVERY_MS = 2000;
const CHART_POINTS = 120;
const root = document.querySelector(".smoe-live");
const places = Object.fromEntries([...document.querySelectorAll("[data-live]")].map((e) => [e.dataset.live, e]));
const speeds = [];
let before = null;

function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 999.5 && unit < units.length - 1) { number /= 1000; unit += 1; }
  return `${unit === 0 || number >= 99.95 ? number.toFixed(0) : number.toFixed(1)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

function count(number) {
  return number.toLocaleString("en");
}

function write(name, text) {
  if (places[name].textContent !== text) places[name].textContent = text;
}

// What has been counted since the last look, per second; null before the second look and across an engine's restart.
function rate(now, name) {
  if (before === null || before.engine.pid !== now.engine.pid || !(name in now.status) || !(name in before.status)) return null;
  return (now.status[name] - before.status[name]) / Math.max(now.time - before.time, 0.001);
}

function showState(now) {
  const state = now.engine.state;
  write("state", state === "up" && now.status.state ? now.status.state : state);
  places.state.className = `smoe-badge smoe-${{ up: "good", booting: "wait", down: "off" }[state]}`;
  write("model", now.engine.model || "No vault is loaded; the next request boots one.");
  const parts = now.engine.model ? [`for ${duration(now.engine.seconds)}`, `window of ${count(now.engine.context)}`, `boot ${now.engine.boots}`] : [];
  write("detail", [...parts, now.engine.last_error].filter(Boolean).join(", "));
}

function showFigures(now) {
  const status = now.status;
  const tokens = rate(now, "generated");
  write("speed", tokens === null ? "-" : `${tokens.toFixed(1)} tok/s`);
  write("queue", `${now.engine.running ? 1 : 0} running, ${now.engine.waiting} waiting`);
  const uses = (status.hits || 0) + (status.misses || 0);
  write("hits", uses ? `${(100 * status.hits / uses).toFixed(1)} %` : "-");
  const read = rate(now, "bytes");
  write("read", status.bytes === undefined ? "-" : `${bytes(status.bytes)}${read ? `, ${bytes(read)}/s` : ""}`);
  write("resident", status.rss === undefined ? "-" : bytes(status.rss));
  places.resident.title = ["trunk", "ring", "kv"].filter((k) => k in status).map((k) => `${k} ${bytes(status[k])}`).join(", ");
  write("machine", `${bytes(now.machine.total - now.machine.available)} of ${bytes(now.machine.total)}`);
  draw(tokens || 0);
}

function draw(tokens) {
  speeds.push(tokens);
  if (speeds.length > CHART_POINTS) speeds.shift();
  const top = Math.max(...speeds, 1);
  write("peak", Math.max(...speeds) > 0 ? `; at most ${Math.max(...speeds).toFixed(1)}` : "");
  const points = speeds.map((v, i) => `${CHART_POINTS - speeds.length + i},${(29 - 28 * v / top).toFixed(2)}`);
  places.chart.setAttribute("points", points.join(" "));
}

function row(cells) {
  const line = document.createElement("tr");
  for (const text of cells) line.appendChild(document.createElement("td")).textContent = text;
  if (line.children.length === 3) line.children[1].className = "smoe-short";
  return line;
}

function fill(name, lines) {
  if (lines.length) places[name].replaceChildren(...lines);
}

async function look() {
  const response = await fetch(root.dataset.source, { credentials: "same-origin", redirect: "error" });
  if (!response.ok) throw new Error(String(response.status));
  const now = await response.json();
  showState(now);
  showFigures(now);
  fill("generations", now.generations.map((g) => row([
    g.time, g.vault, `${count(g.prompt)} in (${count(g.cached)} cached), ${count(g.generated)} out`,
    g.speed === null ? "" : `${g.speed.toFixed(1)} tok/s`, g.outcome])));
  fill("events", now.events.map((e) => row([e.time, e.kind, e.message])));
  before = now;
}

async function repeat() {
  if (!document.hidden) {
    try {
      await look();
    } catch {
      write("state", "no answer");
      places.state.className = "smoe-badge smoe-bad";
    }
  }
  setTimeout(repeat, EVERY_MS);
}

repeat();
