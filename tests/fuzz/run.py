"""Runs a target under atheris: ``python -m tests.fuzz.run TARGET [libFuzzer options] CORPUS``."""

import sys

import atheris

with atheris.instrument_imports(include=["extproc"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
