// Elements. Whatever text comes from a run goes in as a text node; nothing here, or anywhere, parses markup.

// Characters that turn the order of others round are spelled out: a text must not look like another.
const TURNING = /[\u202a-\u202e\u2066-\u2069]/g;
const spelled = (text) => text.replace(TURNING, (one) => `[U+${one.charCodeAt(0).toString(16).toUpperCase()}]`);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false)
      element.append(child instanceof Node ? child : document.createTextNode(spelled(String(child))));
  }
  return element;
}

// What an object itself has under a name: names come from runs, and every object has a "constructor".
const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);

const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const link = (hash, text, attributes) => h("a", { href: hash, ...attributes }, text);

const button = (text, onclick, attributes) => h("button", { type: "button", onclick, ...attributes }, text);

// A table of rows of cells; a cell is text or nodes. Wide tables scroll in their own box, never the page.
const table = (heads, rows, attributes) => scrolling((attributes || {}).label || "Table", h("table", null,
  h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col" }, head)))),
  h("tbody", null, rows.map((cells) => h("tr", null, cells.map((cell) => h("td", null, cell)))))));

function choice(label, options, value, onchange) {
  const select = h("select", { onchange: () => onchange(select.value) },
    options.map(([name, text]) => h("option", { value: name, selected: name === value }, text)));
  return h("label", { class: "choice" }, label, " ", select);
}
