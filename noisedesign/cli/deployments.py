"""Designs on their way to the nodes that use them."""

from __future__ import annotations

import math

import click

import noisedesign as nd
from noisedesign.base.checks import InputError
from noisedesign.base.file_kinds import PICTURE
from noisedesign.cli._shared import (
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
)


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
