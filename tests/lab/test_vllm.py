import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from extproc.lab.processes import StackError
from extproc.lab.vllm import vllm_servers

# Stands for a Python that has vLLM: gets the same command line, and serves what is waited for.
STAND_IN = """#!{python}
import http.server, json, os, pathlib, sys
options = dict(zip(sys.argv[3:], sys.argv[4:]))
port = int(options["--port"])
seen = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "pid": os.getpid()}}
pathlib.Path(__file__).with_name(f"{{port}}.json").write_text(json.dumps(seen))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200 if self.path == "/v1/completions" else 404)
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def stand_in(folder: Path, text: str) -> Path:
    script = folder / "python"
    script.write_text(text)
    script.chmod(0o755)
    return script


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_servers_get_a_port_and_a_core_each_and_end_with_the_context(tmp_path: Path) -> None:
    python = stand_in(tmp_path, STAND_IN.format(python=sys.executable))
    async with vllm_servers(2, tmp_path / "run", python, start_s=60) as servers:
        addresses = [server.address for server in servers]
        assert len(set(addresses)) == 2
        seen: list[dict[str, Any]] = [
            json.loads((tmp_path / f"{address.partition(':')[2]}.json").read_text())
            for address in addresses
        ]
        assert all(is_alive(server["pid"]) for server in seen)
    assert not any(is_alive(server["pid"]) for server in seen)

    cores = sorted(os.sched_getaffinity(0))
    bound = [server["environment"]["VLLM_CPU_OMP_THREADS_BIND"] for server in seen]
    assert bound == [str(cores[0]), str(cores[1 % len(cores)])]
    assert all(server["environment"]["HF_HUB_OFFLINE"] == "1" for server in seen)
    model = seen[0]["arguments"][seen[0]["arguments"].index("--model") + 1]
    assert (Path(model) / "tokenizer.json").is_file()


async def test_a_server_that_ends_while_starting_shows_the_end_of_its_log(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "#!/bin/sh\necho no module named vllm\nexit 3\n")
    with pytest.raises(StackError, match=r"(?s)status 3.*vllm-0\.log.*no module named vllm"):
        async with vllm_servers(1, tmp_path / "run", python):
            pytest.fail("it did not start")


async def test_a_server_that_never_serves_is_ended_at_the_deadline(tmp_path: Path) -> None:
    python = stand_in(tmp_path, f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    with pytest.raises(StackError, match=r"did not serve in 0\.5 s"):
        async with vllm_servers(1, tmp_path / "run", python, start_s=0.5):
            pytest.fail("it did not start")
    assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_a_missing_interpreter_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"no-such.*make demo-vllm.*--vllm-python"):
        async with vllm_servers(1, tmp_path, tmp_path / "no-such"):
            pytest.fail("it did not start")
