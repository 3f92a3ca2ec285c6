// One vault's page: the heat map of its experts, and how far a verification is.
"use strict";

const EVERY_MS = 2000;
const section = document.querySelector(".smoe-vault");
const frame = section.querySelector(".smoe-heat-frame");
const canvas = section.querySelector("canvas");
const words = section.querySelector(".smoe-heat-words");
const verify = section.querySelector(".smoe-verify");

// Dark to bright, 0 to 1, as [red, green, blue].
function colour(heat) {
  return [255 * Math.min(1, 1.6 * heat), 200 * heat ** 2 + 20, 90 * (1 - heat) + 20].map(Math.round);
}

function plural(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

// One cell an expert, by its uses; square roots keep the rarely used ones visible.
function draw(counts) {
  const columns = Math.max(...counts.map((layer) => layer.length));
  const most = Math.max(1, ...counts.flat());
  canvas.width = columns;
  canvas.height = counts.length;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, counts.length);
  counts.forEach((layer, y) => layer.forEach((count, x) => {
    const heat = Math.sqrt(count / most);
    pixels.data.set([...colour(heat), 255], 4 * (y * columns + x));
  }));
  context.putImageData(pixels, 0, 0);
  canvas.style.aspectRatio = `${columns} / ${Math.max(counts.length, columns / 12)}`;
  const steps = Array.from({ length: 11 }, (_, n) => `rgb(${colour(Math.sqrt(n / 10)).join(" ")})`);
  section.querySelector(".smoe-heat-legend i").style.background = `linear-gradient(to right, ${steps.join(", ")})`;
  section.querySelector(".smoe-heat-most").textContent = plural(most, "use");
  frame.hidden = false;
}

function showHeat(heat) {
  const flat = heat.counts.flat();
  const since = new Date(heat.since).toLocaleDateString("en", { dateStyle: "medium" });
  const total = flat.reduce((sum, count) => sum + count, 0);
  if (!total) {
    words.textContent = "No reply has used this vault's experts yet.";
    return;
  }
  if (flat.every((count) => count === flat[0])) {
    frame.hidden = true;
    words.textContent = `Each of the ${flat.length.toLocaleString("en")} experts was used ${plural(flat[0], "time")} since ${since}: ` +
      "none is hotter than another.";
    return;
  }
  const sorted = flat.slice().sort((a, b) => b - a);
  const tenth = sorted.slice(0, Math.ceil(sorted.length / 10)).reduce((sum, count) => sum + count, 0);
  const idle = sorted.filter((count) => count === 0).length;
  words.textContent = `${plural(total, "use")} since ${since}. The busiest tenth of the experts has ` +
    `${Math.round(100 * tenth / total)} % of them, ${idle.toLocaleString("en")} of ${sorted.length.toLocaleString("en")} ` +
    `were never used. A row is a layer (the first is ${heat.first}), a column an expert.`;
  draw(heat.counts);
}

canvas.addEventListener("mousemove", (event) => {
  if (!counted) return;
  const box = canvas.getBoundingClientRect();
  const y = Math.min(counted.counts.length - 1, Math.floor((event.clientY - box.top) / box.height * canvas.height));
  const x = Math.min(canvas.width - 1, Math.floor((event.clientX - box.left) / box.width * canvas.width));
  section.querySelector(".smoe-heat-at").textContent = `layer ${counted.first + y}, expert ${x}: ${plural(counted.counts[y][x] ?? 0, "use")}`;
});
canvas.addEventListener("mouseleave", () => (section.querySelector(".smoe-heat-at").textContent = ""));

function showVerification(job) {
  verify.hidden = false;
  verify.querySelector("progress").value = job.total ? job.done / job.total : 0;
  const outcome = job.problems.length ? plural(job.problems.length, "problem") : "sound";
  verify.querySelector("span").textContent = job.finished ? outcome : `${Math.floor(100 * job.done / (job.total || 1))} %`;
  verify.querySelector("ul").replaceChildren(...job.problems.map((problem) => {
    const item = document.createElement("li");
    item.textContent = problem;
    return item;
  }));
}

let counted = null;

async function repeat() {
  if (!document.hidden) {
    try {
      const response = await fetch(section.dataset.source, { credentials: "same-origin", redirect: "error" });
      const now = await response.json();
      if (now.heat) showHeat(counted = now.heat);
      else words.textContent = "No reply has used this vault's experts yet.";
      if (now.verification) showVerification(now.verification);
    } catch {
      words.textContent = "The server does not answer.";
    }
  }
  setTimeout(repeat, EVERY_MS);
}

repeat();
