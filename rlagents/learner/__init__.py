"""What turns rollouts (and traces) into new weights: pure jitted functions over ``TrainState``; knows no model.

``policy`` prepares facts, assigns credit and takes updates; ``packed`` does the same in micro-batches that ``plan``
packs by length, with ``rows`` to take them; ``binding`` is what both share. ``supervised`` learns from traces.
``passes`` runs a model given as a function, ``fused`` its head together with the loss; ``slices`` cuts batches,
``update`` applies a gradient or skips it, ``distances`` tells how far the policy has come; ``optimizer`` and ``state``
make what their names say.
"""

from rlagents.learner.binding import Learner
from rlagents.learner.fused import fused_loss
from rlagents.learner.optimizer import Optimizer, from_optax, make_optimizer, warm_up
from rlagents.learner.packed import make_packed_learner
from rlagents.learner.passes import Apply, Passes, member_slices, whole_groups
from rlagents.learner.policy import make_learner
from rlagents.learner.state import TrainState, abstract_state, create_state, own_copy, state_shardings
from rlagents.learner.supervised import make_supervised_step
from rlagents.learner.update import NonFiniteError, StepReport, check_finite, report_values

__all__ = [
    "Apply",
    "Learner",
    "NonFiniteError",
    "Optimizer",
    "Passes",
    "StepReport",
    "TrainState",
    "abstract_state",
    "check_finite",
    "create_state",
    "from_optax",
    "fused_loss",
    "make_learner",
    "make_optimizer",
    "make_packed_learner",
    "make_supervised_step",
    "member_slices",
    "own_copy",
    "report_values",
    "state_shardings",
    "warm_up",
    "whole_groups",
]
