"""The output of the program, and the progress of runs and downloads on terminals and in notebooks."""

from __future__ import annotations

from orthobench.display.console import Console as Console
from orthobench.display.console import Table as Table
from orthobench.display.console import Text as Text
from orthobench.display.downloads import Downloads as Downloads
from orthobench.display.downloads import busy as busy
from orthobench.display.output import lasting_output as lasting_output
from orthobench.display.output import print_json as print_json
