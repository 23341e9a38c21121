"""The process's memory: settling it is safe on every C library, and takes effect."""

import gc

from extproc.server import process_memory


def test_what_was_imported_is_frozen() -> None:
    before = gc.get_freeze_count()
    try:
        process_memory.settle()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
