// The page that shows a new key, once: copied by one button.
"use strict";

const secret = document.querySelector(".smoe-secret");
const button = document.getElementById("smoe-copy");

button.addEventListener("click", async () => {
  secret.select();
  try {
    await navigator.clipboard.writeText(secret.value);
  } catch {
    document.execCommand("copy"); // there is no clipboard API but on https and loopback
  }
  button.textContent = "Copied";
});
