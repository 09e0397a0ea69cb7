"""What is logged of a token is what the learner had at its place; lines come back as they were; little is kept."""

import json

import numpy as np
import pytest

from rlagents.facts import Outcome
from rlagents.metrics import JsonLines, read_lines
from rlagents.rollouts.collate import collate
from rlagents.trajectory_lines import COLUMNS, group_line, trajectories, unpacked
from rlagents.trajectory_log import TrajectoryLog, TrajectoryOptions, held_out_lines
from rlagents.types import Credit, Kind
from tests.rollouts.test_collate import BUCKETS, trajectory

PARTS = ((Kind.FORCED, 1), (Kind.MODEL, 3), (Kind.TOOL, 2), (Kind.MODEL, 2))


def messages(*texts):
    return [{"role": role, "content": text} for role, text in texts]


def a_group(stream, **changes):
    """Two members of different lengths, whose prompts differ at the end: the second holds two prompt tokens."""
    said = [messages(("system", "s"), ("user", "u"), ("assistant", f"m{number}")) for number in range(2)]
    first = trajectory(stream, 0, (1, 2, 3), PARTS, messages=said[0], **changes)
    return [first, trajectory(stream, 1, (1, 2, 4, 5), ((Kind.MODEL, 2),), messages=said[1], **changes)]


class Weights:
    """Scores that say where they were computed: place in the batch, and which weights."""

    def __init__(self):
        self.looked = []

    def __call__(self, params, sequences):
        self.looked.append((params, np.asarray(sequences.tokens).copy()))
        places = np.arange(sequences.tokens.size, dtype=np.float32).reshape(sequences.tokens.shape) / 1024
        return places + params, places * 2


def logged(tmp_path, steps=1, *, scores=None, **options):
    log_options = TrajectoryOptions(**options)
    batch_of = [a_group(stream) for stream in range(3)]
    batch = collate(batch_of, **BUCKETS)
    places = np.arange(batch.masks.kind.size, dtype=np.float32).reshape(batch.masks.kind.shape)
    mask = (batch.masks.kind == Kind.MODEL) & (places % 2 == 0)
    credit = Credit(batch.rewards.outcome, batch.masks.valid, mask, places + 1)
    with JsonLines(tmp_path / "trajectories.jsonl", max_bytes=log_options.max_bytes) as lines:
        log = TrajectoryLog(lines, lambda ids: "".join(f"<{i}>" for i in ids), scores or Weights(), log_options)
        written = []
        for step in range(steps):
            log.before(step, batch_of, batch, 0.0)
            log.after(credit, 0.5)
            written.append([line["step"] for line in read_lines(tmp_path / "trajectories.jsonl")])
        log.flush()
        log.flush()
    rows = list(read_lines(tmp_path / "trajectories.jsonl"))
    return batch_of, batch, credit, rows, written


def test_every_token_has_what_the_learner_had_at_its_place(tmp_path):
    batch_of, batch, credit, rows, _ = logged(tmp_path)
    assert [(row["step"], row["task"], row["stream"]) for row in rows] == [(0, "task 0", 0)]
    for column, (member, found) in enumerate(zip(batch_of[0], trajectories(rows[0]), strict=True)):
        tail = int(batch.sequences.length[0, column]) - len(member.token_ids)
        at = slice(tail, tail + len(member.token_ids))
        columns = found["columns"]
        assert columns.keys() == COLUMNS.keys()
        assert found["pieces"] == [f"<{token}>" for token in member.token_ids]
        np.testing.assert_array_equal(columns["id"], batch.sequences.tokens[0, column, at])
        np.testing.assert_array_equal(columns["kind"], member.kinds)
        np.testing.assert_array_equal(columns["turn"], member.turns)
        np.testing.assert_array_equal(columns["mask"], credit.mask[0, column, at])
        model = np.asarray(member.kinds) == Kind.MODEL
        place = column * batch.sequences.tokens.shape[-1] + np.arange(at.start, at.stop)
        np.testing.assert_allclose(columns["log_prob"], member.log_probs, rtol=1e-3)
        np.testing.assert_allclose(columns["entropy"], np.where(model, 2 * place / 1024, 0), rtol=1e-3)
        np.testing.assert_allclose(columns["ratio"], np.where(model, np.exp(0.5), 1), rtol=1e-3)
        np.testing.assert_allclose(columns["advantage"], np.where(columns["mask"], place + 1, 0), rtol=1e-3)
        assert columns["mask"].any()


def test_facts_and_messages_come_back(tmp_path):
    batch_of, _, _, rows, _ = logged(tmp_path)
    assert rows[0]["opening"] == messages(("system", "s"), ("user", "u"))
    for member, found in zip(batch_of[0], trajectories(rows[0]), strict=True):
        said = member.summary()
        assert {name: found[name] for name in said} == json.loads(json.dumps(said))


