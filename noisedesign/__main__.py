"""The command ``noisedesign``, also as ``python -m noisedesign``.

Ctrl-C ends it quietly from here on: loading takes a second, and an exception in the middle of it
would be printed, or be taken for another by a module that is compiled."""

import os
import signal
from typing import Any, NoReturn

EXIT_INTERRUPTED = 130


def main() -> None:
    """Entry point: that of `noisedesign.cli`, which catches Ctrl-C itself while it is at work."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        _command(signal.getsignal(signal.SIGINT))  # somebody has decided otherwise
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        _command(signal.default_int_handler)
    except KeyboardInterrupt:
        _leave()
    finally:
        signal.signal(signal.SIGINT, _leave)


def _command(at_work: Any) -> None:
    from noisedesign.cli import main as command

    signal.signal(signal.SIGINT, at_work)
    command()


def _leave(*_: object) -> NoReturn:
    os.write(2, b"noisedesign: error: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
