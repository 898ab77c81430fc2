"""A stranger's results, under the rules of the collection: nothing is believed but the times.

Every answer is judged from the data of its problem. Where that takes random vectors or
samples, they are drawn after the answers were handed in, from a seed that nobody knew. Noise that
spends more than the budgets is enlarged until it does not, and what that costs is added to its
objective; noise that no scale makes feasible is wrong. Runs are matched by the accuracy that they
reached, whatever they were asked for: see COLUMNS."""

from __future__ import annotations

import csv
import io
import math
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from noisedesign.base import checks as _checks, settings
from noisedesign.base.atomic import write_text
from noisedesign.base.checks import Array, InputError
from noisedesign.base.cluster import Where
from noisedesign.base.regular_files import read_regular
from noisedesign.base.shown import Shown
from noisedesign.certify.certificate import Certificate, ProvedBound
from noisedesign.families.family import ANY, Sampled, family_of
from noisedesign.files.design_arrays import NOISE
from noisedesign.files.problem_file import load_problem
from noisedesign.forms import Noise, mixing_arrays, noise_of_arrays
from noisedesign.problem.problem import Problem
from noisedesign.surveys.answers_file import CLOCKS, FIELD, Answer, Run, arrays_of_answer, read_runs
from noisedesign.surveys.collection import OPTIMUM, Instance, collection, data_sha256
from noisedesign.surveys.rows import Progress
from noisedesign.tasks.report import Record

FORMAT, VERSION = "verdict_format", 3

LEVELS = (1e-3, 1e-6, 1e-9)  # relative accuracies at which runs are matched
TIME_LIMIT_SECONDS, PENALTY = 600.0, 10.0
VERIFIED, MISSING, WRONG = "verified", "missing", "wrong"  # also if late, and charged as missing
CLAIM = 1e-6  # relative difference from a claimed objective, which its author may have rounded
ROUNDING = 1e-9  # that of two processors, for a bound that is claimed or contradicted
SCALINGS = 3  # times that noise is scaled before it counts as wrong: the first leaves rounding
SPARED = 1e-3  # share of its squared sensitivity that enlarged noise may keep spare

COLUMNS = (
    *("problem", "solver", "clock", "seconds", "status", "accuracy", "excess", "objective"),
    *("price", "charged", "bound", "gap", "confidence", "seed", "holds", "reason"),
)
"""Columns of a verdict: ``objective`` is that of the noise as it was handed in, ``price`` the share
that its rescaling adds, ``charged`` both together; ``excess`` is how far that lies above the lower
bound of the collection, or where it knows no optimum above its best objective, and ``accuracy`` the
smallest of LEVELS that covers it; ``bound`` is the certified bound of the answer's own
multipliers, and ``gap`` that of ``charged`` to the best bound known. Where these rest on random
vectors or samples, ``confidence`` is the probability that they are no better than they should be,
and ``seed`` is what repeats them. ``clock`` is one of CLOCKS."""

NUMBERS = set(COLUMNS) - {"problem", "solver", "clock", "status", "seed", "holds", "reason"}


