"""TLS and mTLS between the real Envoy and the router."""

import json
from pathlib import Path

import pytest

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.stack import LocalStack, ReplicaOptions
from tests.certificates import NAME, Authority
from tests.envoy.clients import http1
from tests.envoy.conftest import get_json

BODY = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"over TLS"}]}'


class TlsStack(LocalStack):
    """Envoy shows the router a certificate, and trusts only whom it should."""

    def __init__(self, router: Authority, envoy: Authority) -> None:
        cert, key = router.sign("router")
        self._trusted = router.ca
        self._shown = envoy.sign("envoy")
        files = ["--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(envoy.ca)]
        super().__init__(
            [ListenerConfig("main", message_timeout_s=5.0, metadata={"x-prefix-pool": "tls"})],
            replicas=2,
            replica_options=ReplicaOptions(speed=float("inf"), per_process=2),
            store="memory://",
            router_arguments=files,
        )

    def _write_envoy_config(self) -> None:
        super()._write_envoy_config()
        config = json.loads(self._envoy_config.read_text())
        cert, key = self._shown
        context = {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3"
            ".UpstreamTlsContext",
            "sni": NAME,
            "common_tls_context": {
                "tls_certificates": [
                    {
                        "certificate_chain": {"filename": str(cert)},
                        "private_key": {"filename": str(key)},
                    }
                ],
                "validation_context": {
                    "trusted_ca": {"filename": str(self._trusted)},
                    "match_typed_subject_alt_names": [
                        {"san_type": "DNS", "matcher": {"exact": NAME}}
                    ],
                },
            },
        }
        for cluster in config["staticResources"]["clusters"]:
            if cluster["name"].startswith("extproc"):
                cluster["transportSocket"] = {
                    "name": "envoy.transport_sockets.tls",
                    "typedConfig": context,
                }
        self._envoy_config.write_text(json.dumps(config))


@pytest.mark.timeout(300)
async def test_envoy_and_router_know_each_other(tmp_path: Path) -> None:
    router, envoy = Authority(tmp_path / "router"), Authority(tmp_path / "envoy")
    async with TlsStack(router, envoy) as stack:
        for _ in range(3):
            assert (await http1(stack.port("main"), [BODY], length=len(BODY))).status == 200
        pool = (await get_json(f"{stack.routers[0].admin}/pools"))["tls"]
        assert pool["decisions"] == 3
        assert pool["outcomes"] == {"first": 3}
