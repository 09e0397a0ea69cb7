// The data of this file: the index at once, pages of trajectories when they are asked for.

const INDEX = JSON.parse(document.getElementById("index").textContent);
const GROUPS = INDEX.groups;
const NUM_GROUPS = GROUPS.step.length;

// An element is whole once something follows it: the browser may still be reading the file.
function whenRead(id) {
  return new Promise((found, missing) => {
    const look = () => {
      const element = document.getElementById(id);
      const whole = document.readyState !== "loading";
      if (element && (whole || element.nextSibling)) found(element);
      else if (whole) missing(new Error(`this file has no ${id}: it was cut short`));
      else setTimeout(look, 25);
    };
    look();
  });
}

function bytes(base64) {
  const text = atob(base64);
  const array = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) array[i] = text.charCodeAt(i);
  return array;
}

async function opened(id) {
  const element = await whenRead(id);
  const stream = new Blob([bytes(element.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// The pages used last stay open.
function pageCache(prefix, most) {
  const open = new Map();
  return (number) => {
    const page = open.get(number) || opened(`${prefix}-${number}`);
    open.delete(number);
    open.set(number, page);
    page.catch(() => open.delete(number));
    if (open.size > most) open.delete(open.keys().next().value);
    return page;
  };
}

const textPage = pageCache("text", 64);
const tokenPage = pageCache("tokens", 16);

const keyOf = (run, phase, step, stream) => `${run} ${phase} ${step} ${stream}`;
const PLACES = new Map();
for (let i = 0; i < NUM_GROUPS; i++)
  PLACES.set(keyOf(GROUPS.run[i], GROUPS.phase[i], GROUPS.step[i], GROUPS.stream[i]), i);

const isHeldOut = (group) => GROUPS.phase[group] === INDEX.held_out;
const taskOf = (group) => INDEX.tasks[GROUPS.task[group]];
const runName = (run) => INDEX.runs[run].name;

// The members of a group: facts, and messages with their texts.
async function membersOf(group) {
  const page = await textPage(GROUPS.text_page[group]);
  const { opening, members } = page.groups[GROUPS.text_place[group]];
  const texts = (messages) => messages.map(({ role, content }) => ({ role, content: page.texts[content] }));
  return members.map((member) => ({ ...member, opening: texts(opening), said: texts(member.messages) }));
}

function halves(array) {
  const numbers = new Float32Array(array.length / 2);
  for (let i = 0; i < numbers.length; i++) {
    const bits = array[2 * i] | (array[2 * i + 1] << 8);
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    const size = exponent === 31 ? (fraction ? NaN : Infinity)
      : exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    numbers[i] = bits >> 15 ? -size : size;
  }
  return numbers;
}

const DECODERS = {
  id: (array) => new Uint32Array(array.buffer),
  turn: (array) => new Int16Array(array.buffer),
  kind: (array) => array,
  mask: (array) => array,
};

// The tokens of every member of a group, or null where nobody looked at them.
async function tokensOf(group) {
  if (GROUPS.token_page[group] < 0) return null;
  const page = await tokenPage(GROUPS.token_page[group]);
  return page[GROUPS.token_place[group]].map(({ pieces, columns }) => {
    const found = { pieces, length: pieces.length };
    for (const [name, packed] of Object.entries(columns)) found[name] = (DECODERS[name] || halves)(bytes(packed));
    return found;
  });
}