class _WrongError(Exception):
    """Why an answer does not hold."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CheckedResults(Shown):
    """A verdict on every run of a stranger, the names of all problems that count, and the seed of
    what the judge drew at random."""

    rows: tuple[Record, ...]
    problems: tuple[str, ...]
    time_limit: float
    penalty: float
    seed: int | None = None

    @property
    def clocks(self) -> tuple[str, ...]:
        """Clocks of the seconds: times of two clocks do not compare."""
        return tuple(sorted({str(row["clock"]) for row in self.rows}))

    @property
    def ok(self) -> bool:
        return all(row["status"] != WRONG for row in self.rows)

    def _title(self) -> str:
        wrong = sum(row["status"] == WRONG for row in self.rows)
        return f"Results: {len(self.rows)} runs, {wrong} of them wrong"

    def _facts(self) -> dict[str, object]:
        counts = Counter((row["solver"], row["status"]) for row in self.rows)
        return {f"{solver}, {status}": count for (solver, status), count in counts.items()}


def check_results(
    path: str | Path,
    *,
    problems: Sequence[str] = (),
    time_limit: float = TIME_LIMIT_SECONDS,
    penalty: float = PENALTY,
    beside: Sequence[str | Path] = (),
    seed: int | None = None,
    manifest: Mapping[str, Instance] | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    timeout: float = settings.CLUSTER_SECONDS,
    progress: Progress | None = None,
) -> CheckedResults:
    """Verify a table of runs, as :mod:`noisedesign.surveys.answers_file` describes it.

    ``problems`` are patterns of names, such as "whisper/*": runs of others are refused, and those
    of these without a run are charged. ``beside`` are files of earlier verdicts, put before the new
    ones. ``seed`` repeats a judgement; by default one is drawn, so that no answer can be fitted to
    it. ``jobs``, ``cluster`` and ``timeout`` say where answers are judged, see
    :class:`noisedesign.base.cluster.Where`; a cluster is sent what the answers hold.

    Examples:
        >>> import noisedesign as nd
        >>> from noisedesign.surveys.check_results import check_results
        >>> found = nd.solve(nd.load("collection/ring-10").problem)
        >>> path = nd.save(found.design, "ring.npz")
        >>> with open("runs.csv", "w") as file:
        ...     lines = "problem,solver,seconds,answer", "collection/ring-10,ours,0.1,ring.npz"
        ...     written = file.write("\\n".join(lines))
        >>> results = check_results("runs.csv", problems=["collection/ring-10"])
        >>> results.ok, results.rows[0]["status"], results.rows[0]["excess"] < 1e-6
        (True, 'verified', True)
    """
    time_limit = _checks.real(time_limit, field="time_limit", low=0)
    penalty = _checks.real(penalty, field="penalty")
    if penalty < 1:
        raise InputError("penalty", expected="at least 1", got=f"{penalty:g}")
    where = Where(jobs=jobs, cluster=cluster, timeout=timeout)
    seed = secrets.randbits(64) if seed is None else _checks.seed(seed, field="seed")
    known = collection() if manifest is None else dict(manifest)
    chosen = _chosen(known, problems)
    runs = read_runs(path)
    aliases = {known[name].problem: name for name in chosen} | {name: name for name in chosen}
    wanted: dict[str, _Unit] = {}
    for run in runs:
        name = run.problem.removesuffix(".toml")
        if name not in aliases:
            expected = "a problem of the collection"
            expected += " that is asked for" if problems else ""
            got = f"{path}, line {run.line}: {_checks.describe(run.problem)}"
            remedy = "`noisedesign problems` lists them, as `collection/ring-10`."
            raise InputError(FIELD, expected=expected, got=got, remedy=remedy)
        if cluster is not None and run.answer is not None:
            run = replace(run, answer=run.answer.taken())
        unit = wanted.setdefault(aliases[name], (known[aliases[name]], seed, []))
        unit[-1].append(run)
    rows: list[tuple[int, Record]] = []
    tell = progress or (lambda *_: None)
    tell(0, len(wanted))
    for count, (_, found) in enumerate(where.results(_judged, wanted), start=1):
        rows += found
        tell(count, len(wanted))
    earlier = [row for file in beside for row in read_verdicts(file) if row["problem"] in chosen]
    return CheckedResults(
        rows=(*earlier, *(row for _, row in sorted(rows, key=lambda pair: pair[0]))),
        problems=tuple(chosen),
        time_limit=time_limit,
        penalty=penalty,
        seed=seed,
    )


def write_verdicts(found: CheckedResults, path: str | Path) -> Path:
    """Write the verdicts as CSV, a line a run, numbers with all their digits."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow((FORMAT, *COLUMNS))
    rows.writerows((VERSION, *(row[name] for name in COLUMNS)) for row in found.rows)
    return write_text(_checks.path(path, field="output"), text.getvalue())


def read_verdicts(path: str | Path) -> list[Record]:
    text = read_regular(_checks.path(path, field="beside"), field="beside", expected="verdicts")
    expected = f"verdicts of version {VERSION}, as check-results writes them"
    rows = []
    try:
        for line, row in enumerate(csv.DictReader(io.StringIO(text.decode("utf-8"))), start=2):
            if row.pop(FORMAT) != str(VERSION) or row.keys() != set(COLUMNS):
                raise ValueError(f"line {line}")
            numbers = {name: float(row[name]) if row[name] else None for name in NUMBERS}
            unfinished = None in (numbers["seconds"], numbers["excess"])
            if row["clock"] not in CLOCKS or (row["status"] == VERIFIED and unfinished):
                raise ValueError(f"line {line}")
            rows.append({**row, **numbers, "seed": int(row["seed"]) if row["seed"] else None})
    except (ValueError, KeyError, csv.Error) as error:
        got = f"{path}: {error}"
        raise InputError("beside", expected=expected, got=got) from error
    return rows


