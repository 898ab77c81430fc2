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
@click.option("--numbers", is_flag=True, help="Its numbers alone, as the built checker reads them.")
@json_option
def prove(design: str, output: str, numbers: bool, as_json: bool) -> None:
    """Write DESIGN as a theorem that Rocq checks.

    It says that the noise keeps every budget, cap and floor, and that no other has less error than
    it over one and a gap. Nothing of noisedesign is believed: the guide on proofs says what is."""
    from noisedesign.base.atomic import write_atomically
    from noisedesign.tasks import theorem

    write = theorem.numbers if numbers else theorem.theorem
    text = write(design_in(design).design).encode()
    path = write_atomically(output, lambda file: file.write(text))
    show_path(path, {"file": str(path), "bytes": len(text)}, as_json=as_json)
    if not as_json:
        checker = f"proofs/checker/build/noisedesign-check < {path}"
        note(f"In a checkout: {checker if numbers else f'sh proofs/build.sh {path}'}")
