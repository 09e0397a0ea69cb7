// Numbers about whole runs: how entropy and reward go together, and what RC-GRPO's propositions come to.

function entropyReward() {
  const rows = INDEX.runs.filter(({ entropy_reward: found }) => found).map(({ name, entropy_reward: found }) =>
    [h("strong", null, name), number(found.pearson), number(found.spearman), number(found.n)]);
  return rows.length ? h("section", { class: "panel", id: "entropy-reward" }, h("h2", null, "Entropy against reward"),
    h("p", { class: "note" }, "Correlation of entropy and reward over the steps of a run; below zero, entropy falls as reward rises. " +
      "Steps follow one another, so that n of them say less than n runs would; – where one of the two never changes."),
    table(["Run", "Pearson", "Spearman", "n (steps)"], rows, { label: "Correlation of entropy and reward" })) : null;
}

function propositionsTable() {
  const rows = INDEX.runs.flatMap(({ name, propositions }) => propositions.map((one) => [h("strong", null, name), one.title,
    number(one.measured), number(one.bound), `${number(one.margin)}${one.error === null ? "" : ` ± ${number(one.error)}`}`,
    number(one.groups), number(one.steps)]));
  return rows.length ? h("div", { id: "propositions" },
    h("p", { class: "note" }, "Means over all groups of a run. By RC-GRPO's propositions the margin, measured less bound, is not " +
      "below zero but for sampling error; ± is its standard error."),
    table(["Run", "Proposition", "Measured", "Bound", "Margin", "Groups", "Steps"], rows, { label: "Measured against bound" })) : null;
}
