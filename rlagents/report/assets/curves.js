// The first view: what the runs are, and how every metric went.

const settings = { seeds: "band", filter: "" };

// A set's runs as one line with the range of its seeds, or each as a line.
function seriesOf(name, seeds) {
  const found = [];
  INDEX.sets.forEach(({ label, runs }, colour) => {
    const curves = runs.map((run) => ({ run, curve: own(INDEX.runs[run].curves, name) })).filter(({ curve }) => curve);
    if (!curves.length) return;
    if (curves.length === 1 || seeds === "each")
      for (const { run, curve } of curves)
        found.push({ label: curves.length > 1 ? runName(run) : label, colour, ...curve });
    else found.push({ label, colour, ...mean(curves.map(({ curve }) => curve)) });
  });
  return found;
}

// A metric with what bounds it, as dashed lines of the same colour in the same chart.
function withBound(name, bound) {
  const measured = seriesOf(name, settings.seeds);
  return bound === undefined ? measured : [...measured,
    ...seriesOf(bound, settings.seeds).map((one) => ({ ...one, label: `${one.label}, bound`, word: "bound ", low: undefined }))];
}

function mean(curves) {
  const at = new Map();
  for (const { x, y } of curves)
    x.forEach((step, i) => {
      if (!at.has(step)) at.set(step, []);
      if (y[i] !== null) at.get(step).push(y[i]);
    });
  const steps = [...at.keys()].sort((a, b) => a - b);
  const of = (what) => steps.map((step) => (at.get(step).length ? what(at.get(step)) : null));
  return {
    x: steps,
    // Each divided before they are added: a sum of numbers may be beyond all numbers.
    y: of((values) => values.reduce((sum, value) => sum + value / values.length, 0)),
    low: of((values) => Math.min(...values)),
    high: of((values) => Math.max(...values)),
  };
}

function alarmMarks() {
  return INDEX.runs.flatMap(({ name, alarms }) =>
    alarms.map(({ step, alarm }) => ({ step, label: `${name}: ${alarm} at step ${number(step)}` })));
}

const legend = () => INDEX.sets.length < 2 ? null : h("ul", { class: "legend", "aria-label": "Runs by colour" },
  INDEX.sets.map(({ label, runs }, i) => h("li", { class: `c${i % 8} d${Math.floor(i / 8) % 3}` },
    h("span", { class: "swatch" }), label, runs.length > 1 ? h("small", null, ` ${count(runs.length, "seed")}`) : null)));

function lastOf(run, name) {
  const curve = own(INDEX.runs[run].curves, name);
  return curve ? curve.y.filter((value) => value !== null).pop() : null;
}

function runsTable() {
  const rows = INDEX.runs.map((run, i) => [
    h("strong", null, run.name),
    run.planned ? `${number(run.steps)} of ${number(run.planned)}` : number(run.steps),
    reward(lastOf(i, "reward")),
    reward(lastOf(i, "success")),
    run.alarms.length ? link("#/alarms", number(run.alarms.length), { class: "warning" }) : "0",
    Object.keys(run.damaged).length ? h("span", { class: "warning" },
      Object.entries(run.damaged).map(([file, lines]) => `${file}: ${count(lines, "line")} skipped`).join(", ")) : "none",
  ]);
  return table(["Run", "Steps", "Last reward", "Last held-out success", "Alarms", "Damage"], rows, { label: "Runs" });
}

function curvesView() {
  const panels = h("div", null);
  const drawPanels = () => {
    const wanted = settings.filter.toLowerCase();
    const marks = alarmMarks();
    panels.replaceChildren(...INDEX.panels.map(({ title, names, bounds }) => {
      const shown = names.filter((name) => name.toLowerCase().includes(wanted));
      return shown.length ? h("section", { class: "panel" }, h("h2", null, title),
        h("div", { class: "charts" }, shown.map((name) => chart(name, withBound(name, own(bounds, name)),
          // Steps of the warm-up are others than those that an alarm counts.
          name.startsWith(INDEX.warm_up) ? [] : marks))),
        Object.keys(bounds).some((name) => shown.includes(name)) ? propositionsTable() : null) : "";
    }), "entropy reward correlation".includes(wanted) && entropyReward() || "");
  };
  const several = INDEX.sets.some(({ runs }) => runs.length > 1);
  const filter = h("input", {
    type: "search", placeholder: "metrics by name", "aria-label": "Show metrics whose name holds", value: settings.filter,
    oninput: () => { settings.filter = filter.value; drawPanels(); },
  });
  drawPanels();
  const node = h("div", null, h("h1", null, "Curves"), runsTable(),
    h("div", { class: "controls" }, filter,
      several ? choice("seeds", [["band", "mean and range"], ["each", "each by itself"]], settings.seeds,
        (value) => { settings.seeds = value; drawPanels(); }) : null,
      INDEX.width > 1 ? h("small", null, `A point is the mean of ${INDEX.width} steps; bands show their range.`) : null),
    legend(), panels);
  return { title: "Curves", node, search: filter };
}
