// Tokens one by one: tinted by their advantage, with all that is known of one under the pointer or the focus.

const LEVELS = 6;
const AT_ONCE = 4000;
const MODEL = 2;
const FORCED = 4;

// What an advantage of the deepest tint is: the largest of the group, so that its members compare.
function tintScale(members) {
  let scale = 0;
  for (const { advantage, mask, length } of members)
    for (let i = 0; i < length; i++)
      if (mask[i] && Number.isFinite(advantage[i])) scale = Math.max(scale, Math.abs(advantage[i]));
  return scale;
}

function tint(advantage, scale) {
  if (!scale || !advantage) return "";
  const level = Math.max(1, Math.min(LEVELS, Math.round((LEVELS * Math.abs(advantage)) / scale)));
  return ` ${advantage > 0 ? "plus" : "minus"}${level || LEVELS}`;
}

function tokenClass(tokens, i, scale) {
  let name = "token";
  if (tokens.kind[i] === FORCED) name += " forced";
  name += tokens.mask[i] ? tint(tokens.advantage[i], scale) : " unmasked";
  const piece = tokens.pieces[i];
  if (piece === "") name += " empty";
  else if (piece.endsWith("\n")) name += " ends-line";
  return name;
}

// The tokens of a model turn as a text that can be walked through.
function tokenText(tokens, turn, scale) {
  const places = [];
  for (let i = 0; i < tokens.length; i++)
    if (tokens.turn[i] === turn && (tokens.kind[i] === MODEL || tokens.kind[i] === FORCED)) places.push(i);
  const text = h("div", { class: "text tokens", role: "group", dir: "auto",
    "aria-label": `Turn ${turn + 1}: ${count(places.length, "token")}; arrow keys move from one to the next` });
  text.tokens = tokens;
  const add = (from) => {
    const some = places.slice(from, from + AT_ONCE);
    text.append(...some.map((i, n) => h("span", {
      class: tokenClass(tokens, i, scale), "data-i": i, tabindex: from + n === 0 ? "0" : "-1" }, tokens.pieces[i])));
    const left = places.length - from - some.length;
    if (left > 0) {
      const more = button(`show ${number(Math.min(left, AT_ONCE))} more of ${count(left, "token")}`, () => {
        more.remove();
        add(from + some.length);
      });
      text.append(more);
    }
  };
  add(0);
  return text;
}

const tip = h("div", { id: "tip", role: "tooltip", hidden: true });

function tipRows(tokens, i) {
  const probability = Math.exp(tokens.log_prob[i]);
  const sampled = tokens.kind[i] === MODEL;
  return [
    ["token", h("code", null, JSON.stringify(tokens.pieces[i])), ` ${tokens.id[i]}`],
    ["advantage", tokens.mask[i] ? number(tokens.advantage[i]) : "none: not trained"],
    ["log-prob", sampled ? `${number(tokens.log_prob[i])} (${percent(probability)})` : "not sampled"],
    ["entropy", sampled ? `${number(tokens.entropy[i])} nats` : "–"],
    ["ratio", sampled ? number(tokens.ratio[i]) : "–"],
    ["mask", tokens.mask[i] ? "trained" : "left out"],
  ];
}

function showTip(token) {
  const { tokens } = token.closest(".tokens");
  tip.replaceChildren(h("dl", null, tipRows(tokens, Number(token.dataset.i)).map(([name, ...value]) =>
    [h("dt", null, name), h("dd", null, value)])));
  tip.hidden = false;
  const at = token.getBoundingClientRect();
  const box = tip.getBoundingClientRect();
  const left = Math.max(4, Math.min(at.left, document.documentElement.clientWidth - box.width - 4));
  const below = at.bottom + 6 + box.height < window.innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? at.bottom + 6 : Math.max(4, at.top - box.height - 6)}px`;
  document.querySelector("[aria-describedby=tip]")?.removeAttribute("aria-describedby");
  token.setAttribute("aria-describedby", "tip");
}

function hideTip() {
  tip.hidden = true;
}

// The token that an arrow key leads to: the next or last one, or the one above or below.
function neighbour(token, key) {
  const forwards = key === "ArrowRight" || key === "ArrowDown";
  const beside = (one) => {
    const next = forwards ? one.nextElementSibling : one.previousElementSibling;
    return next && next.classList.contains("token") ? next : null;
  };
  if (key === "ArrowLeft" || key === "ArrowRight") return beside(token);
  const from = token.getBoundingClientRect();
  let best = null;
  for (let one = beside(token); one; one = beside(one)) {
    const box = one.getBoundingClientRect();
    if (Math.abs(box.top - from.top) < from.height / 2) continue;
    if (best && Math.abs(box.top - best.top) > from.height / 2) break;
    const away = Math.abs(box.left - from.left);
    if (!best || away < best.away) best = { one, away, top: box.top };
  }
  return best && best.one;
}

function listenToTokens(element) {
  const tokenAt = (event) => event.target.closest && event.target.closest(".token");
  element.addEventListener("pointerover", (event) => { if (tokenAt(event)) showTip(tokenAt(event)); else hideTip(); });
  element.addEventListener("pointerleave", hideTip);
  element.addEventListener("focusin", (event) => { if (tokenAt(event)) showTip(tokenAt(event)); });
  element.addEventListener("focusout", hideTip);
  element.addEventListener("keydown", (event) => {
    const token = tokenAt(event);
    if (!token || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
    const next = neighbour(token, event.key);
    if (!next) return;
    token.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

// Why there is nothing to tint: a group whose members did equally well teaches nothing.
function withoutAdvantage(rewards, members) {
  const scored = rewards.filter((value) => value !== null);
  if (new Set(scored).size <= 1 && scored.length) return "no advantage: all rewards of the group are equal";
  if (!members.some(({ mask }) => mask.some(Boolean))) return "no advantage: no token of the group is trained";
  return "no advantage in this group: the method made none of its rewards";
}

const tintLegend = (scale, rewards, members) => h("p", { class: "tints" },
  scale ? tintSteps(scale) : withoutAdvantage(rewards, members), h("span", { class: "token unmasked" }, "not trained"));

const tintSteps = (scale) => ["advantage ",
  h("span", { class: "token minus6" }, number(-scale)), h("span", { class: "token minus4" }, "\u00a0"),
  h("span", { class: "token minus2" }, "\u00a0"), h("span", { class: "token" }, " 0 "), h("span", { class: "token plus2" }, "\u00a0"),
  h("span", { class: "token plus4" }, "\u00a0"), h("span", { class: "token plus6" }, `+${number(scale)}`)];
