// Numbers as people read them.
const grouped = new Intl.NumberFormat("en-US");

export const count = (n) => grouped.format(n);

export const tokens = (n) => `${count(n)} ${n === 1 ? "token" : "tokens"}`;

export function seconds(ms) {
  const s = ms / 1000;
  if (s >= 60) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${s >= 9.95 || s < 0.005 ? s.toFixed(0) : s.toFixed(s < 0.995 ? 2 : 1)} s`;
}

export function bytes(n) {
  if (n < 1e3) return `${n} B`;
  if (n < 1e6) return `${(n / 1e3).toFixed(0)} kB`;
  if (n < 1e9) return `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)} MB`;
  return `${(n / 1e9).toFixed(n < 1e11 ? 1 : 0)} GB`;
}

/** Memory, as its makers count it. */
export const gibibytes = (n) => (n < 2 ** 30 ? `${Math.round(n / 2 ** 20)} MiB` : `${(n / 2 ** 30).toFixed(1)} GiB`);

export const percent = (part, whole) => `${whole ? Math.round((100 * part) / whole) : 0}%`;

export const rate = (tokens, ms) => (ms > 0 ? (1000 * tokens) / ms : 0).toFixed(1);
