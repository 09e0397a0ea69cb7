// Which groups hold a text: in the name of the task, or in any message. Pages are opened one after the other.

const lowered = new WeakMap();

function lowerTexts(page) {
  if (!lowered.has(page)) lowered.set(page, page.texts.map((text) => text.toLowerCase()));
  return lowered.get(page);
}

const inTask = (group, wanted) => taskOf(group).toLowerCase().includes(wanted);

// Calls progress(found, share) after each page; stops once `stale()`.
async function search(text, progress, stale) {
  const wanted = text.toLowerCase();
  const found = new Set();
  const onPage = Array.from({ length: INDEX.pages.texts }, () => []);
  for (let group = 0; group < NUM_GROUPS; group++) {
    onPage[GROUPS.text_page[group]].push(group);
    if (inTask(group, wanted)) found.add(group);
  }
  progress(found, onPage.length ? 0 : 1);
  for (let number = 0; number < onPage.length; number++) {
    const page = await textPage(number);
    if (stale()) return;
    const hits = new Set();
    lowerTexts(page).forEach((lower, i) => { if (lower.includes(wanted)) hits.add(i); });
    const holds = (messages) => messages.some(({ content }) => hits.has(content));
    if (hits.size)
      for (const group of onPage[number]) {
        const { opening, members } = page.groups[GROUPS.text_place[group]];
        if (holds(opening) || members.some(({ messages }) => holds(messages))) found.add(group);
      }
    progress(found, (number + 1) / onPage.length);
  }
}
