"""The program that runs a command of orthobench and prints which functions it calls, and which modules it imports.

It is a text, because it has to run in a new process, also with the code of another checkout.
"""

PROGRAM = """
import json, sys
from pathlib import Path

package, depth, called = Path(sys.argv[1]), 0, set()


def on_call(frame, event, argument):
    global depth
    code = frame.f_code
    if code.co_name == "_find_and_load" and code.co_filename.startswith("<frozen importlib"):
        depth += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not depth and code.co_filename.startswith(str(package)):
        called.add((Path(code.co_filename).relative_to(package).as_posix(), code.co_qualname))


from orthobench.__main__ import main

sys.argv = ["orthobench", *sys.argv[2:]]
sys.setprofile(on_call)
try:
    main()
finally:
    sys.setprofile(None)
    print(json.dumps({"called": sorted(called), "modules": sorted(sys.modules)}))
"""
"""Its arguments are the folder of the package and the words of the command; the last line that it prints is JSON."""
