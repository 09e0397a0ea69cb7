// One trajectory: its facts, its neighbours, its conversation.

function factList(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, ...value]) =>
    h("div", null, h("dt", null, name), h("dd", null, value))));
}

function facts(group, member, one) {
  const named = Object.entries(one.named).map(([name, value]) => [name, number(value)]);
  return factList([
    ["reward", h("strong", null, one.lost ? "lost" : reward(GROUPS.rewards[group][member]))],
    ["group's mean", `${reward(GROUPS.mean[group])} ± ${reward(GROUPS.std[group])}`],
    ...named,
    ["valid", one.lost ? h("span", { class: "warning" }, `no: ${one.lost}`) : "yes"],
    ["cut short", one.truncated ? h("span", { class: "warning" }, "yes, by a budget or the turn limit") : "no"],
    ["turns", number(one.stop_reasons.length)],
    one.weight_versions.length ? ["weights", weightsOf(one.weight_versions)] : null,
    ["tokens", Object.entries(one.tokens).map(([kind, many]) => `${kind} ${number(many)}`).join(", ")],
    one.condition >= 0 ? ["condition", number(one.condition)] : null,
  ]);
}

function weightsOf(versions) {
  const [low, high] = [least(versions), most(versions)];
  return low === high ? `of ${count(low, "update")}` : `of ${number(low)} to ${count(high, "update")}`;
}

const memberTabs = (group, current) => h("nav", { class: "tabs", "aria-label": "Members of the group" },
  GROUPS.rewards[group].map((value, member) => link(hashOf(group, member),
    [h("small", null, `${member} `), value === null ? "lost" : number(value)],
    { "aria-current": member === current ? "page" : null, title: `member ${member}`,
      "aria-label": `member ${member}, ${value === null ? "lost" : `reward ${number(value)}`}` })));

// The trajectory before or after: of the group, then of the next group as the table of groups has them.
function beside(group, member, by) {
  if (member + by >= 0 && member + by < GROUPS.rewards[group].length) return hashOf(group, member + by);
  const order = shownGroups.includes(group) ? shownGroups : Array.from({ length: NUM_GROUPS }, (_, i) => i);
  const next = order[order.indexOf(group) + by];
  return next === undefined ? null : hashOf(next, by > 0 ? 0 : GROUPS.rewards[next].length - 1);
}

function trajectoryView(parts) {
  const place = placeOf(parts);
  if (!place) return { title: "Not found", node: h("p", { class: "note" }, "This report holds no such trajectory."), up: "#/groups" };
  const { group, member } = place;
  const body = h("div", { "aria-busy": "true" }, h("p", { class: "note" }, "opening …"));
  const go = (by) => () => { const hash = beside(group, member, by); if (hash) location.hash = hash; };
  const when = isHeldOut(group) ? `held-out after ${count(GROUPS.step[group], "step")}` : `step ${number(GROUPS.step[group])}`;
  const tabs = memberTabs(group, member);
  const title = `${when}, ${taskOf(group)}, member ${member}`;
  const node = h("div", { class: "trajectory" },
    h("p", { class: "path" }, link("#/groups", "Groups"), INDEX.runs.length > 1 ? ` / ${runName(GROUPS.run[group])}` : "", ` / ${when}`),
    h("h1", null, taskOf(group), h("small", null, ` member ${member}`)),
    h("div", { class: "controls" },
      button("Previous (k)", go(-1), { disabled: !beside(group, member, -1) }),
      button("Next (j)", go(1), { disabled: !beside(group, member, 1) }),
      link(`#/task/${GROUPS.task[group]}`, "Same task across steps")),
    tabs, body);
  Promise.all([membersOf(group), tokensOf(group)]).then(([members, tokens]) => {
    const scale = tokens ? tintScale(tokens) : 0;
    const [one, mine] = [members[member], tokens && tokens[member]];
    const shown = conversation(one, mine, scale);
    // Which members the method encourages, which it discourages.
    if (tokens) tokens.forEach((its, i) => tabs.children[i].classList.add(...tint(learnedOfAll(its).mean, scale).split(" ").filter(Boolean)));
    body.replaceChildren(verdict(group, member, one, mine, scale), facts(group, member, one),
      outline(one, mine, scale, shown),
      tokens ? tintLegend(scale, GROUPS.rewards[group], tokens) : h("p", { class: "note" }, "Tokens of held-out conversations are not logged: nothing is learned from them."),
      shown);
  }).catch((error) => {
    body.replaceChildren(h("p", { class: "warning" }, `This trajectory cannot be opened: ${error.message}`));
  }).finally(() => body.removeAttribute("aria-busy"));
  return { title, node, next: go(1), previous: go(-1), up: "#/groups" };
}
