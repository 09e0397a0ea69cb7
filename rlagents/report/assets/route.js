// Addresses within the report: #/groups?q=..., #/run/0/step/12/group/3/member/1, ...

function readRoute() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean);
  return { parts, query: new URLSearchParams(query || "") };
}

// The word for a phase in an address.
const phaseWord = (phase) => (phase === INDEX.held_out ? phase : "step");

const hashOf = (group, member) =>
  `#/run/${GROUPS.run[group]}/${phaseWord(GROUPS.phase[group])}/${GROUPS.step[group]}` +
  `/group/${GROUPS.stream[group]}/member/${member}`;

// Group and member of an address, or null where this report has none.
function placeOf(parts) {
  const [, run, word, step, , stream, , member] = parts;
  const phase = word === INDEX.held_out ? word : "training";
  const group = PLACES.get(keyOf(Number(run), phase, Number(step), Number(stream)));
  const number = Number(member);
  if (group === undefined || !(Number.isInteger(number) && number >= 0 && number < GROUPS.rewards[group].length)) return null;
  return { group, member: number };
}

// Change the address and nothing else.
function rewrite(hash) {
  try {
    history.replaceState(null, "", hash);
  } catch {
    // Some browsers refuse it to files; the address is a convenience.
  }
}
