// Where the time went: seconds by phase, of each run.

function costView() {
  const names = [...new Set(INDEX.runs.flatMap(({ seconds }) => Object.keys(seconds)))];
  const colour = (name) => names.indexOf(name) % 8;
  const bars = INDEX.runs.map(({ name, seconds }) => {
    const whole = Object.values(seconds).reduce((sum, value) => sum + value, 0);
    if (!whole) return h("section", { class: "panel" }, h("h2", null, name), h("p", null, "No phase was timed."));
    const parts = Object.entries(seconds);
    let at = 0;
    const bar = svg("svg", { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img",
      "aria-label": parts.map(([phase, value]) => `${phase} ${percent(value / whole)}`).join(", ") },
      parts.map(([phase, value]) => {
        const width = (100 * value) / whole;
        const part = svg("rect", { class: `part c${colour(phase)}`, x: at, y: 0, width, height: 6 },
          svg("title", null, `${phase}: ${duration(value)}`));
        at += width;
        return part;
      }));
    return h("section", { class: "panel" }, h("h2", null, name), bar,
      table(["Phase", "Time", "Share"], parts.map(([phase, value]) => [
        h("span", { class: `key c${colour(phase)}` }, h("span", { class: "swatch" }), phase),
        duration(value), percent(value / whole)]), { label: `Cost of ${name} by phase` }));
  });
  const timed = INDEX.panels.filter(({ title }) => title === "Cost").flatMap((panel) => panel.names);
  return { title: "Cost", node: h("div", null, h("h1", null, "Cost by phase"),
    h("p", { class: "note" }, "Wall-clock time of the whole run: " +
      "the warm-up, all steps, evaluations and checkpoints; a phase that ran beside others counts whole. " +
      "Elsewhere is what no phase accounts for: start, loading, and phases that the logs of older versions do not time."),
    bars, h("h2", null, "Step by step"), legend(),
    h("div", { class: "charts" }, timed.map((name) => chart(name, seriesOf(name, settings.seeds), [])))) };
}
