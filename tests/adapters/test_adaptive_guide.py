"""The guide to adaptive optimizers: its loop, with noise under every step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.scripts import block
from tests.support.trainers import a9a, accuracy, node_noise, prefix_design, secret

torch = pytest.importorskip("torch", reason="needs the package torch")

from tests.adapters.torch_networks import network, numbers  # noqa: E402

PAGE = "docs/guides/adaptive-optimisers.md"


def test_the_loop_that_scales_before_privacy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step is the scaled, clipped sum and the noise of the design."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOISEDESIGN_RECORDS", str(tmp_path / "records.sqlite3"))
    design = prefix_design()
    design.node_plan(0).save("node.plan")
    secret(1).save("node.secret")
    x, y = (torch.from_numpy(part[:2000]) for part in a9a())
    module = network()
    sums: list[Any] = []
    script = block(PAGE, "py").replace(
        "    gradients.add_noise_(",
        "    seen([p.grad.clone() for p in model.parameters()], scale)\n    gradients.add_noise_(",
    )
    script = script.replace("    sgd.step()\n", "    sgd.step()\n    moved()\n")
    noisy: list[np.ndarray] = []

    def flat(tensors: Any) -> np.ndarray:
        return torch.cat([t.flatten() for t in tensors]).double().numpy()

    def seen(grads: Any, scale: Any) -> None:
        sums.append(flat(grads))
        ones = flat(scale.values())
        assert np.sqrt(np.mean(ones**2)) == pytest.approx(1.0, rel=1e-5)

    def moved() -> None:
        noisy.append(flat([p.grad for p in module.parameters()]) * 500)

    criterion = torch.nn.functional.binary_cross_entropy_with_logits
    scope = {"model": module, "criterion": criterion, "X": x, "Y": y, "seen": seen, "moved": moved}
    exec(script, scope)
    exact = [node_noise(design).step(t, 4001) for t in range(12)]
    np.testing.assert_allclose(np.array(noisy) - np.array(sums), exact, atol=1e-3)
    start, end = (accuracy(numbers(one), x.numpy(), y.numpy()) for one in (network(), module))
    assert end > start + 0.1
