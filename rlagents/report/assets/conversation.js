// A conversation turn by turn. Texts are shown as the texts they are, long ones in part until they are asked for.

const LONG = 20000;
const FOLDED = 1500;
const FOLDED_SYSTEM = 300;  // what the agent is told every time is not what it did

function plainText(content) {
  const text = h("div", { class: "text", dir: "auto" }, content.slice(0, LONG));
  if (content.length > LONG)
    text.append(button(`show all ${number(content.length)} characters`, (event) => {
      event.target.remove();
      text.replaceChildren(document.createTextNode(spelled(content)));
    }));
  return text;
}

const chip = (text, name) => h("span", { class: `chip ${name || ""}` }, text);

function turnChips(member, turn) {
  const calls = member.tool_calls[turn];
  const good = member.tool_successes[turn];
  const score = member.turn_scores[turn];
  const why = member.stop_reasons[turn];
  const version = member.weight_versions[turn];
  return [
    calls ? chip(`${count(calls, "tool call")}, ${good} succeeded`, good < calls ? "bad" : "good") : null,
    member.void[turn] ? chip("void: neither call nor answer", "bad") : null,
    score !== undefined && score !== 0 ? chip(`turn score ${number(score)}`) : null,
    why === "length" || why === "budget" ? chip(`ended by ${why}`, "bad") : null,
    new Set(member.weight_versions).size > 1 ? chip(`weights of ${count(version, "update")}`) : null,
  ];
}

function message({ role, content }, chips, body) {
  const known = ["system", "user", "assistant", "tool"].includes(role) ? role : "other";
  return h("article", { class: `message ${known}` },
    h("header", null, h("h3", null, role), chips), body || folded(content, role === "system" ? FOLDED_SYSTEM : FOLDED));
}

function folded(content, most) {
  if (content.length <= most) return plainText(content);
  const all = h("details", null, h("summary", null,
    h("span", { class: "text", dir: "auto" }, `${content.slice(0, 200)} …`), h("small", null, ` ${number(content.length)} characters`)));
  // Not in the page until it is opened.
  all.addEventListener("toggle", () => { if (all.open && all.children.length === 1) all.append(plainText(content)); });
  return all;
}

// Messages of the opening, then turns: tokens where they are known, else the text that the environment was given.
function conversation(member, tokens, scale) {
  let turn = -1;
  const said = member.said.map((one) => {
    if (one.role !== "assistant") return message(one);
    turn += 1;
    const known = tokens && turn < member.stop_reasons.length;
    const shown = message(one, turnChips(member, turn), known ? tokenText(tokens, turn, scale) : plainText(one.content));
    return fill(shown, { "data-turn": turn, tabindex: "-1" }, []);
  });
  const node = h("div", { class: "conversation" }, member.opening.map((one) => message(one)), said);
  listenToTokens(node);
  return node;
}
