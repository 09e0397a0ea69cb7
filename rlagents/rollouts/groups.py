"""A group while it is sampled: opened with a prompt a member, closed when all ended, scored when all are recorded."""

from collections.abc import Callable, Sequence

from rlagents.facts import Opening, Outcome, Task
from rlagents.rollouts.conversation import Conversation
from rlagents.rollouts.faults import Lost
from rlagents.rollouts.members import Member, Setting
from rlagents.rollouts.trajectory import Trajectory
from rlagents.sampling.keys import StreamKey


class Group:
    """Opens the group in the sampler; ``finished(trajectories)`` is called at its very end.

    Members lost to the infrastructure are left out of the score; a score that is lost loses the whole group.

    Attributes:
      stream: index of its task in the prompt stream.
      members: by row.
    """

    def __init__(
        self,
        setting: Setting,
        task: Task,
        keys: StreamKey,
        opening: Opening,
        conversations: Sequence[Conversation],
        conditions: Sequence[int],
        finished: Callable[[list[Trajectory]], None],
    ):
        self._setting, self._task, self._finished = setting, task, finished
        self.stream = keys.stream
        self._handle = setting.sampler.open_group([conversation.prompt_ids for conversation in conversations], keys)
        self._sampling = self._unrecorded = len(conversations)
        self.members = {
            row: Member(setting, task, opening, conversation, condition, row, self._member_ended, self._member_recorded)
            for row, conversation, condition in zip(self._handle.rows, conversations, conditions, strict=True)
        }

    def begin(self) -> None:
        """Let every member ask for its first turn."""
        for member in self.members.values():
            member.ask()

    def stop(self) -> None:
        """Give back at once what it still holds: its rows, turns in progress or not, and its episodes.

        Whatever its members wait for is no longer to be handed to them.
        """
        if not self.sampled:
            self._sampling = 0
            self._setting.sampler.close_group(self._handle)
        for member in self.members.values():
            member.stop()

    @property
    def sampled(self) -> bool:
        """Whether no member needs its row any more."""
        return self._sampling == 0

    def _member_ended(self) -> None:
        self._sampling -= 1
        if self.sampled:
            self._setting.sampler.close_group(self._handle)

    def _member_recorded(self) -> None:
        self._unrecorded -= 1
        if self._unrecorded:
            return
        present = [member for member in self.members.values() if member.lost is None]
        if present:
            ticket = self._setting.pool.score(self._task, [member.transcript() for member in present])
            self._setting.await_ticket(ticket, self._take_outcomes)
        else:
            self._take_outcomes([])

    def _take_outcomes(self, outcomes: list[Outcome] | Lost) -> None:
        lost = outcomes.reason if isinstance(outcomes, Lost) else None
        scored = iter([] if isinstance(outcomes, Lost) else outcomes)
        trajectories = []
        for number, member in enumerate(self.members.values()):
            why = member.lost if lost is None else lost
            outcome = next(scored) if why is None else None
            trajectories.append(member.trajectory(self._task, self.stream, number, outcome, why))
        self._finished(trajectories)
