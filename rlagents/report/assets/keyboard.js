// Keys that work everywhere, and the dialog that names them.

const KEYS = [
  ["/", "search"],
  ["j, k", "next, previous: row of a table, or trajectory"],
  ["← → ↑ ↓", "from token to token once one has the focus (Tab), or along a chart"],
  ["Esc", "close, leave a field, or back"],
  ["g", "groups"],
  ["c", "curves"],
  ["?", "these keys"],
];

const help = h("dialog", { "aria-label": "Keys" }, h("h2", null, "Keys"),
  h("dl", { class: "keys" }, KEYS.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)])),
  button("Close", () => help.close()));

const isField = (element) => element && /^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName);

function pressed(event, current) {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.key === "Escape") {
    if (!tip.hidden) hideTip();
    else if (isField(document.activeElement)) document.activeElement.blur();
    else if (current.up) location.hash = current.up;
    else return;
    event.preventDefault();
    return;
  }
  if (isField(document.activeElement)) return;
  const does = {
    "/": () => (current.search ? current.search.focus() : (location.hash = "#/groups")),
    j: current.next,
    k: current.previous,
    ArrowDown: document.activeElement.closest("table.groups") && current.next,
    ArrowUp: document.activeElement.closest("table.groups") && current.previous,
    g: () => { location.hash = "#/groups"; },
    c: () => { location.hash = "#/"; },
    "?": () => help.showModal(),
  }[event.key];
  if (!does) return;
  event.preventDefault();
  does();
}
