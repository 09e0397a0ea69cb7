// All logged groups in a table: sorted by any column, searched by text, a page of rows at a time.

const ROWS = 50;
const least = (values) => Math.min(...values);
const most = (values) => Math.max(...values);
const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const scored = (group) => GROUPS.rewards[group].filter((value) => value !== null);
const extreme = (which) => (group) => (scored(group).length ? which(scored(group)) : null);

// Name in addresses, head, value to sort by, how it is shown, and whether a phone leaves it out.
const COLUMNS = [
  ["run", "Run", (group) => GROUPS.run[group], (group) => runName(GROUPS.run[group]), false],
  ["step", "Step", (group) => GROUPS.step[group], (group) => link(hashOf(group, 0), number(GROUPS.step[group])), false],
  ["phase", "Phase", (group) => GROUPS.phase[group], (group) => GROUPS.phase[group], true],
  ["task", "Task", taskOf, (group) => link(`#/task/${GROUPS.task[group]}`, taskOf(group), { class: "task" }), false],
  ["mean", "Mean reward", (group) => GROUPS.mean[group], (group) => reward(GROUPS.mean[group]), false],
  ["std", "Std", (group) => GROUPS.std[group], (group) => reward(GROUPS.std[group]), true],
  ["min", "Min", extreme(least), (group) => reward(extreme(least)(group)), true],
  ["max", "Max", extreme(most), (group) => reward(extreme(most)(group)), true],
  ["members", "Members", (group) => GROUPS.rewards[group].length, memberLinks, false],
  ["length", "Tokens", (group) => average(GROUPS.lengths[group]),
    (group) => number(Math.round(average(GROUPS.lengths[group]))), false],
  ["turns", "Turns", (group) => GROUPS.turns[group], (group) => number(GROUPS.turns[group]), true],
  ["lost", "Lost", (group) => GROUPS.lost[group], (group) => number(GROUPS.lost[group]), true],
  ["truncated", "Cut", (group) => GROUPS.truncated[group], (group) => number(GROUPS.truncated[group]), true],
];

function memberLinks(group) {
  const all = GROUPS.rewards[group];
  return h("span", { class: "each" }, all.slice(0, 16).map((value, member) =>
    link(hashOf(group, member), value === null ? "lost" : number(value), { title: `member ${member}`,
      "aria-label": `member ${member}, ${value === null ? "lost" : `reward ${number(value)}`}` })),
    all.length > 16 ? `+${all.length - 16}` : null);
}

const view = { sort: "step", down: false, page: 0, phase: "all", run: "all", query: "" };
let shownGroups = [];  // as the table has them: what comes before and after a group there