def _chosen(known: Mapping[str, Instance], patterns: Sequence[str]) -> list[str]:
    patterns = _checks.listed(patterns, field="problems", expected="a list of patterns of names")
    for pattern in patterns:
        if not any(fnmatchcase(name, _checks.text(pattern, field="problems")) for name in known):
            expected = "patterns of names of the collection"
            raise InputError("problems", expected=expected, got=repr(pattern))
    return [n for n in known if not patterns or any(fnmatchcase(n, p) for p in patterns)]


_Unit = tuple[Instance, int, list[Run]]  # a problem, the seed of its judge, and the runs on it


def _judged(unit: _Unit) -> list[tuple[int, Record]]:
    """Lines and verdicts of the runs on one problem."""
    instance, seed, runs = unit
    asked = any(run.answer is not None for run in runs)
    judge = _Judge(instance, seed=seed) if asked else None
    return [(run.line, _row(run, instance, judge)) for run in runs]


def _row(run: Run, instance: Instance, judge: _Judge | None) -> Record:
    blank: Record = dict.fromkeys(COLUMNS) | {"problem": instance.name, "holds": instance.holds}
    blank |= {name: getattr(run, name) for name in ("solver", "clock", "seconds")}
    blank |= {"status": MISSING, "reason": ""}
    if run.answer is None or judge is None:
        return blank | {"reason": run.reason or "no answer"}
    try:
        return blank | judge.verdict(run, run.answer)
    except (_WrongError, InputError) as error:
        return blank | {"status": WRONG, "reason": str(error)}


