"""The program `orthobench`, also as `python -m orthobench`."""

import sys


def main() -> None:
    """Load and run the command line; Ctrl-C while it loads prints no traceback."""
    try:
        from orthobench.cli import main as command_line
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
