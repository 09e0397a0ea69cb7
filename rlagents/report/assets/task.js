// One task across steps: all its trajectories, and two of them side by side.

const TRAJECTORIES = 100;

function taskView(parts, query) {
  const task = Number(parts[1]);
  if (!(Number.isInteger(task) && task >= 0 && task < INDEX.tasks.length))
    return { title: "Not found", node: h("p", { class: "note" }, "This report holds no such task."), up: "#/groups" };
  const all = [];
  for (let group = 0; group < NUM_GROUPS; group++)
    if (GROUPS.task[group] === task) GROUPS.rewards[group].forEach((_, member) => all.push({ group, member }));
  const when = ({ group, member }) => [GROUPS.step[group], isHeldOut(group) ? 0 : 1, GROUPS.run[group], GROUPS.stream[group], member];
  all.sort((a, b) => {
    const [one, other] = [when(a), when(b)];
    const at = one.findIndex((value, i) => value !== other[i]);
    return at < 0 ? 0 : one[at] - other[at];
  });
  const side = { left: within(query.get("left"), 0, all.length), right: within(query.get("right"), all.length - 1, all.length) };
  const columns = { left: h("section", { "aria-label": "Left" }), right: h("section", { "aria-label": "Right" }) };
  const open = async (name) => {
    const { group, member } = all[side[name]];
    const asked = side[name];
    const [members, tokens] = await Promise.all([membersOf(group), tokensOf(group)]);
    if (asked !== side[name]) return;
    const scale = tokens ? tintScale(tokens) : 0;
    columns[name].replaceChildren(
      h("h2", null, link(hashOf(group, member), `${isHeldOut(group) ? "held-out after" : "step"} ${number(GROUPS.step[group])}, member ${member}`)),
      verdict(group, member, members[member], tokens && tokens[member], scale),
      facts(group, member, members[member]), conversation(members[member], tokens && tokens[member], scale));
  };
  const list = h("div", { class: "list" });
  const pick = (name, number) => {
    side[name] = number;
    rewrite(`#/task/${task}?left=${side.left}&right=${side.right}`);
    mark();
    open(name).catch((error) => columns[name].replaceChildren(h("p", { class: "warning" }, error.message)));
  };
  const mark = () => {
    for (const each of list.querySelectorAll("button[data-side]"))
      each.setAttribute("aria-pressed", String(side[each.dataset.side] === Number(each.dataset.n)));
  };
  const show = (from) => {
    const some = all.slice(from, from + TRAJECTORIES);
    const choose = (name, n) => button(name, () => pick(name, n), { "data-side": name, "data-n": n, "aria-pressed": "false" });
    list.replaceChildren(
      table(["Step", "Show", "Reward", "Member", "Phase", ...(INDEX.runs.length > 1 ? ["Run"] : []), "Tokens"],
        some.map(({ group, member }, n) => [
          link(hashOf(group, member), number(GROUPS.step[group])),
          h("span", { class: "pair" }, choose("left", from + n), choose("right", from + n)),
          reward(GROUPS.rewards[group][member]), number(member), GROUPS.phase[group],
          ...(INDEX.runs.length > 1 ? [runName(GROUPS.run[group])] : []), number(GROUPS.lengths[group][member]),
        ]), { label: "Trajectories of this task" }),
      all.length > TRAJECTORIES ? h("div", { class: "pager" },
        button("Earlier", () => show(from - TRAJECTORIES), { disabled: from === 0 }),
        h("span", null, `${number(from + 1)} to ${number(from + some.length)} of ${number(all.length)}`),
        button("Later", () => show(from + TRAJECTORIES), { disabled: from + TRAJECTORIES >= all.length })) : "");
    mark();
  };
  show(0);
  for (const name of ["left", "right"]) pick(name, side[name]);
  return { title: INDEX.tasks[task], up: "#/groups", node: h("div", null,
    h("p", { class: "path" }, link("#/groups", "Groups"), " / one task across steps"),
    h("h1", null, INDEX.tasks[task]), list, h("div", { class: "side-by-side" }, columns.left, columns.right)) };
}

function within(text, otherwise, many) {
  const wanted = text === null ? otherwise : Number(text);
  return Number.isInteger(wanted) && wanted >= 0 && wanted < many ? wanted : otherwise;
}
