"""TRL as the judge: a batch of ours run through the trainer that is installed, and through a method of ours.

Nothing of TRL is copied. A ``GRPOTrainer`` is made without its ``__init__``, which would load a model; what a model, an
engine and an environment would have said is put in by hand, and two of its own methods run on it:
``_generate_and_score_completions`` (advantages, masks, importance ratios) and ``_compute_loss``.

``python -m tests.judges.trl_judge`` prints the table of differences.
"""

import functools
import warnings
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlagents.methods import on_policy
from rlagents.types import Kind
from tests.judges.trl_cases import CASES, MEAN_OVER_ROWS
from tests.methods.batches import SHAPE, make_batch
from tests.methods.harness import assert_close, jitted

PAD, TOKEN, END = 0, 1, 2


class Verdict(NamedTuple):
    """Loss of every micro-batch, gradients ``[p g t]`` of their sum, advantages, metrics of the last."""

    losses: Any
    policy: Any
    entropy: Any
    advantages: Any
    metrics: dict[str, float]

    @property
    def loss(self):
        """Of all micro-batches."""
        return np.sum(self.losses)


@functools.cache
def _trl():
    # Seconds, so neither at the collection of tests nor where nobody judges.
    import torch
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer.utils import split_tensor_dict

    return torch, GRPOConfig, GRPOTrainer, split_tensor_dict


def theirs(options, batch, *, factor=None) -> Verdict:
    """TRL's verdict; ``options`` are fields of its ``GRPOConfig``, ``factor [p g t]`` multiplies its advantages.

    An invalid member is one that no reward function could score, with no token of the model's; ``old`` None is a batch
    that gets a single update. Floats where nothing was said must be no NaN: see :func:`filled`.
    """
    torch, _, _, split_tensor_dict = _trl()
    masks = batch[2]
    p, g, t = masks.kind.shape
    trainer, live = _trainer(options, batch)
    with torch.no_grad():
        inputs = trainer._generate_and_score_completions([{"prompt": "?"}] * (p * g))
    width = inputs["completion_ids"].shape[1]
    own = inputs["advantages"].numpy().reshape(p, g)
    if factor is not None:  # TRL takes [B, T] too
        inputs["advantages"] = inputs["advantages"][:, None] * torch.tensor(factor).reshape(p * g, t)[:, :width]
    steps = trainer.args.steps_per_generation
    count = inputs.pop("num_items_in_batch")
    rows = torch.arange(p * g)
    losses = []
    for part in split_tensor_dict(inputs | {"rows": rows}, steps):
        live["rows"] = part.pop("rows")
        losses.append(trainer._compute_loss(trainer.model, part | {"num_items_in_batch": count}))
    gradients = torch.autograd.grad(sum(losses), (live["policy"], live["entropy"]), allow_unused=True)
    policy, entropy = (np.zeros((p, g, t), np.float32) if x is None else x.numpy().reshape(p, g, t) for x in gradients)
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    return Verdict(np.array([loss.item() for loss in losses]), policy, entropy, own, metrics)


def _trainer(options, batch):
    """A trainer of these options for this batch, and its live tensors."""
    torch, config_class, trainer_class, _ = _trl()
    logprobs, rewards, masks = batch
    p, g, t = masks.kind.shape
    several_updates = {"num_iterations": 1 if logprobs.old is None else 2}
    with warnings.catch_warnings():  # TRL's defaults name an option that transformers deprecates
        warnings.simplefilter("ignore", FutureWarning)
        args = config_class(
            output_dir="unused",
            use_cpu=True,
            bf16=False,
            report_to=[],
            num_generations=g,
            per_device_train_batch_size=p * g // options.get("steps_per_generation", 1),
            **{"steps_per_generation": 1, "beta": 0.0, **several_updates, **options},
        )
    trainer = object.__new__(trainer_class)
    # What __init__ takes from args, under the names it gives.
    same = (
        "beta entropy_coef importance_sampling_level loss_type mask_truncated_completions max_completion_length"
        " multi_objective_aggregation num_generations num_iterations off_policy_mask_threshold scale_rewards"
        " top_entropy_quantile use_adaptive_entropy use_vllm vllm_importance_sampling_clip_max"
        " vllm_importance_sampling_clip_min vllm_importance_sampling_correction vllm_importance_sampling_mode"
    )
    vars(trainer).update({name: getattr(args, name) for name in same.split()})
    vars(trainer).update(
        args=args,
        epsilon_low=args.epsilon,
        epsilon_high=args.epsilon if args.epsilon_high is None else args.epsilon_high,
        current_gradient_accumulation_steps=args.gradient_accumulation_steps,
        _entropy_bonus_enabled=args.entropy_coef != 0,
        aux_loss_enabled=False,
        # One process, one reward function, text only, no tools of its own.
        accelerator=SimpleNamespace(
            device=torch.device("cpu"),
            num_processes=1,
            process_index=0,
            sync_gradients=True,
            gather=lambda x: x,
            reduce=lambda x, reduction: x,
        ),
        model=SimpleNamespace(training=True, is_gradient_checkpointing=False),
        ref_model=SimpleNamespace(),
        reward_funcs=[None],
        reward_func_names=["outcome"],
        reward_weights=torch.ones(1),
        environment_factories=None,
        environments=[],
        tools=[],
        log_multimodal=False,
        pad_to_multiple_of=None,
        _tokenizer=SimpleNamespace(pad_token_id=PAD),
        eos_token_ids=[END],
        _metrics={"train": defaultdict(list)},
        _logs=defaultdict(list, rewards=defaultdict(list), extra=defaultdict(list)),
        _pending_extra_logs=defaultdict(list),
        _pending_metrics=defaultdict(list),
    )

    lengths = np.sum(masks.kind != Kind.PAD, -1).reshape(p * g)
    spoken = np.asarray(masks.trainable).reshape(p * g, t).astype(int)
    last = np.where(masks.truncated, TOKEN, END).reshape(p * g)
    outcomes = torch.tensor(np.where(masks.valid, rewards.outcome, np.nan).astype(np.float32).reshape(p * g, 1))

    def flat(values, **kwargs):
        return torch.tensor(np.asarray(values).reshape(p * g, t), **kwargs)

    live = {
        "policy": flat(logprobs.policy, requires_grad=True),
        "entropy": flat(logprobs.entropy, requires_grad=True),
        "rows": torch.arange(p * g),
    }

    def generate(prompts):
        completions = [[TOKEN] * (n - 1) + [int(end)] for n, end in zip(lengths, last, strict=True)]
        own = [row[:n].tolist() for row, n in zip(spoken, lengths, strict=True)]
        rollout = [row[:n].tolist() for row, n in zip(flat(logprobs.rollout), lengths, strict=True)]
        return [[TOKEN]] * (p * g), completions, own, completions, rollout, {}, None, None

    def log_probs(model, input_ids, attention_mask, logits_to_keep, *, compute_entropy=False, **kwargs):
        if compute_entropy:
            rows = live["rows"]
            return live["policy"][rows, :logits_to_keep], live["entropy"][rows, :logits_to_keep], None
        fact = logprobs.reference if model is trainer.ref_model else logprobs.old
        return flat(fact)[:, :logits_to_keep], None, None

    trainer._generate = generate
    trainer._calculate_rewards = lambda *args: outcomes
    trainer._get_per_token_logps_and_entropies = log_probs
    return trainer, live


