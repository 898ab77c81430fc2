"""Notes, a line each, the files and folders of the checkout that a process or its children read.

Python runs this file as it starts, where its folder is on PYTHONPATH.
"""

import contextlib
import os
import sys

ROOT, LOG = os.environ["NOISEDESIGN_TRACED_ROOT"] + os.sep, os.environ["NOISEDESIGN_TRACED_LOG"]
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
noted = set()


def note(event: str, arguments: tuple) -> None:
    if event not in ("open", "os.listdir", "os.scandir"):
        return
    with contextlib.suppress(Exception):  # a process goes on whatever cannot be noted
        if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        path += os.sep * (event != "open")
        if path.startswith(ROOT) and path not in noted:
            noted.add(path)
            os.write(log, os.fsencode(path) + b"\n")


sys.addaudithook(note)
