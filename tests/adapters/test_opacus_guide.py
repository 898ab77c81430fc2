"""The guide to Opacus: its script, killed on the way, and how few lines it takes."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from tests.support.pages import examples
from tests.support.scripts import (
    block,
    check_a_start_without_a_plan,
    check_it_goes_on,
    run_script,
    sides,
)
from tests.support.trainer_rows import trainer_row
from tests.support.trainers import a9a

torch = pytest.importorskip("torch", reason="needs the package torch")
pytest.importorskip("opacus", reason="needs the package opacus")

PAGE = "docs/guides/opacus.md"


def test_a_script_of_opacus_takes_ten_more_lines_at_most() -> None:
    """The script before the change is one of Opacus alone; the one after it survives a kill."""
    before, after, added = sides(block(PAGE, "diff"))
    assert len(added) <= 10
    assert "noisedesign" not in before
    assert "PrivacyEngine()" in before
    assert "PrivacyEngine" not in after


def test_the_script_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a9a(10)  # or skipped
    before, after, _ = sides(block(PAGE, "diff"))
    monkeypatch.chdir(tmp_path)
    exec(examples(PAGE), {})  # the plan
    (tmp_path / "stock").mkdir()
    run_script(before, tmp_path / "stock")
    paths = check_it_goes_on(after, tmp_path)
    models = [torch.load(path, weights_only=False)["module_state_dict"] for path in paths]
    for key, numbers in models[0].items():
        assert torch.equal(numbers, models[1][key])


def test_the_script_begins_after_a_start_without_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a9a(10)  # or skipped
    monkeypatch.chdir(tmp_path)
    exec(examples(PAGE), {})  # the plan
    check_a_start_without_a_plan(sides(block(PAGE, "diff"))[1], tmp_path)


def test_what_a_step_costs_beside_one_of_opacus(tmp_path: Path) -> None:
    from benchmarks.opacus import ratio

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    found = ratio(width=64, batch=512, mode="hooks", rounds=3, folder=tmp_path)
    assert found["ratio"] > 0
    trainer_row(
        "Opacus",
        packages=("opacus", "torch"),
        works=[
            "hooks, functorch and ghost clipping, wrapped or not",
            "BatchMemoryManager",
            "random batches",
            "checkpoints, kill -9",
        ],
        refuses=[
            "Opacus' accountants and schedulers",
            "Poisson sampling",
            "per-layer and adaptive clipping",
            "several workers",
        ],
        cost=f"{found['ratio']:.2f} of a step of Opacus ({found['parameters']:,} parameters, "
        f"batch {found['batch']})",
    )


def test_the_number_of_unclipped_gradients_in_a_column() -> None:
    """What Opacus itself makes of losses in a column, for the sentence of the guide."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    from tests.adapters.torch_networks import CLIP, by_hand, network

    warnings.filterwarnings("ignore")
    x, y = (torch.from_numpy(a[:500]) for a in a9a())
    module = network()
    model, _, criterion, _ = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
        criterion=torch.nn.BCEWithLogitsLoss(),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=500),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        poisson_sampling=False,
        grad_sample_mode="ghost",
    )
    criterion(model(x), y[:, None]).backward()
    norm = float(torch.cat([p.grad.flatten() for p in module.parameters()]).norm())
    right = float((by_hand(module, x, y) ** 2).sum() ** 0.5)
    said = re.search(r"of norm ([\d,]+), where that of clipped gradients is (\d+)", _text())
    assert said is not None
    assert norm == pytest.approx(float(said[1].replace(",", "")), rel=1e-3)
    assert right == pytest.approx(float(said[2]), rel=1e-2)


def _text() -> str:
    return Path(__file__).parents[2].joinpath(PAGE).read_text(encoding="utf-8").replace("\n", " ")
