"""How this process treats its memory."""

import contextlib
import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt``; source: malloc.h of the GNU C library."""


def settle() -> None:
    """Arrange for many short requests; to be called when everything is imported.

    Full collections, which stop the process, need not walk what was imported. And the allocator
    keeps what a large body took, instead of giving it back to the system and faulting it in again
    page by page for the next one: for 512 kB that costs several times what reading the prompt
    does. Other C libraries than the GNU one have no such setting and need none.
    """
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
