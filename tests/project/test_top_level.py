"""What lies beside the package: nothing that a run has made."""

from tests.support import ROOT

MADE = (".npz", ".plan", ".secret", ".csv", ".html")


def test_no_run_leaves_its_files_here() -> None:
    assert [path.name for path in ROOT.iterdir() if path.suffix in MADE] == []