def ours(method, batch, *, factor=None) -> Verdict:
    """Our verdict on the same batch; ``factor [p g t]`` multiplies what comes out of the credit half."""
    factor = np.ones(batch[2].kind.shape, np.float32) if factor is None else factor
    loss, policy, entropy, own, metrics = jitted(_whole, method)(*jax.tree.map(jnp.asarray, (*batch, factor)))
    return Verdict(np.asarray(loss)[None], *map(np.asarray, (policy, entropy, own)), jax.tree.map(float, metrics))


def _whole(method, logprobs, rewards, masks, factor):
    credit, state, _ = method.credit(method.init(), logprobs, rewards, masks)
    credit = replace(credit, advantages=credit.advantages * factor)
    measures = method.measures(credit, masks)

    def loss_of(live):
        facts = replace(logprobs, policy=live[0], entropy=live[1])
        loss, metrics = method.loss(
            state, facts if facts.old is not None else on_policy(facts), credit, masks, measures
        )
        return loss, {name: mean.value for name, mean in metrics.items()}

    (loss, metrics), gradients = jax.value_and_grad(loss_of, has_aux=True)((logprobs.policy, logprobs.entropy))
    return loss, *gradients, credit.advantages, metrics


def filled(batch):
    """The batch with 0 where nothing was said. TRL multiplies by its mask, and NaN times 0 is NaN."""
    logprobs, rewards, masks = batch
    return *jax.tree.map(np.nan_to_num, (logprobs, rewards)), masks


def difference(verdict: Verdict, judge: Verdict) -> float:
    """The largest ``|ours - TRL's|``, of the loss over max(1, its size) and of gradients over the largest of them."""
    largest = [abs(verdict.loss - judge.loss) / max(1, abs(judge.loss))]
    gradients = np.stack([verdict.policy, verdict.entropy]), np.stack([judge.policy, judge.entropy])
    largest.append(np.abs(gradients[0] - gradients[1]).max() / max(np.abs(gradients[1]).max(), 1e-30))
    return float(max(largest))


def assert_agree(verdict: Verdict, judge: Verdict, *, times=1.0):
    """``times`` our loss and gradients are TRL's, to 1e-5 of the largest magnitude (of the loss: of 1 at least)."""
    assert_close(np.float64(verdict.loss) * times, np.float64(judge.loss), relative=1e-5, floor=1)
    assert_close(verdict.policy * times, judge.policy, relative=1e-5)
    assert_close(verdict.entropy * times, judge.entropy, relative=1e-5)


def largest_differences(seeds) -> dict[str, float]:
    """The largest :func:`difference` of every case over batches of these seeds, spreads and rewards taken in turn."""
    found = dict.fromkeys(CASES, 0.0)
    for seed in seeds:
        spread, rewards = (0.0, 0.1, 1.0)[seed % 3], ("binary", "continuous")[seed // 3 % 2]
        for name, (method, options) in CASES.items():
            invalid = 0.0 if options["loss_type"] in MEAN_OVER_ROWS else 0.3
            batch = filled(make_batch(seed, SHAPE, spread=spread, rewards=rewards, invalid=invalid))
            found[name] = max(found[name], difference(ours(method, batch), theirs(options, batch)))
    return found


if __name__ == "__main__":
    print("| Loss | Largest difference from TRL's |\n|---|---|")
    for name, largest in largest_differences(range(48)).items():
        print(f"| {name} | {largest:.1e} |")
