// What went wrong, as the run saw it.

function alarmsView() {
  const rows = INDEX.runs.flatMap((run, i) => run.alarms.map((alarm) => ({ i, ...alarm })));
  rows.sort((a, b) => a.step - b.step);
  const loggedAt = (run, step) => GROUPS.step.findIndex((at, group) =>
    at === step && GROUPS.run[group] === run && !isHeldOut(group));
  const cells = rows.map(({ i, step, alarm, value, threshold, message }) => {
    const group = loggedAt(i, step);
    return [runName(i), group < 0 ? number(step) : link(hashOf(group, 0), number(step)),
      h("strong", { class: "warning" }, String(alarm)), number(value), number(threshold),
      h("span", { class: "sentence" }, String(message || ""))];
  });
  return { title: "Alarms", node: h("div", null, h("h1", null, "Alarms"),
    rows.length ? table(["Run", "Step", "Alarm", "Value", "Threshold", "What it means"], cells, { label: "Alarms" })
      : h("p", { class: "note" }, "No alarm was raised.")) };
}
