// The page that shows a new key, once: copied by one button, which shows only when it works.
"use strict";

const secret = document.querySelector(".smoe-secret");
const button = document.getElementById("smoe-copy");

async function copied() {
  try {
    await navigator.clipboard.writeText(secret.value);
    return true;
  } catch {
    return document.execCommand("copy"); // there is no clipboard API but on https and loopback
  }
}

button.addEventListener("click", async () => {
  secret.select();
  button.textContent = (await copied()) ? "Copied" : "Press Ctrl+C";
});
button.hidden = false;
