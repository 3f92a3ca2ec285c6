// One vault's page: the heat map of its experts, and how far a verification is.
"use strict";

const EVERY_MS = 2000;
const section = document.querySelector(".smoe-vault");
const canvas = section.querySelector("canvas");
const words = section.querySelector(".smoe-heat-words");
const verify = section.querySelector(".smoe-verify");

// One cell an expert, dark to bright by its uses; square roots keep the rarely used ones visible.
function draw(counts) {
  const columns = Math.max(...counts.map((layer) => layer.length));
  const most = Math.max(1, ...counts.flat());
  canvas.width = columns;
  canvas.height = counts.length;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, counts.length);
  counts.forEach((layer, y) => layer.forEach((count, x) => {
    const heat = Math.sqrt(count / most);
    pixels.data.set([255 * Math.min(1, 1.6 * heat), 200 * heat ** 2 + 20, 90 * (1 - heat) + 20, 255], 4 * (y * columns + x));
  }));
  context.putImageData(pixels, 0, 0);
  canvas.style.aspectRatio = `${columns} / ${Math.max(counts.length, columns / 12)}`;
  canvas.hidden = false;
}

function showHeat(heat) {
  const flat = heat.counts.flat();
  const total = flat.reduce((sum, count) => sum + count, 0);
  if (!total) {
    words.textContent = "The engine runs this vault and has not used an expert yet.";
    return;
  }
  const sorted = flat.slice().sort((a, b) => b - a);
  const tenth = sorted.slice(0, Math.ceil(sorted.length / 10)).reduce((sum, count) => sum + count, 0);
  const idle = sorted.filter((count) => count === 0).length;
  words.textContent = `${total.toLocaleString("en")} uses since the boot. The busiest tenth of the experts has ` +
    `${Math.round(100 * tenth / total)} % of them, ${idle.toLocaleString("en")} of ${sorted.length.toLocaleString("en")} ` +
    `were never used. A row is a layer (the first is ${heat.first}), a column an expert.`;
  draw(heat.counts);
}

canvas.addEventListener("mousemove", (event) => {
  if (!counted) return;
  const box = canvas.getBoundingClientRect();
  const y = Math.min(counted.counts.length - 1, Math.floor((event.clientY - box.top) / box.height * canvas.height));
  const x = Math.min(canvas.width - 1, Math.floor((event.clientX - box.left) / box.width * canvas.width));
  canvas.title = `layer ${counted.first + y}, expert ${x}: ${counted.counts[y][x] ?? 0} uses`;
});

function showVerification(job) {
  verify.hidden = false;
  verify.querySelector("progress").value = job.total ? job.done / job.total : 0;
  const outcome = job.problems.length ? `${job.problems.length} problems` : "sound";
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
      if (now.verification) showVerification(now.verification);
    } catch {
      words.textContent = "The server does not answer.";
    }
  }
  setTimeout(repeat, EVERY_MS);
}

repeat();
