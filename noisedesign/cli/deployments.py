"""Designs on their way to the nodes that use them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import PICTURE
from noisedesign.cli._shared import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    NewFile,
    Writing,
    attributes,
    counter,
    design_argument,
    design_in,
    folder_option,
    json_option,
    note,
    output_option,
    say,
    show,
    transient,
)

if TYPE_CHECKING:
    from noisedesign.tasks.soak import Progress


@click.command(cls=Writing)
@design_argument
@folder_option
@click.option("--batch-size", type=int, metavar="B", help="What trainers divide sums by, if any.")
@json_option
def deploy(design: str, output: str, batch_size: int | None, as_json: bool) -> None:
    """Write what each node of DESIGN must know, a file a node."""
    from noisedesign.design.design import design_of
    from noisedesign.tasks.deploy import deploy as run

    stored = design_in(design)
    endless = isinstance(stored.design, nd.UnboundedDesign)
    found = stored.design if endless else design_of(stored)
    made = run(found, output, batch_size=batch_size)
    records = [
        {
            "node": one.plan.name,
            "file": str(one.path),
            "neighbours": max(len(one.plan.weights) - 1, 0),
            "seeds": sum(stream.source == "shared" for stream in one.plan.streams),
            "steps": "unbounded" if one.plan.unbounded else one.plan.horizon,
            "clip": one.plan.claim.clip,
        }
        for one in made
    ]
    show(records, as_json=as_json)
    if not as_json:
        claim = made[0].plan.claim
        sure = claim.confidence
        held = "" if sure is None else f", with confidence 1 - {1 - sure:.2g}"
        say(
            f"({claim.epsilon:g}, {claim.delta:g})-DP for {claim.adjacency} adjacency and clip "
            f"{claim.clip:g}, {claim.participation}{held}. No file holds a secret."
        )
        random = claim.rule is not None and claim.rule.random is not None
        if random:
            say(
                "That is where every node draws in secret who takes part when: batches are those "
                "of noise(...).batches(records), and sums are divided by their expected_size. They "
                "are a secret of one run, as its noise is; a loader that is not random has another "
                "privacy."
            )
        mu = None if endless or found.noise.space is None else nd.privacy.mu_to_holders(found)
        if mu is not None and claim.delta is not None:
            say(_against_holders(mu, claim.delta))
            if random:
                say("Against those that hold seeds nothing of what is drawn is counted.")


def _against_holders(mu: float, delta: float) -> str:
    if not math.isfinite(mu):
        return (
            "Some node has nothing to hide from a neighbour that knows their seeds but what these "
            "add: it is not protected from that one. Design with structure.known_seeds."
        )
    epsilon = nd.privacy.epsilon_of(mu=mu, delta=delta)
    return (
        "That is against those who hold no seed of these nodes. Against one node of the design, "
        f"which knows its own seeds, the others have ({epsilon:.3g}, "
        f"{delta:g})-DP; designs with structure.known_seeds keep theirs."
    )


@click.command(cls=Writing)
@click.argument("folder", type=click.Path(file_okay=False))
@click.option("--data", required=True, metavar="FILE.npz", help="Arrays features and labels.")
@click.option("--step-size", default=1.0, show_default=True, help="eta.")
@click.option("--seconds", default=120.0, show_default=True, help="How long a node waits.")
@output_option(NewFile(PICTURE), "Picture of the losses.")
@json_option
def rehearse(
    folder: str, data: str, step_size: float, seconds: float, output: str | None, as_json: bool
) -> None:
    """Train with the files of `deploy`, a process a node.

    Interrupted, it goes on where it was when it is started again."""
    from noisedesign.files.picture_file import write_figure
    from noisedesign.tasks import deploy as run

    if step_size <= 0 or seconds <= 0:
        field = "step-size" if step_size <= 0 else "seconds"
        raise InputError(field, expected="a number > 0", got=f"{min(step_size, seconds):g}")
    found = run.rehearse(
        folder, data, step_size=step_size, seconds=seconds, progress=counter("rehearsal", "steps")
    )
    steps, nodes = found.losses.shape
    told = attributes(found, ["loss", "accuracy", "epsilon", "delta"])
    show({"nodes": nodes, "steps": steps} | told, as_json=as_json)
    if output is not None:
        write_figure(run.figure_of(found), output)
        note(output)


@click.command(cls=Writing)
@design_argument
@folder_option
@click.option("--data", metavar="FILE.npz", help="Arrays features and labels [made ones].")
@click.option("--minutes", default=30.0, show_default=True, help="When it stops, at the latest.")
@click.option("--runs", default=1000, show_default=True, help="Most runs, one after another.")
@click.option(
    "--kill-every", default=10, show_default=True, help="Steps between two kills; 0: none."
)
@click.option("--gone", metavar="NODE", help="Leaves for good at half of every run.")
@click.option("--step-size", default=1.0, show_default=True, help="eta.")
@click.option("--seconds", default=120.0, show_default=True, help="How long a node waits.")
@json_option
def soak(
    design: str,
    output: str,
    data: str | None,
    minutes: float,
    runs: int,
    kill_every: int,
    gone: str | None,
    step_size: float,
    seconds: float,
    as_json: bool,
) -> int:
    """Train with DESIGN for minutes, with kills and restarts.

    A process a node, with TLS. Checks memory, transcripts, and models against the same training
    computed here."""
    from importlib.util import find_spec

    from noisedesign.base import atomic
    from noisedesign.base.tables import to_json
    from noisedesign.design.design import design_of
    from noisedesign.files.picture_file import write_figure
    from noisedesign.tasks import soak as task

    stored = design_of(design_in(design))
    found = task.soak(
        stored,
        output,
        data=data,
        minutes=minutes,
        kill_every=kill_every,
        gone=gone,
        runs=runs,
        step_size=step_size,
        seconds=seconds,
        progress=_minutes(),
    )
    if data is None:
        note("Records were made, as no --data was given.")
    record = task.record_of(found)
    atomic.write_text(f"{output}/report.json", to_json(record))
    if find_spec("matplotlib"):
        note(str(write_figure(task.figure_of(found), f"{output}/report.svg")))
    show(record if as_json else record["runs"], as_json=as_json)
    if not as_json:
        if found.dropout is not None:
            lost, claim = found.dropout, stored.claim
            holds = "holds" if task.still_holds(lost, stored) else "does not hold for them"
            say(
                f"Without {lost['gone']}: the variance of the average is "
                f"{lost['average_ratio']:.3g} times what it was; those left have mu "
                f"{lost['mu']:.4g} of {claim.mu:.4g}, so that epsilon {claim.epsilon:g} {holds}."
            )
        say(
            f"All runs together: epsilon {found.runs[-1].composed:.4g} at delta {found.delta:g}. "
            "Losses are not private."
        )
        say(found.outcome)
    if found.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if found.problems else 0


def _minutes() -> Callable[[Progress], None]:
    """Tell where a soak is, by a line that changes at a terminal, or one a minute elsewhere."""
    told = -1

    def tell(now: Progress) -> None:
        nonlocal told
        if sys.stderr.isatty():
            transient(str(now))
        elif int(now.minutes) > told:
            told = int(now.minutes)
            note(str(now))

    return tell


@click.command(name="audit-run")
@click.argument("transcript", type=click.Path())
@click.option("--plan", required=True, metavar="FILE", help="The node's file, or a design.")
@click.option("--secrets", metavar="FOLDER", help="Its secrets, as its own folder has them.")
@click.option("--data", metavar="FILE.npz", help="Its examples.")
@click.option("--certificate", metavar="FILE.pem", help="That others know it by.")
@click.option("--neighbour", multiple=True, metavar="FILE", help="Transcript of a neighbour.")
@json_option
def audit_run(
    transcript: str,
    plan: str,
    secrets: str | None,
    data: str | None,
    certificate: str | None,
    neighbour: tuple[str, ...],
    as_json: bool,
) -> int:
    """Check by a TRANSCRIPT that a node drew what was designed."""
    from noisedesign.tasks import audit_run as task

    found = task.audit(
        transcript,
        plan=task.plan_in(plan, transcript),
        secrets=secrets,
        data=data,
        certificate=certificate,
        neighbours=neighbour,
    )
    checks = [attributes(one, ["check", "result", "why"]) for one in found.checks]
    told = {"node": found.name, "steps": found.steps, "checks": checks}
    show(told | {"verdicts": list(found.verdicts)} if as_json else checks, as_json=as_json)
    if not as_json:
        say(found.outcome)
    return 0 if found.holds else EXIT_FAILED