function groupsView(query) {
  for (const name of ["sort", "phase", "run"]) if (query.has(name)) view[name] = query.get(name);
  if (query.has("q")) view.query = query.get("q");
  if (query.has("down")) view.down = query.get("down") === "1";
  const box = h("div", null);
  const status = h("p", { class: "note", role: "status" });
  let matching = null;
  let asked = 0;
  const columns = COLUMNS.filter(([name]) => name !== "run" || INDEX.runs.length > 1);

  const show = () => {
    const [, , value] = COLUMNS.find(([name]) => name === view.sort) || COLUMNS[1];
    const fits = (group) => (view.phase === "all" || GROUPS.phase[group] === view.phase)
      && (view.run === "all" || GROUPS.run[group] === Number(view.run)) && (!matching || matching.has(group));
    const keys = new Map();
    shownGroups = Array.from({ length: NUM_GROUPS }, (_, group) => group).filter(fits);
    for (const group of shownGroups) keys.set(group, value(group));
    shownGroups.sort((a, b) => compare(keys.get(a), keys.get(b), view.down) || a - b);
    view.page = Math.max(0, Math.min(view.page, Math.ceil(shownGroups.length / ROWS) - 1));
    const rows = shownGroups.slice(view.page * ROWS, (view.page + 1) * ROWS);
    box.replaceChildren(groupTable(columns, rows, sortBy), pager());
    rewrite(address());
  };
  const sortBy = (name) => {
    view.down = view.sort === name ? !view.down : false;
    view.sort = name;
    view.page = 0;
    show();
    const head = box.querySelector(`th[data-name="${name}"] button`);
    if (head) head.focus();
  };
  const pager = () => {
    const pages = Math.max(1, Math.ceil(shownGroups.length / ROWS));
    const turn = (by) => () => { view.page += by; show(); box.querySelector("tbody a")?.focus(); };
    return h("div", { class: "pager" },
      button("Previous", turn(-1), { disabled: view.page === 0, "data-turn": "-1" }),
      h("span", null, `page ${number(view.page + 1)} of ${number(pages)}, ${count(shownGroups.length, "group")}`),
      button("Next", turn(1), { disabled: view.page + 1 >= pages, "data-turn": "1" }));
  };
  const find = async () => {
    const mine = ++asked;
    const text = view.query.trim();
    matching = null;
    status.textContent = "";
    if (!text) return show();
    try {
      await search(text, (found, share) => {
        if (mine !== asked) return;
        matching = found;
        const left = share < 1 ? `, searched ${percent(share)}` : "";
        status.textContent = `${count(found.size, "group")} with “${text}” in a message or the task's name${left}`;
        if (share === 0 || share === 1) show();
      }, () => mine !== asked);
    } catch (error) {
      status.textContent = `the search ended early: ${error.message}`;
    }
  };
  let timer = 0;
  const input = h("input", { type: "search", value: view.query, placeholder: "text of messages or tasks ( / )",
    "aria-label": "Search messages and tasks",
    oninput: () => { view.query = input.value; view.page = 0; clearTimeout(timer); timer = setTimeout(find, 150); } });
  const pick = (name) => (value) => { view[name] = value; view.page = 0; show(); };
  const phases = [...new Set(GROUPS.phase)];
  const left = INDEX.groups_in_all - NUM_GROUPS;
  const node = h("div", null, h("h1", null, "Groups"),
    left > 0 ? h("p", { class: "note" }, `${number(left)} of ${number(INDEX.groups_in_all)} groups are not in this file: ` +
      "damaged, or more than --max_megabytes holds.") : null,
    NUM_GROUPS ? null : h("p", { class: "note" }, "No trajectory was logged (trajectories.every_steps)."),
    h("div", { class: "controls" }, input,
      phases.length > 1 ? choice("phase", [["all", "all"], ...phases.map((name) => [name, name])], view.phase, pick("phase")) : null,
      INDEX.runs.length > 1 ? choice("run", [["all", "all"], ...INDEX.runs.map(({ name }, i) => [String(i), name])],
        view.run, pick("run")) : null),
    status, box);
  show();
  if (view.query.trim()) find();
  return { title: "Groups", node, search: input, next: () => step(box, 1), previous: () => step(box, -1), up: "#/" };
}

// j and k go from row to row.
function step(box, by) {
  const rows = [...box.querySelectorAll("tbody tr")];
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[now < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, now + by))];
  row?.querySelector("a")?.focus();
}

function compare(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null);  // what has no value comes last either way
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return down ? -order : order;
}

function groupTable(columns, rows, sortBy) {
  const heads = columns.map(([name, head, , , wide]) => {
    const sorted = view.sort === name ? (view.down ? "descending" : "ascending") : null;
    return h("th", { scope: "col", class: wide ? "wide" : null, "data-name": name, "aria-sort": sorted },
      button([head, h("span", { "aria-hidden": "true" }, sorted ? (view.down ? " ▼" : " ▲") : "")], () => sortBy(name)));
  });
  return scrolling("Groups", h("table", { class: "groups" }, h("thead", null, h("tr", null, heads)),
    h("tbody", null, rows.map((group) => h("tr", null, columns.map(([name, , , cell, wide]) =>
      h("td", { class: `${wide ? "wide " : ""}of-${name}` }, cell(group))))))));
}

function address() {
  const given = new URLSearchParams({ sort: view.sort, down: view.down ? "1" : "0" });
  if (view.query) given.set("q", view.query);
  for (const name of ["phase", "run"]) if (view[name] !== "all") given.set(name, view[name]);
  return `#/groups?${given}`;
}
