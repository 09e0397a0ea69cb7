// A line chart: lines with gaps, bands, marks at steps; values under the pointer, or by arrow keys.

const SIZE = { width: 340, height: 176, left: 46, right: 10, top: 8, bottom: 24 };

// Drawn once it comes into sight: a long page of charts opens at once.
const inSight = "IntersectionObserver" in window
  ? new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        inSight.unobserve(entry.target);
        entry.target.draw();
      }
    }, { rootMargin: "400px" })
  : { observe: (element) => element.draw() };

// series: [{label, colour, x, y, low?, high?}], all of one metric; marks: [{step, label}].
function chart(title, series, marks) {
  const readout = h("span", { class: "readout" });
  const [name, meaning] = named(title);
  const figure = h("figure", { class: "chart", "data-name": title }, h("figcaption", null, name,
    series.some(({ word }) => word) ? h("small", null, "dashed: its bound") : null, readout), meaning);
  figure.draw = () => {
    const drawn = draw(title, series, marks || [], readout);
    figure.append(drawn);
  };
  inSight.observe(figure);
  return figure;
}

// The name of a metric, and what it means: unfolded by a click, a tap or a key, for no finger hovers.
function named(title) {
  const known = own(INDEX.meanings, title);
  if (known === undefined) return [h("span", { class: "name" }, title), null];
  const meaning = h("p", { class: "meaning", hidden: true }, known);
  const name = button([title, h("span", { class: "what", "aria-hidden": "true" }, "?")], () => {
    meaning.hidden = !meaning.hidden;
    name.setAttribute("aria-expanded", String(!meaning.hidden));
  }, { class: "name", "aria-expanded": "false", title: known });
  return [name, meaning];
}

function extent(series, shrink) {
  let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
  const see = (value) => {
    if (value === null) return;
    y0 = Math.min(y0, value * shrink);
    y1 = Math.max(y1, value * shrink);
  };
  for (const { x, y, low, high } of series) {
    if (x.length) [x0, x1] = [Math.min(x0, x[0]), Math.max(x1, x[x.length - 1])];
    for (const values of [y, low || [], high || []]) values.forEach(see);
  }
  if (!(x1 >= x0)) [x0, x1] = [0, 1];
  if (!(y1 >= y0)) [y0, y1] = [0, 1];
  if (x1 === x0) [x0, x1] = [x0 - 0.5, x1 + 0.5];
  // What differs by rounding alone is a level line.
  const level = y1 - y0 <= 1e-9 * Math.max(Math.abs(y0), Math.abs(y1));
  const room = level ? Math.max(0.1, 0.1 * Math.abs(y1)) : 0.06 * (y1 - y0);
  return { x0, x1, y0: y0 - room, y1: y1 + room };
}

// Near the largest number that there is, a difference of two would be beyond it.
function shrinking(series) {
  const largest = series.flatMap(({ y, low, high }) => [y, low || [], high || []]).flat()
    .reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return largest > 1e300 ? 1e-10 : 1;
}

