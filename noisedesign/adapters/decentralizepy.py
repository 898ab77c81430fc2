"""decentralizepy: its training of a node with designed noise, and its sharing with the design's W.

The config of ``noisedesign export --to decentralizepy`` names both. The trainer's own training
begins its data anew at every call: here they go on where they stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from decentralizepy.sharing.Sharing import Sharing
from decentralizepy.training.Training import Training

from noisedesign.adapters.alone import clip_factors
from noisedesign.adapters.pytorch import add_to
from noisedesign.adapters.run import Run
from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise import Batches, Plan, RandomBatches, Secret, deal, noise
from noisedesign.noise.plan import OWN


class NoisyTraining(Training):
    """One step of noisy gradients a round: per example clipped, summed, noised, divided.

    Args:
        rank: as of the trainer.
        machine_id: likewise.
        mapping: likewise.
        model: likewise.
        optimizer: likewise.
        loss: likewise.
        log_dir: likewise.
        plans: as of :func:`plan_at`.
        batch_size: what sums are divided by, and as of :meth:`Run.batches`.
        secret: the file of the secret of this run, from which every node derives its own: whoever
            has it knows all noise. Without one a node whose noise is its own alone draws a new one.
        rounds: steps a call.
        full_epochs: False.
        shuffle: False.

    Raises:
        InputError: a plan of another node or number of nodes; a model with buffers, which are sent
            without noise; ``full_epochs`` or ``shuffle``, as data come in the order of the design.
    """

    def __init__(
        self,
        rank: int,
        machine_id: int,
        mapping: Any,
        model: torch.nn.Module,
        optimizer: Any,
        loss: Any,
        log_dir: str,
        *,
        plans: str,
        batch_size: int,
        secret: str = "",
        rounds: int = 1,
        full_epochs: bool = False,
        shuffle: bool = False,
    ) -> None:
        for field, value in (("full_epochs", full_epochs), ("shuffle", shuffle)):
            if value:
                remedy = "Data come round in one order, as the participation of the design says."
                got = _checks.describe(value)
                raise InputError(field, expected="False", got=got, remedy=remedy)
        batch_size = _checks.positive_int(batch_size, field="batch_size")
        rounds = _checks.positive_int(rounds, field="rounds")
        super().__init__(
            rank,
            machine_id,
            mapping,
            model,
            optimizer,
            loss,
            log_dir,
            rounds=rounds,
            full_epochs=False,
            batch_size=batch_size,
            shuffle=False,
        )
        if named := [name for name, _ in model.named_buffers()]:
            got = ", ".join([*named[:3], "..."] if len(named) > 3 else named)
            remedy = "Averages over batches are sent as they are: use GroupNorm, or none."
            raise InputError("model", expected="no buffers", got=got, remedy=remedy)
        plan = plan_at(plans, mapping.get_uid(rank, machine_id), nodes=mapping.get_n_procs())
        self.run = Run(noise(plan, **_secrets(plan, secret)))
        self.batches: Batches | RandomBatches | None = None

    def train(self, dataset: Any) -> None:
        """``rounds`` steps, each on the batch after the last one.

        Args:
            dataset: of the trainer.

        Raises:
            InputError: as :meth:`Run.batches` and :meth:`Run.add_`; another number of records.
        """
        loader = dataset.get_trainset(self.batch_size, False)
        data = loader.dataset
        if self.batches is None:
            self.batches = self.run.batches(len(data), batch_size=self.batch_size)
        if len(data) != self.batches.records:
            expected = f"{self.batches.records} records, as before"
            raise InputError("dataset", expected=expected, got=str(len(data)))
        self.model.train()
        for _ in range(self.rounds):
            records = self.batches[self.run.step].tolist()
            named = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
            sums = [torch.zeros_like(p) for p in named.values()]
            if records:  # batches that are drawn may be empty: noise is added all the same
                sums = self._sums(named, *loader.collate_fn([data[i] for i in records]))
            add_to(sums, self.run, records=records)
            for p, noisy in zip(named.values(), sums, strict=True):
                p.grad = noisy / self.batch_size
            self.optimizer.step()

    def _sums(self, named: Mapping[str, Any], inputs: Any, targets: Any) -> list[torch.Tensor]:
        """Sum the gradients of a batch, each clipped, one tensor a parameter."""

        def loss_of(parameters: Mapping[str, Any], one: Any, target: Any) -> Any:
            out = torch.func.functional_call(self.model, dict(parameters), (one.unsqueeze(0),))
            return self.loss(out, target.unsqueeze(0))

        gradient = torch.func.vmap(torch.func.grad(loss_of), (None, 0, 0), randomness="different")
        values = {name: p.detach() for name, p in named.items()}
        found = gradient(values, inputs, targets)
        factor = clip_factors(found.values(), self.run.clip)
        return [torch.tensordot(factor.to(g.dtype), g, dims=1) for g in found.values()]


class DesignedSharing(Sharing):
    """Models averaged with the design's row of W, in place of Metropolis-Hastings weights.

    Args:
        rank: as of the trainer.
        machine_id: likewise.
        *args: likewise.
        plans: as of :func:`plan_at`.
        **how: as of the trainer.

    Raises:
        InputError: as :func:`plan_at`; links of W that the trainer's graph lacks; a design of
            several gossip rounds a step.
    """

    def __init__(self, rank: int, machine_id: int, *args: Any, plans: str, **how: Any) -> None:
        super().__init__(rank, machine_id, *args, **how)
        plan = plan_at(plans, self.uid, nodes=self.mapping.get_n_procs())
        if plan.rounds > 1:
            expected = "one for one gossip round a step, as the trainer has"
            raise InputError("plans", expected=expected, got=f"{plan.rounds} rounds")
        self.weights = dict(plan.weights)
        missing = set(self.weights) - {self.uid, *self.graph.neighbors(self.uid)}
        if missing:
            expected = f"links of node {self.uid} to {sorted(missing)}, as W has them"
            raise InputError("graph", expected=expected, got="a graph without")

    def _averaging(self, peer_deques: Mapping[int, Any]) -> None:
        with torch.no_grad():
            own = self.model.state_dict()
            total = {key: self.weights.get(self.uid, 0.0) * value for key, value in own.items()}
            for peer, queue in peer_deques.items():
                sent = queue.popleft()
                for key in ("degree", "iteration", "CHANNEL"):
                    del sent[key]
                for key, value in self.deserialized_model(sent).items():
                    total[key] += self.weights.get(peer, 0.0) * value
        self.model.load_state_dict(total)
        self._post_step()
        self.communication_round += 1


def plan_at(plans: str | Path, node: int, *, nodes: int) -> Plan:
    """The plan of a node of a network.

    Args:
        plans: what the paths of the nodes' files begin with: node u has ``PLANS-u.plan``.
        node: u, zero-based.
        nodes: n, how many.

    Returns:
        The plan.

    Raises:
        InputError: no such file, or that of another node or network.
    """
    start = _checks.path(plans, field="plans")
    plan = Plan.load(start.with_name(f"{start.name}-{node}.plan"))
    if plan.node != node or plan.nodes not in (None, nodes):
        got = f"that of node {plan.node} of {plan.nodes or 'any number'}"
        raise InputError("plans", expected=f"the file of node {node} of {nodes}", got=got)
    return plan


def _secrets(plan: Plan, path: str) -> dict[str, Any]:
    """Return what a node draws from, derived from the secret of the run."""
    if not path:
        if plan.sources <= {OWN}:
            return {}
        expected = "the file of the run's secret, from which nodes derive what they share"
        remedy = "Make one for every run: noisedesign.noise.Secret.new().save(path)."
        raise InputError("secret", expected=expected, got="none", remedy=remedy)
    dealer = Secret.load(path)
    own = dealer.child(f"own noise of node {plan.node}", digest=plan.digest)
    batches = dealer.child(f"batches of node {plan.node}", digest=plan.digest)
    random = plan.claim.rule is not None and plan.claim.rule.random is not None
    return {
        "secret": own if OWN in plan.sources else None,
        "seeds": deal([plan], dealer)[plan.node],
        "batch_secret": batches if random and OWN not in plan.sources else None,
    }
