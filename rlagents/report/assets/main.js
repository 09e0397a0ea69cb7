// Which view stands at which address, the theme, and the beginning.

const VIEWS = {
  "": curvesView,
  cost: costView,
  alarms: alarmsView,
  config: configView,
  groups: (parts, query) => groupsView(query),
  run: trajectoryView,
  task: taskView,
};
const unknownView = () => ({ title: "Not found", up: "#/", node: h("div", null, h("h1", null, "Not found"),
  h("p", { class: "note" }, "This report holds no such page."), h("p", null, link("#/", "Curves"))) });
const NAMES = [["", "Curves"], ["cost", "Cost"], ["alarms", "Alarms"], ["config", "Config"], ["groups", "Groups"]];
const main = document.getElementById("main");
let current = {};

function render(moved) {
  const asked = location.hash;
  const { parts, query } = readRoute();
  const name = parts[0] || "";
  hideTip();
  try {
    current = (own(VIEWS, name) || unknownView)(parts, query);
  } catch (error) {
    current = { title: "Error", node: h("p", { class: "warning" }, `This view cannot be drawn: ${error.message}`) };
    console.error(error);
  }
  main.replaceChildren(current.node);
  main.dataset.address = asked;
  document.title = `${current.title} · rlagents report`;
  const here = name === "run" || name === "task" ? "groups" : name;
  document.getElementById("nav").replaceChildren(...NAMES.map(([part, text]) => {
    const alarms = part === "alarms" ? INDEX.runs.reduce((sum, run) => sum + run.alarms.length, 0) : 0;
    return link(`#/${part}`, [text, alarms ? h("span", { class: "badge" }, number(alarms)) : null],
      { "aria-current": part === here ? "page" : null });
  }));
  if (moved) {
    main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "Light" : "Dark";
  document.getElementById("theme").setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
}

function remembered(theme) {
  try {
    if (theme) localStorage.setItem("rlagents-theme", theme);
    return localStorage.getItem("rlagents-theme");
  } catch {
    return null;  // a browser may keep nothing for files
  }
}

const dark = matchMedia("(prefers-color-scheme: dark)");
setTheme(remembered() || (dark.matches ? "dark" : "light"));
dark.addEventListener("change", () => { if (!remembered()) setTheme(dark.matches ? "dark" : "light"); });
document.getElementById("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  remembered(theme);
  setTheme(theme);
});
document.getElementById("keys").addEventListener("click", () => help.showModal());
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.body.append(tip, help);
document.addEventListener("keydown", (event) => pressed(event, current));
window.addEventListener("hashchange", () => render(true));
render(false);
requestAnimationFrame(() => performance.mark("rendered"));
