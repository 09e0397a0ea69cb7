// The keys of every run's config: those that differ first.

const chosen = { filter: "" };

function configView() {
  const keys = [...new Set(INDEX.runs.flatMap(({ config }) => Object.keys(config)))].sort();
  const different = new Set(INDEX.different);
  const same = keys.filter((key) => !different.has(key));
  const valuesOf = (key) => INDEX.runs.map(({ config }) => (Object.hasOwn(config, key) ? h("code", null, config[key]) : "absent"));
  const body = h("div", null);
  const show = () => {
    const wanted = chosen.filter.toLowerCase();
    const fits = (key) => key.toLowerCase().includes(wanted);
    body.replaceChildren(
      INDEX.runs.length < 2 ? "" : h("section", { class: "panel" }, h("h2", null, "Differences"),
        different.size ? table(["Key", ...INDEX.runs.map(({ name }) => name)],
          INDEX.different.filter(fits).map((key) => [key, ...valuesOf(key)]), { label: "Keys that differ" })
          : h("p", { class: "note" }, "No key differs.")),
      h("section", { class: "panel" }, h("h2", null, INDEX.runs.length < 2 ? "All keys" : "The same in all runs"),
        same.some(fits) ? table(["Key", "Value"],
          same.filter(fits).map((key) => [key, h("code", null, INDEX.runs[0].config[key])]), { label: "Keys" })
          : h("p", { class: "note" }, keys.length ? "No key fits." : "No config.json was found.")));
  };
  const filter = h("input", { type: "search", placeholder: "keys by name", "aria-label": "Show keys whose name holds",
    value: chosen.filter, oninput: () => { chosen.filter = filter.value; show(); } });
  show();
  return { title: "Config", search: filter,
    node: h("div", null, h("h1", null, "Config"), h("div", { class: "controls" }, filter), body) };
}