function draw(title, series, marks, readout) {
  const { width, height, left, right, top, bottom } = SIZE;
  const shrink = shrinking(series);
  const { x0, x1, y0, y1 } = extent(series, shrink);
  const across = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const up = (y) => height - bottom - ((y * shrink - y0) / (y1 - y0)) * (height - top - bottom);
  const axes = [
    ...ticks(y0, y1, 5).map((tick) => tick / shrink).filter(Number.isFinite).map((tick) => [
      svg("line", { class: "grid", x1: left, x2: width - right, y1: up(tick), y2: up(tick) }),
      svg("text", { class: "tick", x: left - 5, y: up(tick) + 3.5, "text-anchor": "end" }, number(tick)),
    ]),
    ...ticks(x0, x1, 5).filter((tick) => x1 - x0 < 3 || Number.isInteger(tick)).map((tick) =>
      svg("text", { class: "tick", x: across(tick), y: height - 8, "text-anchor": "middle" }, number(tick))),
  ];
  const lines = series.map((one) => svg("g", { class: `series c${one.colour % 8} d${one.word ? 1 : Math.floor(one.colour / 8) % 3}` },
    one.low ? svg("path", { class: "band", d: bandPath(one, across, up) }) : null,
    svg("path", { class: "line", d: linePath(one, across, up) }),
    one.x.length <= 12 ? one.x.map((x, i) => one.y[i] === null ? null
      : svg("circle", { class: "dot", cx: across(x), cy: up(one.y[i]), r: 2.5 })) : null));
  const flags = marks.filter(({ step }) => step >= x0 && step <= x1).map(({ step, label }) =>
    svg("line", { class: "mark", x1: across(step), x2: across(step), y1: top, y2: height - bottom },
      svg("title", null, label)));
  const cursor = svg("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, tabindex: "0", role: "img", "aria-label": summary(title, series),
  }, axes, flags, lines, cursor);
  const steps = [...new Set(series.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const nearest = (wanted) => steps.reduce((best, step, i) =>
    Math.abs(step - wanted) < Math.abs(steps[best] - wanted) ? i : best, 0);
  const flagsAt = (index) => marks.filter(({ step }) => step >= x0 && step <= x1 && nearest(step) === index);
  let at = steps.length - 1;
  const show = (index) => {
    if (!steps.length) return;
    at = Math.max(0, Math.min(steps.length - 1, index));
    cursor.setAttribute("x1", across(steps[at]));
    cursor.setAttribute("x2", across(steps[at]));
    cursor.setAttribute("visibility", "visible");
    readout.replaceChildren(...valuesAt(steps[at], series),
      ...flagsAt(at).map(({ label }) => h("span", { class: "flag warning" }, label)));
  };
  const hide = () => {
    cursor.setAttribute("visibility", "hidden");
    readout.replaceChildren();
  };
  const point = (event) => {
    const box = picture.getBoundingClientRect();
    const wanted = x0 + ((event.clientX - box.left) * (width / box.width) - left) / (width - left - right) * (x1 - x0);
    show(nearest(wanted));
  };
  picture.addEventListener("pointermove", point);
  picture.addEventListener("pointerdown", point);
  picture.addEventListener("pointerleave", hide);
  picture.addEventListener("blur", hide);
  picture.addEventListener("focus", () => show(at));
  picture.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -steps.length, End: steps.length }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    show(at + by);
  });
  return picture;
}

function linePath({ x, y }, across, up) {
  let path = "";
  let open = false;
  x.forEach((step, i) => {
    if (y[i] === null) {
      open = false;
      return;
    }
    path += `${open ? "L" : "M"}${across(step).toFixed(1)} ${up(y[i]).toFixed(1)}`;
    open = true;
  });
  return path;
}

function bandPath({ x, low, high }, across, up) {
  const there = x.map((_, i) => i).filter((i) => low[i] !== null);
  const at = (i, values) => `${across(x[i]).toFixed(1)} ${up(values[i]).toFixed(1)}`;
  if (!there.length) return "";
  return `M${there.map((i) => at(i, high)).join("L")}L${[...there].reverse().map((i) => at(i, low)).join("L")}Z`;
}

function valuesAt(step, series) {
  const found = series.map((one) => {
    const i = one.x.indexOf(step);
    if (i < 0) return null;
    const range = one.low && one.low[i] !== null && one.low[i] !== one.high[i]
      ? ` (${number(one.low[i])} to ${number(one.high[i])})` : "";
    return h("span", { class: `value c${one.colour % 8}` }, one.word, number(one.y[i]), range);
  });
  return [h("span", null, `step ${number(step)}`), ...found.filter(Boolean)];
}

function summary(title, series) {
  const last = (y) => y.filter((value) => value !== null).pop();
  return `${title}: ${series.map(({ label, y }) => `${label} ends at ${number(last(y))}`).join("; ")}`;
}
