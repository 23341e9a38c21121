import asyncio
import sys

import pytest
import uvloop

from extproc.server.app import new_event_loop


def test_the_event_loop_is_uvloops_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_event_loop()
    loop.close()
    assert isinstance(loop, uvloop.Loop)
    monkeypatch.setitem(sys.modules, "uvloop", None)  # an import fails
    loop = new_event_loop()
    loop.close()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    assert not isinstance(loop, uvloop.Loop)
