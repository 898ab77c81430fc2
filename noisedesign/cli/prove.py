"""The command ``prove``: a design in, a theorem for a proof assistant out."""

from __future__ import annotations

import click

from noisedesign.cli._shared import (
    NewFile,
    Writing,
    design_argument,
    design_in,
    json_option,
    note,
    output_option,
    show_path,
)


@click.command(cls=Writing)
@design_argument
@output_option(NewFile(), "File of the theorem, .v.", required=True)
@json_option
def prove(design: str, output: str, as_json: bool) -> None:
    """Write DESIGN as a theorem that Rocq checks.

    It says that the noise keeps every budget, cap and floor, and that no other has less error than
    it over one and a gap. Nothing of noisedesign is believed: the guide on proofs says what is."""
    from noisedesign.base.atomic import write_atomically
    from noisedesign.tasks.theorem import theorem

    text = theorem(design_in(design).design).encode()
    path = write_atomically(output, lambda file: file.write(text))
    show_path(path, {"file": str(path), "bytes": len(text)}, as_json=as_json)
    if not as_json:
        note(f"In a checkout: sh proofs/build.sh {path}")
