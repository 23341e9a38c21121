"""``python -m extproc`` is ``prefix-extproc``."""

from extproc.cli import main

if __name__ == "__main__":
    main()
