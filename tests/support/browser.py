"""What a browser makes of a page. The Chromium is that of Qt, in an environment of its own.

``make test-browser`` installs it. :func:`visit` starts this file by the Python of that environment,
which has nothing of ours; pages are files, and no network is asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("NOISEDESIGN_BROWSER", ROOT / ".venv-browser/bin/python"))
"""The Python that has PySide6 with QtWebEngine."""


def visit(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Open pages one after another and say what their scripts return.

    A job has ``page``, ``width`` in pixels, ``theme`` ("light" or "dark"), ``query`` (after a "?")
    and ``scripts`` by name; ``shot`` is a file for the first picture, 120 pixels wide."""
    done = subprocess.run(
        [PYTHON, __file__], input=json.dumps(jobs), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Read jobs from standard input and write what came of them as the last line."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    os.environ["QTWEBENGINE_DISABLE_SANDBOX"] = "1"
    os.environ["QTWEBENGINE_CHROMIUM_FLAGS"] = "--no-sandbox --disable-gpu"
    from PySide6.QtCore import QEventLoop, QRect, Qt, QTimer, QUrl
    from PySide6.QtWebEngineWidgets import QWebEngineView
    from PySide6.QtWidgets import QApplication

    _app = QApplication([sys.argv[0]])
    view = QWebEngineView()
    view.show()

    def wait(milliseconds: int) -> None:
        loop = QEventLoop()
        QTimer.singleShot(milliseconds, loop.quit)
        loop.exec()

    def load(url: QUrl) -> None:
        loop = QEventLoop()
        view.loadFinished.connect(loop.quit)
        view.load(url)
        loop.exec()
        view.loadFinished.disconnect(loop.quit)

    def run(script: str) -> Any:
        loop, found = QEventLoop(), []

        def take(value: Any) -> None:
            found.append(value)
            loop.quit()

        view.page().runJavaScript(f"JSON.stringify({script})", take)
        QTimer.singleShot(20_000, loop.quit)
        loop.exec()
        return json.loads(found[0]) if found and found[0] else None

    results = []
    for job in json.load(sys.stdin):
        view.resize(job["width"], 900)
        url = QUrl.fromLocalFile(str(Path(job["page"]).resolve()))
        url.setQuery(job.get("query", ""))
        load(url)
        run(f"document.body.dataset.theme = {json.dumps(job.get('theme', 'light'))}")
        wait(job.get("wait", 150))
        found = {name: run(script) for name, script in job.get("scripts", {}).items()}
        if "shot" in job:
            view.resize(job["width"], 1400)  # the tallest picture and the bar above it
            picture = "document.querySelector('a.picture')"
            run(f"({picture}.scrollIntoView(), scrollBy(0, -80))")
            wait(800)
            place = "(r => [r.x, r.y, r.width, r.height].map(Math.round))"
            rect = run(f"{place}({picture}.getBoundingClientRect())")
            drawn = view.grab(QRect(*rect))
            drawn = drawn.scaledToWidth(120, Qt.TransformationMode.SmoothTransformation)
            drawn.save(job["shot"])
        results.append(found)
    print(json.dumps(results), flush=True)
    os._exit(0)  # Qt has threads of its own, which end with the process


if __name__ == "__main__":
    main()