def test_so_many_steps_and_groups_are_logged_and_each_a_step_late(tmp_path):
    weights = Weights()
    *_, rows, written = logged(tmp_path, steps=5, scores=weights, every_steps=2, groups=3)
    assert written == [[], [], [0] * 3, [0] * 3, [0] * 3 + [2] * 3]
    assert [row["step"] for row in rows] == [0] * 3 + [2] * 3 + [4] * 3
    assert [row["stream"] for row in rows] == [0, 1, 2] * 3
    # Twice at each logged step, with the weights before and after.
    assert [params for params, _ in weights.looked] == [0.0, 0.5] * 3


def test_no_more_groups_pass_the_model_than_are_logged(tmp_path):
    weights = Weights()
    _, batch, *_ = logged(tmp_path, scores=weights)
    assert [tokens.shape[0] for _, tokens in weights.looked] == [1, 1]
    np.testing.assert_array_equal(weights.looked[0][1], batch.sequences.tokens[:1])


def test_nothing_is_logged_or_computed_where_it_is_off(tmp_path):
    weights = Weights()
    *_, rows, _ = logged(tmp_path, steps=3, scores=weights, every_steps=0)
    assert (rows, weights.looked) == ([], [])


def test_as_many_groups_pass_as_the_mesh_splits(tmp_path):
    batch_of, weights = [a_group(stream) for stream in range(3)], Weights()
    batch = collate(batch_of, **BUCKETS)
    with JsonLines(tmp_path / "t.jsonl") as lines:
        log = TrajectoryLog(lines, str, weights, TrajectoryOptions(groups=2), prompt_shards=3)
        log.before(0, batch_of, batch, 0.0)
    assert [tokens.shape[0] for _, tokens in weights.looked] == [3]


def test_held_out_conversations_have_no_tokens(tmp_path):
    with JsonLines(tmp_path / "held_out.jsonl") as lines:
        held_out_lines(lines, 7, [a_group(3)])
    (row,) = read_lines(tmp_path / "held_out.jsonl")
    found = trajectories(row)
    assert [(each["step"], each["task"], each["member"]) for each in found] == [(7, "task 3", 0), (7, "task 3", 1)]
    assert not any("columns" in each for each in found)


def test_numbers_that_json_does_not_know_and_lost_members_are_written(tmp_path):
    lost = [trajectory(0, 0, lost="a worker died", outcome=None), trajectory(0, 1, outcome=Outcome(float("nan")))]
    with JsonLines(tmp_path / "held_out.jsonl") as lines:
        held_out_lines(lines, 0, [lost])
    (row,) = read_lines(tmp_path / "held_out.jsonl")
    assert [(each["reward"], each["lost"]) for each in trajectories(row)] == [(None, "a worker died"), ("nan", None)]


TOKENS = {"pieces": ["a", "b"], **{name: [1, 0] for name in COLUMNS}}
SUMMARY = {"task": "t", "stream": 0, "messages": [], "member": 0, "stop_reasons": []}


@pytest.mark.parametrize("examples", [0, 2])
@pytest.mark.parametrize("alike", [1, 2])
def test_what_a_member_wrote_is_its_own_also_where_all_wrote_it(examples, alike):
    """Readers count turns from the end of the opening, whatever examples stand in it."""
    shown = messages(("system", "s"), *[("user", "like"), ("assistant", "this")] * examples, ("user", "u"))
    members = []
    for number in range(2):
        second = "b" if alike == 2 else f"b{number}"
        said = shown + messages(("assistant", "a"), ("tool", "t"), ("assistant", second), ("tool", "u"))
        parts = ((Kind.MODEL, 2), (Kind.TOOL, 1), (Kind.MODEL, 1))
        members.append(trajectory(0, number, segments=parts, messages=said, outcome=Outcome(1.0)).summary())
    line = group_line(3, members)
    assert line["opening"] == shown
    assert [[m["role"] for m in member["messages"]] for member in line["members"]] == [["assistant", "tool"] * 2] * 2
    assert [member["messages"] for member in trajectories(line)] == [member["messages"] for member in members]


def test_damaged_lines_are_refused():
    assert unpacked(group_line(0, [SUMMARY], [TOKENS])["members"][0])["id"].tolist() == [1, 0]
    with pytest.raises(ValueError, match="at least one member"):
        group_line(0, [])
    with pytest.raises(ValueError, match="must have one length"):
        group_line(0, [SUMMARY], [TOKENS | {"id": [1]}])
    line = group_line(0, [SUMMARY], [TOKENS])
    for name in ("task", "opening", "members"):
        with pytest.raises(ValueError, match="no line of a group"):
            trajectories({key: value for key, value in line.items() if key != name})
    whole = line["members"][0]
    for columns in ({"id": "%%"}, {"id": whole["columns"]["id"][:4]}, {"colour": "AAAA"}, 3):
        with pytest.raises(ValueError, match=r"differ in length|damaged|buffer size"):
            unpacked(whole | {"columns": columns})


def test_an_advantage_beyond_half_precision_is_infinite_and_told(tmp_path):
    line = group_line(0, [SUMMARY], [TOKENS | {"advantage": [1e9, -1e9]}])
    assert trajectories(line)[0]["columns"]["advantage"].tolist() == [float("inf"), float("-inf")]
