import os
import subprocess
import sys
import time

import pytest

from extproc.lab.overhead import accounts


def spend(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_processor_time_is_that_of_the_process_and_grows_with_its_work() -> None:
    first = accounts.cpu_s([os.getpid()])
    before = time.process_time()
    spend(0.05)
    spent = time.process_time() - before
    second = accounts.cpu_s([os.getpid()])
    assert second - first >= spent > 0.04


def test_what_a_process_started_counts_with_it() -> None:
    code = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in accounts.tree(os.getpid())
        assert accounts.cpu_s([child.pid]) >= 0.3
        both = accounts.memory_bytes([os.getpid()])
        alone = accounts.memory_bytes([child.pid])
        assert both > alone > 1_000_000
        child.stdin.close()
    with pytest.raises(ProcessLookupError, match=str(child.pid)):
        accounts.cpu_s([child.pid])
