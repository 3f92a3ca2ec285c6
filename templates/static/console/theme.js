// Runs before the first paint (a classic script), so that a chosen theme never flashes the other one.
{
  const chosen = localStorage.getItem("smoe.theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
