// Runs before the first paint (a classic script), so that a chosen theme never flashes the other one.
try {
  const chosen = localStorage.getItem("smoe.theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch {
  // The browser keeps nothing for this page: its own theme it is.
}
