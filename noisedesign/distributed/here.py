"""All parts in threads of this process: for graphs that fit it."""

from __future__ import annotations

import threading
from typing import Any

from noisedesign.base.machine import one_thread
from noisedesign.distributed.mail import Box, LostError, Mail
from noisedesign.distributed.work import Asked, Tell, done


def run_here(asked: Asked, *, parts: int, silence: float, tell: Tell) -> list[dict[str, Any]]:
    """Return what every part finds, in their order; the first error of a part ends them all."""
    boxes = [Box() for _ in range(parts)]
    found: list[dict[str, Any]] = [{} for _ in boxes]
    errors: list[BaseException] = []

    def work(k: int) -> None:
        put = {j: box.put for j, box in enumerate(boxes) if j != k}
        try:
            told = tell if k == 0 else lambda _: None
            found[k] = done(asked, Mail(k, boxes[k], put, silence=silence), told)
        except BaseException as error:  # it is raised again below, in the caller's thread
            errors.append(error)
            end(f"part {k} failed: {error}")

    def end(reason: str) -> None:
        for box in boxes:
            box.end(reason)

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(parts)]
    with one_thread():
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:  # Ctrl-C
            end("interrupted")
            raise
    if errors:
        raise first_of(errors)
    return found


def first_of(errors: list[BaseException]) -> BaseException:
    """The error that is the cause of others, who were only told that a part is lost."""
    causes = [error for error in errors if not isinstance(error, LostError)]
    return (causes or errors)[0]
