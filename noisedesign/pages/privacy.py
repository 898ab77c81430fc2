"""The promise of a design, what every kind of observer learns, and noise against baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from noisedesign.base.checks import InputError
from noisedesign.design.design import Design
from noisedesign.families.family import Remarked, family_of
from noisedesign.pages import pictures, plot
from noisedesign.pages.content import Facts, Part, Pictures, Section, Table, Text
from noisedesign.pages.noise import seeds_of
from noisedesign.privacy.amplification import Amplified
from noisedesign.privacy.exposure import epsilon_at
from noisedesign.privacy.runs import FIXED, FIXED_RESPONSES
from noisedesign.privacy.target import PrivacyTarget
from noisedesign.privacy.views import Observer, ldp
from noisedesign.problem.calibration import Calibration, calibration_of
from noisedesign.problem.problem import theorem_of
from noisedesign.tasks.account.table import (
    ModelRow,
    Setting,
    busiest_node,
    every_model,
    observer_words,
    setting_of,
)
from noisedesign.tasks.dropout import ratio_to_holders
from noisedesign.tasks.report import account_of, design_record, insider_note, is_random, scale_words

MOST_NODES, MOST_PAIRS = 300, 6000  # nodes, and times steps: seconds

MODELS = {
    "ldp": "eavesdropper on all messages",
    "central": "whoever gets the mean of all models",
    "pndp": "honest-but-curious node",
    "pndp-counted": "the same, its own noise counted as unknown",
    "secure-sum": "honest-but-curious node, secure aggregation",
    "insider": "node that reads all messages",
    "secldp": "node that reads all messages, with its seeds",
    "shared-seed": "node, if one seed makes all noise",
}

KNOWN_STEPS = "μ if its steps were known"

NOT_COVERED = (
    "a record that takes part more often, or in other steps, than is said above; steps after the "
    "last one; losses, accuracies or hyperparameters that are published besides; two runs on the "
    "same data, which add up; noise whose seeds are guessed, reused or known to others"
)


def privacy_section(design: Design, made: Pictures) -> Section:
    if design.trust == "central":
        text = (
            "Nothing but the released average is protected: this noise is what a trusted server "
            "adds. Messages of nodes are read by the server, and by whoever else sees them."
        )
        parts: list[Part] = [Text(text, "warning")]
    else:
        parts = promise_of(design.problem.privacy, calibration_of(design.problem))
        if is_random(design.problem) and (account := account_of(design)) is not None:
            parts.append(_at_random(design, account))
        parts.append(Text(insider_note(design)))
    if not design.certificate.feasible and design.trust != "central":
        parts.append(Text("This noise does not keep its budgets: nothing is promised.", "warning"))
    try:
        parts += _account(design, made)
    except InputError as error:
        parts.append(Text(f"No account of this design: {error}", "warning"))
    parts += prices_of(design)
    parts.append(Text(f"Not covered by any number here: {NOT_COVERED}."))
    return Section("privacy", "Privacy under every threat model", parts)


def promise_of(target: PrivacyTarget | None, found: Calibration) -> list[Part]:
    """The privacy target of a design and the noise that meets it, or that there is none."""
    if target is None:
        text = (
            "The design has no privacy target. Numbers below are for its noise as it is, for "
            "gradients that are clipped to norm 1; state a [privacy] table, and the noise is "
            "scaled to it."
        )
        return [Text(text, "warning")]
    scheme = found.participation
    facts = {
        "promise": f"({target.epsilon:g}, {target.delta:g})-differential privacy of one record",
        "neighbouring data": f"{target.adjacency}: a step changes by up to "
        f"{found.step_sensitivity:g}",
        "μ (Gaussian differential privacy)": found.mu,
        "conversion": found.conversion,
        "clip": found.clip,
        "noise multiplier (σ over the clip)": found.noise_multiplier,
        "noise stddev σ (not squared)": found.noise_stddev,
        "steps": found.horizon,
        "participation": None
        if scheme is None
        else f"{scheme}, at most {scheme.largest_size} of {scheme.horizon} steps",
    }
    return [Facts(facts)]


def eavesdropped(mu: float | None, caption: str) -> list[Part]:
    """The rows of an eavesdropper and of one seed, where no account by observer is made."""
    rows: list[list[Any]] = [
        [f"{MODELS['ldp']} (ldp)", mu, "everything that is sent, and no noise"],
        [f"{MODELS['shared-seed']} (shared-seed)", math.inf, "no ε holds"],
    ]
    table = Table(caption, ["threat model", "μ", "which"], rows, frozenset({1}))
    return [table, Text(f"Not covered by any number here: {NOT_COVERED}.")]


def _at_random(design: Design, account: Amplified) -> Facts:
    """Facts of random participation: what it is worth, and by which account."""
    certificate, sure = design.certificate, account.confidence
    facts = {
        "epsilon, upper bound": account.epsilon,
        "account": account.which,
        "confidence": "deterministic" if sure is None else f"{sure!r}, from samples",
        "epsilon, estimated": account.epsilon_estimate,
        KNOWN_STEPS: design.fixed_mu,
        "bound on designs for such batches": certificate.fixed_lower_bound,
        "objective over that bound": certificate.relative_to_fixed,
    }
    return Facts(facts)


def _account(design: Design, made: Pictures) -> list[Part]:
    parts: list[Part] = []
    unknown = design.problem.use is None
    setting = setting_of(design, steps=1 if unknown else None)
    if unknown:
        text = "Nobody said for how many steps this noise is used: numbers are for one step."
        parts.append(Text(text, "warning"))
    mixing = setting.algorithm.mixing
    pairs = len(mixing) * setting.participation.horizon
    bounded = len(mixing) > MOST_NODES or pairs > MOST_PAIRS
    node = busiest_node(mixing)
    rows = every_model(setting, node=node, bounded=bounded)
    family = family_of(design.problem)
    if isinstance(family, Remarked) and (chosen := family.foremost(design.problem, design.noise)):
        responses = FIXED_RESPONSES if theorem_of(design.problem) == FIXED else setting.responses
        parts.append(_chosen(replace(setting, responses=responses), chosen))
    if design.trust == "central":
        who = "A server averages what it is sent; the observer, where it is a node, is one of many."
    elif len(mixing) == 1 or not setting.graph:
        who = "The design has no network, so no observer is anybody's neighbour."
    else:
        name = setting.algorithm.nodes[node]
        who = f"The observer, where it is a node, is {name}, which has the most neighbours."
    text = f"{who} Each row is about the node it learns most about; {scale_words(setting)}."
    parts.append(Text(text))
    if bounded:
        text = (
            "In a network of this size observers who see a part of the messages are not accounted "
            "for here: theirs are upper bounds. `noisedesign account` has the numbers."
        )
        parts.append(Text(text))
    rows = _with_seeds(design, rows, setting)
    drawn = setting.participation.random
    parts.append(_rows_of(rows, drawn=drawn))
    calibration = calibration_of(design.problem)
    target, symbol = (calibration.epsilon, "ε") if drawn else (calibration.mu, "μ")
    losses = {MODELS[row.model]: row.loss for row in rows}
    if numbered := {name: loss for name, loss in losses.items() if loss is not None}:
        caption = (
            f"{symbol} before every kind of observer; ∞: gradients are seen without unknown noise."
        )
        title, draw = "Privacy loss by observer", pictures.draw_exposures
        height = 0.34 * len(numbered) + 1.5
        parts.append(made.add(title, caption, draw, numbered, target, symbol, height=height))
    if open_to := [MODELS[row.model] for row in rows if _infinite(row)]:
        parts.append(Text(f"Not protected from: {'; '.join(open_to)}.", "warning"))
    return parts + _weaker(rows, target, symbol)


def _weaker(rows: Sequence[ModelRow], target: float | None, symbol: str) -> list[Part]:
    """Warn of those who learn more than was promised, besides those who learn everything."""
    reader = next((row.loss for row in rows if row.model == "ldp"), None)
    promised = target if target is not None else reader
    if promised is None or math.isinf(promised):
        return []
    found = []
    for row in rows:
        if row.mu is None or row.epsilon is None or row.loss is None:
            continue
        if promised * (1 + 1e-6) < row.loss < math.inf:
            mu = "" if row.random else f"μ {row.mu:.3g}, "
            found.append(f"{MODELS[row.model]} ({mu}ε {row.epsilon:.3g})")
    if not found:
        return []
    what = "the target" if target is not None else "an eavesdropper's"
    text = f"More than {what} {symbol} of {promised:.3g}: {'; '.join(found)}."
    return [Text(text, "warning")]


def _chosen(setting: Setting, observers: Sequence[Observer]) -> Table:
    rows = []
    for observer in observers:
        worst = max(setting.before(observer, worst=True), key=lambda exposure: exposure.loss)
        who = observer_words(observer, setting.algorithm.nodes)
        rows.append([who, worst.node, worst.distance, worst.mu, worst.epsilon, worst.which])
    mu = KNOWN_STEPS if setting.participation.random else "μ"
    columns = ["observer", "worst node", "hops", mu, "ε", "which number"]
    return Table("What the observers learn that it was designed against", columns, rows)


def _with_seeds(design: Design, rows: Sequence[ModelRow], setting: Setting) -> list[ModelRow]:
    """The rows, that of a node with its seeds for the seeds the noise is made of, where it is."""
    plan = seeds_of(design)
    if plan is None or all(len(seed.members) == 1 for seed in plan.seeds):
        return list(rows)
    reader = next(row for row in rows if row.model == "ldp")
    dealt = "for noise that is dealt; where nodes draw it from seeds, see the row with its seeds"
    found = []
    for row in rows:
        told = row
        if row.model == "secldp":
            told = _of_holders(design, row, reader, setting)
        elif row.model not in ("ldp", "central", "shared-seed"):  # for these it does not matter
            told = replace(row, note="; ".join(filter(None, [row.note, dealt])))
        found.append(told)
    return found


def _of_holders(design: Design, row: ModelRow, reader: ModelRow, setting: Setting) -> ModelRow:
    names = design.problem.nodes
    nobody = replace(row, victim=None, distance=None, which=None, sensitivity_squared=None)
    who, told = "any node: all messages, own seeds", "not computed in so large a network"
    if len(names) > MOST_NODES:
        return replace(nobody, observer=who, mu=None, epsilon=None, note=told)
    worst = ratio_to_holders(design)
    assert worst is not None
    assert reader.mu is not None
    ratio, node = worst
    mu = reader.mu * ratio
    who, told = f"node {names[node]}: all messages, own seeds", "the node whose seeds tell most"
    found = replace(nobody, observer=who, mu=mu, epsilon=epsilon_at(mu, row.delta), note=told)
    if not setting.participation.random or math.isinf(mu):
        return found
    # What is seen is the same under as much less noise.
    quieter = replace(setting, noise_multiplier=setting.noise_multiplier / ratio)
    worst_of = max(quieter.before(ldp(), worst=True), key=lambda exposure: exposure.loss)
    drawn = ("which", "epsilon", "confidence", "epsilon_estimate")
    return replace(found, **{name: getattr(worst_of, name) for name in drawn})


def _infinite(row: ModelRow) -> bool:
    return row.mu is not None and math.isinf(row.mu)


def _rows_of(rows: Sequence[ModelRow], *, drawn: bool) -> Table:
    values = []
    for row in rows:
        sure = "" if row.confidence is None else f"at confidence 1 - {1 - row.confidence:.2g}"
        if sure and row.epsilon_estimate is not None:
            sure += f", estimate {row.epsilon_estimate:.4g}"
        cells = [
            f"{MODELS[row.model]} ({row.model})",
            row.observer,
            row.victim,
            row.distance,
            row.mu,
            "none holds" if _infinite(row) else row.epsilon,
            "; ".join(filter(None, [row.which, sure, row.note])),
        ]
        values.append(cells)
    mu = KNOWN_STEPS if drawn else "μ"
    columns = ["threat model", "observer", "worst node", "hops", mu, "ε", "which number"]
    bad = frozenset(place for place, row in enumerate(rows) if _infinite(row) or row.mu is None)
    return Table("What every observer learns", columns, values, bad)


def prices_of(design: Design) -> list[Part]:
    """A table of the dearest budgets, or why there is none."""
    prices = sorted(design.prices.items(), key=lambda item: -item[1])
    if not prices:
        return [Text(f"No prices of budgets: {design.unpriced}")]
    what = "node" if design.axes != "time" else "pattern of steps"
    text = (
        f"The price of a {what} says by what percentage the least error falls if its squared "
        "budget is raised by 1 %; what has a price of 0 may have a stricter budget for nothing."
    )
    if len(prices) == 1 and design.axes == "time":
        text = (
            "All records have one squared budget, which says how large noise is: raised by 1 % it "
            "lowers the error by 1 %. What stands below uses it up."
        )
    rows = [[name if len(name) < 60 else f"{name[:59]}…", price] for name, price in prices]
    return [Text(text), Table("What budgets cost, the dearest first", [what, "price"], rows)]


# --- against others -------------------------------------------------------------------------------


def baselines_section(
    design: Design, others: Sequence[Design], reason: str, made: Pictures
) -> Section:
    title = "Noise against baselines"
    facts = Facts({"over independent noise at equal privacy": design.relative_to_ldp})
    if not others:
        return Section("baselines", title, [facts, Text(f"No baselines: {reason}")])
    designs = [*others, design]
    caption = (
        "Error of the noise after mixing, over that of independent noise that hides every message "
        "equally well. Nothing that protects every message is below the lower bound."
    )
    columns = {"objective": "objective", "relative_to_ldp": "over independent"}
    if design.problem.privacy is not None:
        columns["error_at_target"] = "error at the target"
    columns["protects"] = "protects"
    records = [design_record(one) for one in designs]
    rows = [
        [plot.method_name(one), *(record[key] for key in columns)]
        for one, record in zip(designs, records, strict=True)
    ]
    table = Table("The same privacy by other noise", ["mechanism", *columns.values()], rows)
    name, height = "Noise of several mechanisms", 0.32 * len(designs) + 1.9
    picture = made.add(name, caption, plot.draw_comparison, designs, height=height)
    return Section("baselines", title, [picture, table])
