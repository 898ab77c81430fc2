"""Flower: a client mod that clips a client's update, adds the noise of its node, and tells the
server whose noise is meant to cancel with it.

It protects clients, who take part in the rounds they answer. The noise of a round depends on the
secrets and the round alone, so clients keep nothing between rounds but the record of what they
drew. Noise of shared seeds cancels in the average only with equal weights, ``num-examples``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from noisedesign.adapters.run import Run
from noisedesign.adapters.update import clip_whole, difference
from noisedesign.base import checks as _checks
from noisedesign.base.checks import InputError
from noisedesign.noise.source import NodeNoise

RECORD = "noisedesign"  # name of the record of a reply that says which node's noise is in it
ROUND = "server-round"


class DesignedNoise:
    """A mod for replies to ``train``: the model that came, plus the clipped update, plus noise. Put
    it first of the mods, so that nothing touches the reply after it.

    Of a reply only the model and ``public`` metrics are left, and of replies to other messages,
    such as ``evaluate``, those metrics alone: no noise hides the rest. What is refused goes to the
    server as an error in place of a reply.

    Args:
        noise: of this client's node, or a function of its context that makes it: with
            ``resume=True`` but for the first time, as clients are made anew every round.
        clip: the Euclidean norm of an update, over all arrays; must be the design's.
        public: metrics that need no protection, such as the weight of the average.

    Examples:
        >>> import noisedesign as nd
        >>> from flwr.clientapp import ClientApp
        >>> from noisedesign.adapters.flower import DesignedNoise
        >>> from noisedesign.noise import noise
        >>> target = nd.PrivacyTarget(epsilon=1.0, clip=0.5)
        >>> scheme = nd.participation.single(2)
        >>> problem = nd.TimeProblem.prefix(participation=scheme, privacy=target)
        >>> source = noise(nd.solve(problem).design, node=0, record=False)
        >>> app = ClientApp(mods=[DesignedNoise(source, clip=0.5)])
        >>> callable(app)
        True
    """

    def __init__(
        self,
        noise: NodeNoise | Callable[[Context], NodeNoise],
        *,
        clip: float,
        public: Sequence[str] = ("num-examples",),
    ) -> None:
        self._noise, self._clip, self._public = noise, clip, tuple(public)

    def __call__(self, msg: Message, ctxt: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message, as Flower calls its mods."""
        if msg.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
            reply = call_next(msg, ctxt)
            if not reply.has_error():
                reply.content = self._metrics(reply.content)
            return reply
        try:
            made = self._noise if isinstance(self._noise, NodeNoise) else self._noise(ctxt)
            run = Run(made, clip=self._clip, chooser="the server")
            run.step = _step(msg.content)
            run.attend([made.plan.node])
            reply = call_next(msg, ctxt)
            if not reply.has_error():
                reply.content = self._protected(msg.content, reply.content, run)
            return reply
        except InputError as error:
            return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, f"{error}"), reply_to=msg)

    def _protected(self, came: RecordDict, leaves: RecordDict, run: Run) -> RecordDict:
        _, received = _model(came, "message")
        name, trained = _model(leaves, "reply")
        if list(received) != list(trained):
            raise InputError("reply", expected="the arrays of the message", got="others")
        before = [array.numpy() for array in received.values()]
        update = [
            difference(f"reply[{name!r}]", array.numpy(), old)
            for (name, array), old in zip(trained.items(), before, strict=True)
        ]
        clip_whole(update, run.clip)
        step = run.step
        run.add_(update, records=[run.noise.plan.node])
        model = ArrayRecord(
            {key: Array(u + old) for key, u, old in zip(trained, update, before, strict=True)}
        )
        plan = run.noise.plan
        partners = {u for stream in plan.streams for u in stream.holders} - {plan.node}
        said = {
            "digest": plan.digest,
            "node": plan.node,
            "partners": sorted(partners),
            "step": step,
            "epsilon": cast(float, run.noise.claim.epsilon),
            "delta": cast(float, run.noise.claim.delta),
        }
        content = self._metrics(leaves)
        content[name], content[RECORD] = model, ConfigRecord(said)
        return content

    def _metrics(self, leaves: RecordDict) -> RecordDict:
        """The public ones of what leaves, and nothing else of it."""
        return RecordDict(
            {
                key: MetricRecord({k: value for k, value in metrics.items() if k in self._public})
                for key, metrics in leaves.metric_records.items()
            }
        )


def dropout_metrics(replies: list[RecordDict], weighted_by_key: str) -> MetricRecord:
    """Tell whose noise is in a round, and whose is missing, as ``train_metrics_aggr_fn`` of a
    strategy.

    Args:
        replies: of the clients that answered.
        weighted_by_key: the metric that the average is weighted by.

    Returns:
        The strategy's own average of metrics, ``epsilon``, ``noise-answered``, the nodes whose
        noise is in this round, and ``noise-missing``, their partners that did not answer, so that
        the noise they share does not cancel.

    Raises:
        InputError: a reply without the mod; two of one node, of other designs or of other steps.

    Examples:
        >>> from flwr.app import ConfigRecord, MetricRecord, RecordDict
        >>> from noisedesign.adapters.flower import dropout_metrics
        >>> said = {"digest": "d", "node": 0, "partners": [1, 2], "step": 0, "epsilon": 1.0}
        >>> metrics = MetricRecord({"num-examples": 5, "loss": 0.25})
        >>> reply = RecordDict({"noisedesign": ConfigRecord(said), "metrics": metrics})
        >>> found = dropout_metrics([reply], "num-examples")
        >>> found["noise-answered"], found["noise-missing"], found["loss"]
        ([0], [1, 2], 0.25)
    """
    said: list[ConfigRecord] = []
    for reply in replies:
        if RECORD not in reply.config_records:
            got, remedy = "a reply without noise", "Give every ClientApp the mod DesignedNoise."
            raise InputError("replies", expected="noise in each", got=got, remedy=remedy)
        said.append(reply.config_records[RECORD])
    for key in ("digest", "step"):
        if len(found := {str(one[key]) for one in said}) > 1:
            raise InputError(f"replies.{key}", expected="one for all", got=", ".join(sorted(found)))
    nodes = [cast(int, one["node"]) for one in said]
    if len(set(nodes)) < len(nodes):
        twice = next(u for u in nodes if nodes.count(u) > 1)
        expected = "a node for every client"
        raise InputError("replies.node", expected=expected, got=f"node {twice} twice")
    partners = {u for one in said for u in cast("list[int]", one["partners"])}
    metrics = aggregate_metricrecords(replies, weighted_by_key)
    metrics["noise-answered"] = sorted(nodes)
    metrics["noise-missing"] = sorted(partners.difference(nodes))
    metrics["epsilon"] = cast(float, said[0]["epsilon"])
    return metrics


def _step(content: RecordDict) -> int:
    """The zero-based step, from the round that the server says: 1, 2, ..."""
    said = [record[ROUND] for record in content.config_records.values() if ROUND in record]
    if len(said) != 1:
        remedy = "Flower's strategies send it; another one has to."
        got = "none" if not said else "several"
        raise InputError(ROUND, expected="one, in a ConfigRecord", got=got, remedy=remedy)
    return _checks.positive_int(said[0], field=ROUND) - 1


def _model(content: RecordDict, field: str) -> tuple[str, ArrayRecord]:
    if len(content.array_records) != 1:
        got = f"{len(content.array_records)}"
        raise InputError(field, expected="one ArrayRecord, the model", got=got)
    ((name, model),) = content.array_records.items()
    return name, model