class _Judge:
    """The judge of the answers to one problem."""

    def __init__(self, instance: Instance, *, seed: int) -> None:
        loaded = load_problem(instance.name)
        if data_sha256(loaded) != instance.sha256:
            expected = f"the data of {instance.name} that its hash is of"
            remedy = "Another version of networkx builds another graph, or a file was changed."
            raise InputError("collection", expected=expected, got="others", remedy=remedy)
        self.instance, self.problem, self.seed = instance, loaded.problem, seed
        self.family = family_of(self.problem)
        self.program = self.family.program(self.problem)
        if isinstance(self.family, Sampled):
            self.program = self.family.afresh(self.program, seed=seed)

    def verdict(self, run: Run, answer: Answer) -> Record:
        noise, proof = self._parts(answer)
        with np.errstate(all="ignore"):
            try:
                given, found = self._charged(noise, proof)
                proved = self._proved(noise, proof)
            except (np.linalg.LinAlgError, ValueError, IndexError, KeyError) as error:
                raise _WrongError(f"arrays that do not fit the problem: {error}") from error
        charged = found.objective
        self._check_claims(run, given, charged, proved)
        # The probability with which objective and budgets hold, where vectors or samples decide.
        sure = (found.confidence, None if found.account is None else found.account.confidence)
        confidence = min((one for one in sure if one is not None), default=None)
        instance, bound = self.instance, None if proved is None else proved.value
        reference = instance.lower if instance.holds == OPTIMUM else instance.upper
        excess = charged / reference - 1
        return {
            "status": VERIFIED,
            "accuracy": min((level for level in LEVELS if excess <= level), default=None),
            "excess": excess,
            "objective": given.objective,
            "price": charged / given.objective - 1,
            "charged": charged,
            "bound": bound,
            "gap": charged / max(instance.lower, bound or 0.0) - 1,
            "confidence": confidence,
            "seed": None if confidence is None else self.seed,
            "reason": "better than the best known" if excess < -ROUNDING else "",
        }

    def _parts(self, answer: Answer) -> tuple[Noise, dict[str, Array]]:
        problem, specs = self.problem, self.family.proof
        main = "covariance" if problem.axes == "space" else "strategy"
        arrays = arrays_of_answer(answer, main=main, wanted=(*NOISE, *specs))
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise _WrongError(f"{name} has entries that are no finite numbers")
        noise = _noise(problem, arrays)
        size = self.family.sizes(problem)
        proof = {name: arrays[name] for name in specs if name in arrays}
        for name, array in proof.items():
            axes = specs[name].axes
            shape = tuple(size.get(axis) for axis in axes)
            if axes != ANY and None not in shape and array.shape != shape:
                raise _WrongError(f"{name} has shape {array.shape} instead of {shape}")
        return noise, proof

    def _charged(self, noise: Noise, proof: dict[str, Array]) -> tuple[Certificate, Certificate]:
        """The certificates of noise as it is, and once it is feasible."""
        family, specs, lower = self.family, self.family.proof, self.instance.lower
        departure = family.departure(self.program, noise, proof)
        if not departure <= settings.STRUCTURE_TOLERANCE:
            raise _WrongError(f"departs from the structure by {departure:.1e}")
        given = found = family.judge(self.program, noise, proof, bound=lower)
        if not (math.isfinite(found.objective) and found.objective > 0):
            raise _WrongError("the objective is no positive number")
        last, scale = given, 1.0
        """The last that was not feasible, and the scale of the noise from it to the one found."""
        for _ in range(SCALINGS):
            excess = found.sensitivity_squared
            if found.feasible:
                if found is given or excess >= 1 - SPARED:
                    break
                power = math.log(last.sensitivity_squared / excess) / math.log(scale)
                factor = ((1 - SPARED / 2) / excess) ** (-1 / power)
            elif 1 < excess < math.inf:
                last, scale = found, 1.0
                factor = math.sqrt(excess * (1 + 4 * settings.EPS))
            else:
                break
            # What noise is made of grows with it; multipliers do not.
            grown = {n: a if specs[n].multiplier else factor**2 * a for n, a in proof.items()}
            tried = noise.scaled(factor), grown
            other = family.judge(self.program, *tried, bound=lower)
            if found.feasible and not other.feasible:
                break
            (noise, proof), found, scale = tried, other, scale * factor
        if not found.feasible:
            names = ("sensitivity over budget", "variance over cap", "floor over variance")
            ratios = (found.sensitivity_squared, found.variance_ratio, found.floor_ratio)
            excesses = zip(names, ratios, strict=True)
            told = ", ".join(f"{name} {x:.6g}" for name, x in excesses if x is not None and x > 1)
            raise _WrongError(f"no scale makes it feasible: {told}")
        if found.lower_bound < lower:
            needed = ", ".join(n for n, spec in specs.items() if not spec.multiplier)
            raise _WrongError(f"nothing shows that it has the structure: {needed} is missing")
        if found.objective < lower * (1 - ROUNDING):
            raise _WrongError(
                f"its objective {found.objective!r} lies below the certified bound {lower!r}: one "
                "of the two is a mistake; please tell the authors of the collection"
            )
        return given, found

    def _proved(self, noise: Noise, proof: dict[str, Array]) -> ProvedBound | None:
        """The bound of the answer's own multipliers, None where it has none."""
        if not any(self.family.proof[name].multiplier for name in proof):
            return None
        found = self.family.bound(self.program, proof, noise=noise)
        if found.value > self.instance.upper * (1 + ROUNDING) and self.family.convex:
            raise _WrongError(
                f"its multipliers prove {found.value!r}, more than the {self.instance.upper!r} of "
                "a design that is known; please tell the authors of the collection"
            )
        return found

    def _check_claims(
        self, run: Run, given: Certificate, charged: float, proved: ProvedBound | None
    ) -> None:
        """Refuse claims that do not hold, but for what random vectors leave open."""
        if (said := run.objective) is not None:
            value = given.objective
            near = min(abs(said - one) / one for one in (value, charged))
            if not near <= max(CLAIM, given.uncertainty or 0.0):
                told = f"the objective is said to be {said!r} and is {value!r}, {charged!r}"
                raise _WrongError(f"{told} once it is feasible")
        if (said := run.lower_bound) is not None:
            if proved is None:
                raise _WrongError("a lower bound is claimed without multipliers")
            open_ = 0.0 if given.confidence is None else proved.rounding
            if said > proved.value * (1 + max(ROUNDING, open_)):
                told = f"a lower bound of {said!r} is claimed, and {proved.value!r} is certified"
                raise _WrongError(told)


def _noise(problem: Problem, arrays: Mapping[str, Array]) -> Noise:
    """The noise of an answer, on the axes of its problem, whose W it is."""
    nodes = None if problem.axes == "time" else int(problem.mixing.shape[0])
    if problem.axes == "space" and problem.sparse:
        arrays = {**arrays, **mixing_arrays(problem.mixing)}
    steps = None if problem.axes == "space" else problem.participation.horizon
    full = problem.axes == "space-time" and problem.joint != "kronecker"
    noise = noise_of_arrays(arrays, steps=steps, nodes=nodes, full=full, field="answer")
    if noise.axes != problem.axes:
        raise _WrongError(f"noise in {noise.axes} for a problem in {problem.axes}")
    if noise.strategy is not None and np.triu(noise.dense_strategy, 1).any():
        raise _WrongError("C has entries above its diagonal; its Cholesky-like factor has none")
    return noise
