// A trajectory at a glance: how it did, what the method made of it, and a line a turn.

const LINES = 60;
const BEGINNING = 160;
const [HALF_LEAST, HALF_MOST] = [2 ** -24, 65504];  // what half precision can say of a ratio

// Of the trained tokens that `wanted` chooses: how many, their advantages, and how much likelier the update made them.
function learnedOf(tokens, wanted) {
  const found = { many: 0, sum: 0, low: Infinity, high: -Infinity, logs: 0 };
  for (let i = 0; i < tokens.length; i++) {
    if (!tokens.mask[i] || !wanted(i)) continue;
    found.many += 1;
    found.sum += tokens.advantage[i];
    found.low = Math.min(found.low, tokens.advantage[i]);
    found.high = Math.max(found.high, tokens.advantage[i]);
    found.logs += Math.log(Math.min(HALF_MOST, Math.max(HALF_LEAST, tokens.ratio[i])));
  }
  return { ...found, mean: found.many ? found.sum / found.many : 0, ratio: Math.exp(found.logs / found.many) };
}

const learnedOfAll = (tokens) => learnedOf(tokens, () => true);

const signed = (value) => (value > 0 ? `+${number(value)}` : number(value || 0));
const between = ({ low, high }) => (low === high ? signed(low) : `${signed(low)} to ${signed(high)}`);

function pushed(found, way, scale) {
  if (!found.many) return null;
  const end = way === "up" ? found.high : found.low;
  return [" ", h("span", { class: `token${tint(end, scale)}` }, `${count(found.many, "token")} pushed ${way}`),
    ` (advantage ${between(found)}): the update made each ${number(found.ratio)} times as likely (geometric mean).`];
}

function taught(tokens, scale) {
  if (!learnedOfAll(tokens).many) return " No token of it is trained.";
  const level = learnedOf(tokens, (i) => !tokens.advantage[i]).many;
  return [
    pushed(learnedOf(tokens, (i) => tokens.advantage[i] > 0), "up", scale),
    pushed(learnedOf(tokens, (i) => tokens.advantage[i] < 0), "down", scale),
    level ? ` ${count(level, "trained token")} without an advantage: nothing is taught there.` : null,
  ];
}

function outcome(group, member) {
  const [mine, mean, std] = [GROUPS.rewards[group][member], GROUPS.mean[group], GROUPS.std[group]];
  if (mine === null) return "No reward.";
  const side = !std ? "like all of its group" : mine > mean ? "above its group's mean of " : "below its group's mean of ";
  return [h("strong", null, `Reward ${number(mine)}`), `, ${std && mine === mean ? "its group's mean" : side}`,
    std && mine !== mean ? number(mean) : null, "."];
}

function verdict(group, member, one, tokens, scale) {
  return h("p", { class: "verdict" },
    one.lost ? "Lost to the infrastructure: neither scored nor learned from." : outcome(group, member),
    tokens && !one.lost ? taught(tokens, scale) : null);
}

const beginning = (text) => text.slice(0, BEGINNING).trim().replace(/\s+/g, " ");

// What a turn did and what came of it, and what was asked in between: each a line that leads to its message.
function outline(one, tokens, scale, conversation) {
  const asked = one.opening.filter(({ role }) => role === "user").slice(-1);
  let turn = -1;
  const lines = [...asked, ...one.said].map((each) => {
    if (each.role === "assistant") return { turn: (turn += 1), text: beginning(each.content), answers: [] };
    return { role: each.role, text: beginning(each.content) };
  });
  const shown = [];
  for (const line of lines) {
    const last = shown[shown.length - 1];
    if (line.turn === undefined && line.role !== "user" && last && last.answers) last.answers.push(line.text);
    else shown.push(line);
  }
  const list = h("ol", { class: "outline", "aria-label": "Turn by turn" });
  const add = (from) => {
    list.append(...shown.slice(from, from + LINES).map((line) => h("li", null,
      line.turn === undefined ? askedLine(line) : turnLine(line, one, tokens, scale, conversation))));
    const left = shown.length - from - LINES;
    if (left <= 0) return;
    const more = h("li", null, button(`show ${count(Math.min(left, LINES), "more line")} of ${number(left)}`, () => {
      more.remove();
      add(from + LINES);
    }));
    list.append(more);
  };
  add(0);
  return list;
}

const askedLine = ({ role, text }) => h("div", { class: "asked" }, h("span", { class: "who" }, role),
  h("span", { class: "begins", dir: "auto" }, text));

function turnLine({ turn, text, answers }, one, tokens, scale, conversation) {
  const learned = tokens && learnedOf(tokens, (i) => tokens.turn[i] === turn);
  const go = () => {
    const there = conversation.querySelector(`[data-turn="${turn}"]`);
    there.scrollIntoView({ block: "start" });
    (there.querySelector(".token[tabindex='0']") || there).focus({ preventScroll: true });
  };
  return button([
    h("span", { class: "who" }, `turn ${number(turn + 1)}`),
    h("span", { class: `begins token${learned && learned.many ? tint(learned.mean, scale) : ""}`, dir: "auto" }, text || "(nothing)"),
    answers.length ? h("span", { class: "came" }, "→ ", h("span", { class: "begins", dir: "auto" }, answers[0] || "(nothing)"),
      answers.length > 1 ? ` and ${number(answers.length - 1)} more` : null) : null,
    h("span", { class: "marks" }, turnMarks(one, turn),
      learned ? h("span", null, learned.many ? `advantage ${signed(learned.mean)}, ×${number(learned.ratio)}` : "not trained") : null),
  ], go, { class: "line" });
}

function turnMarks(one, turn) {
  const [calls, good] = [one.tool_calls[turn], one.tool_successes[turn]];
  const why = one.stop_reasons[turn];
  return [
    calls ? h("span", { class: good < calls ? "bad" : "good" },
      good < calls ? `✗ ${number(calls - good)} of ${count(calls, "call")} failed` : `✓ ${count(calls, "call")}`) : null,
    one.void[turn] ? h("span", { class: "bad" }, "✗ void") : null,
    why === "length" || why === "budget" ? h("span", { class: "bad" }, `✗ cut by ${why}`) : null,
  ];
}
