// How numbers are written: four digits that matter, and a dash where there is none.

function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-3) return Number(value.toPrecision(3)).toExponential().replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

// Always three places, so that a column of them lines up.
const reward = (value) => (typeof value === "number" ? value.toFixed(3) : number(value));

// Rounded first, split then: there is no "1 min 60 s".
function duration(seconds) {
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(seconds / 60);
  return `${number(Math.floor(minutes / 60))} h ${minutes % 60} min`;
}

const percent = (share) => `${(100 * share).toFixed(1)}%`;

const count = (many, one) => `${number(many)} ${one}${many === 1 ? "" : "s"}`;

// Round steps of an axis: about `wanted` of them between low and high.
function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const found = [];
  const first = Math.ceil(low / step);
  for (let i = first; i <= first + 2 * wanted && i * step <= high + step * 1e-9; i++)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}
