"""How far a reader has to go: the files of the package in which a function runs."""

import subprocess
import sys

FEW = 20
TRACED = """
import sys
import noisedesign as nd
loaded, solve = nd.load("whisper/florentine"), nd.solve
files = set()
def note(frame, event, argument):
    if event == "call" and "noisedesign" in frame.f_code.co_filename:
        # What runs while a module is imported is no part of the way.
        above = frame
        while above is not None and above.f_code.co_name != "<module>":
            above = above.f_back
        if above is None or above.f_globals["__name__"] == "__main__":
            files.add(frame.f_code.co_filename)
sys.setprofile(note)
found = solve(loaded)
sys.setprofile(None)
assert found.status == "optimal"
print(len(files))
"""


def test_a_space_solve_enters_few_files() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", TRACED], capture_output=True, text=True, check=True, timeout=120
    )
    assert 10 < int(ran.stdout) <= FEW
