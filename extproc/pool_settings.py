"""A pool's settings: gRPC initial metadata of Envoy's ext_proc filter, one key per field.

Envoy merges the metadata of filter, virtual host and route by key, and never passes on keys of that
name from a client, so whoever writes the Envoy configuration decides alone.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple
from typing import Protocol as Interface

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from extproc.processing.wire import canonical_address
from extproc.prompt.model import ToolsPlace
from extproc.replicas.discovery_url import parse_target
from extproc.replicas.engine.engines import EnginePolicy
from extproc.replicas.fleet import CheckPolicy
from extproc.replicas.health import HealthPolicy
from extproc.routing import Mode, Policy, Protocol, Strategy

PREFIX = "x-prefix-"

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(|s|m|h|d)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SIZE = re.compile(r"(\d+)\s*(|kb|mb|kib|mib)", re.IGNORECASE)
_NO_POOL = re.compile(r"[\x00-\x1f~]")
_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{0,100}")  # a token of RFC 9110, 5.6.2
_PATH = re.compile(r"/[!-~]{0,200}")
_SWITCH = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
_BYTES = {"": 1, "kb": 1000, "mb": 1_000_000, "kib": 1024, "mib": 1024 * 1024}


def seconds(value: Any) -> Any:
    """``600``, ``600s``, ``10m``, ``2h`` or ``1d`` in whole seconds; other types pass through."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise PydanticCustomError("duration", "write seconds, or a number with s, m, h or d")
    return round(float(match[1]) * _SECONDS[match[2]])


def size(value: Any) -> Any:
    """``65536``, ``64KiB`` or ``1MB`` in bytes; other types pass through."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise PydanticCustomError("size", "write bytes, or a number with KiB, MiB, kB or MB")
    return int(match[1]) * _BYTES[match[2].lower()]


def _addresses(value: Any) -> Any:
    """A list of ``ip:port`` with commas; blanks and empty items are tolerated, repeats dropped."""
    if not isinstance(value, str):
        return value
    found: dict[str, None] = {}
    for item in filter(None, map(str.strip, value.split(","))):
        address = canonical_address(item)
        if not address:
            raise PydanticCustomError(
                "address",
                "{item} is no address: write ip:port, or [ipv6]:port",
                {"item": repr(item[:60])},
            )
        found[address] = None
    return tuple(found)


def _pool_name(value: str) -> str:
    if len(value) > 200 or _NO_POOL.search(value):
        raise PydanticCustomError(
            "pool", "write at most 200 characters, without ~ and control characters"
        )
    return value


def _switch(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.lower() not in _SWITCH:
        raise PydanticCustomError("switch", "write on or off")
    return _SWITCH[value.lower()]


def _header_name(value: str) -> str:
    if not _HEADER.fullmatch(value):
        raise PydanticCustomError("header", "write the name of one request header")
    return value.lower()


def _url_path(value: str) -> str:
    if value and not _PATH.fullmatch(value):
        raise PydanticCustomError("path", "write a path that begins with /, such as /health")
    return value


def _field_path(value: str) -> str:
    if len(value) > 200 or (not all(value.split(".")) and value):
        raise PydanticCustomError(
            "field", "write the name of a field, dots between names: metadata.session_id"
        )
    return value


def _discovery_url(value: str) -> str:
    try:
        if value:
            parse_target(value)
    except ValueError as error:
        raise PydanticCustomError("discovery", "{cure}", {"cure": str(error)}) from None
    return value


Duration = Annotated[int, BeforeValidator(seconds)]
Size = Annotated[int, BeforeValidator(size)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
UrlPath = Annotated[str, AfterValidator(_url_path)]
PoolName = Annotated[str, AfterValidator(_pool_name)]
FieldPath = Annotated[str, AfterValidator(_field_path)]
Switch = Annotated[bool, BeforeValidator(_switch)]
DiscoveryUrl = Annotated[str, AfterValidator(_discovery_url)]


class PoolSettings(BaseModel):
    """How one pool is routed. The field ``media_tokens`` has the key ``x-prefix-media-tokens``."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    strategy: Strategy = Field(
        default=Strategy.KV_AWARE,
        description="How a replica is chosen: by cached tokens and load (`kv_aware`), by the "
        "prompt's start alone (`prefix_aware`), or without looking at prompts.",
    )
    mode: Mode = Field(
        default=Mode.ENFORCE,
        description="`shadow` decides and counts, but leaves the choice to Envoy.",
    )
    protocol: Protocol = Field(
        default=Protocol.ENVOY,
        description="Who answers where no replica can be chosen: `envoy` leaves the choice to "
        "Envoy; `epp` refuses with 503 or 429, as the Gateway API Inference Extension wants it of "
        "an endpoint picker.",
    )
    pool: PoolName = Field(
        default="",
        description="Name of the pool, under which routers share state. Empty: the name of the "
        "route's Envoy cluster, else `default`.",
    )
    replicas: Annotated[tuple[str, ...], BeforeValidator(_addresses)] = Field(
        default=(),
        description="The pool's replicas as `ip:port,[ipv6]:port`. Empty: `discovery` tells them.",
    )
    discovery: DiscoveryUrl = Field(
        default="",
        description="Where the pool's replicas are looked up: "
        "`envoy-admin://127.0.0.1:9901/cluster`, `dns://replicas.example:8000`, "
        "`dns+srv://_llm._tcp.example`, `file:///etc/envoy/envoy.yaml?cluster=name`, "
        "`eds://127.0.0.1:18000/name` or `eds+tls://`; see docs/discovery.md. Empty: learned "
        "from who serves.",
    )
    length: int = Field(
        default=4096,
        ge=1024,
        le=65_536,
        description="`prefix_aware`: characters of the prompt's start that are the key.",
    )
    concurrency_threshold: int = Field(
        default=32,
        ge=1,
        le=1024,
        description="`prefix_aware`: requests in flight at which a replica is full.",
    )
    uncached_weight: float = Field(
        default=2.5,
        ge=0,
        le=1000,
        allow_inf_nan=False,
        description="`kv_aware`: cost of a token that the replica must prefill for this request, "
        "against 1 for a token that it has queued already.",
    )
    decode_weight: int = Field(
        default=64,
        ge=0,
        le=1_000_000,
        description="`kv_aware`: cost of each request in flight, in queued tokens.",
    )
    prefill_rate: int = Field(
        default=24_000,
        ge=1,
        le=10_000_000,
        description="First guess of the tokens per second that a replica prefills: how fast its "
        "queued tokens drain. The router learns better from what its requests take.",
    )
    bytes_per_token: float = Field(
        default=4.0,
        ge=0.25,
        le=64,
        allow_inf_nan=False,
        description="Bytes of prompt text that count as one token.",
    )
    media_tokens: int = Field(
        default=1024,
        ge=0,
        le=1_000_000,
        description="Tokens that an image, audio or video counts as.",
    )
    tools: ToolsPlace = Field(
        default=ToolsPlace.FIRST,
        description="Where the model's chat template puts the definitions of tools: `first` (GLM, "
        "Kimi, Qwen 3.5 and later) or `after_system`, behind the system message (Llama, Qwen 2.5 "
        "and 3, DeepSeek, Gemma, MiniMax, Nemotron, gpt-oss).",
    )
    ttl: Duration = Field(
        default=600,
        ge=1,
        le=7 * 86_400,
        description="Time without use after which a replica counts as having forgotten a prompt; "
        "seconds, or `10m`, `2h`.",
    )
    cache_tokens: int = Field(
        default=0,
        ge=0,
        le=1_000_000_000,
        description="Tokens that a replica's KV cache holds: a prompt counts as forgotten once "
        "its replica has taken in so many others. 0: what `x-prefix-metrics` tells, else "
        "only `ttl` counts.",
    )
    tenant_header: HeaderName = Field(
        default="",
        description="Request header whose value separates tenants: equal prompts of two tenants "
        "share nothing. Empty: none.",
    )
    session_header: HeaderName = Field(
        default="",
        description="Request header whose value keeps the requests of a session together, also "
        "where their prompts share nothing. Empty: none.",
    )
    session_field: FieldPath = Field(
        default="",
        description="Field of the body that names the session where no header does: `user`, "
        "`metadata.session_id`. Empty: none.",
    )
    session_weight: int = Field(
        default=1024,
        ge=0,
        le=1_000_000_000,
        description="`kv_aware`: queued tokens by which the replica that served a session last is "
        "preferred.",
    )
    max_keys: int = Field(
        default=1_000_000,
        ge=0,
        le=1_000_000_000,
        description="Keys, of about 150 bytes, that the store may get in each `x-prefix-ttl` for "
        "new prompts. Then new ones are routed but not remembered, until that time is over; what "
        "is known stays so. 0: no limit.",
    )
    max_in_flight: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Requests in flight at which a replica gets no more. Where all have so many, "
        "a request is refused with 429 (under `x-prefix-protocol: epp`; else Envoy chooses). "
        "0: no limit.",
    )
    priority_header: HeaderName = Field(
        default="",
        description="Request header with the priority: `low` (or below 0) is refused at half of "
        "`x-prefix-max-in-flight`, `high` (above 0) at half as many more. Empty: all are equal.",
    )
    explain: Switch = Field(
        default=False,
        description="`on`: a request with the header `x-prefix-explain: 1` is told in a response "
        "header of that name why it went where it went; see docs/how-it-decides.md.",
    )
    eject_after: int = Field(
        default=3,
        ge=0,
        le=1000,
        description="Failures in a row (refused, reset, timed out, status 500 or more) after which "
        "a replica gets no requests for a while. 0: never.",
    )
    eject_time: Duration = Field(
        default=10,
        ge=1,
        le=3600,
        description="How long that while is at first; it doubles each time, up to 32 times as "
        "long, and half of the pool stays in at any rate.",
    )
    slow_start: Duration = Field(
        default=30,
        ge=0,
        le=3600,
        description="Over how long a replica that is new or back warms up to its full share. "
        "0: at once.",
    )
    hang_after: Duration = Field(
        default=60,
        ge=0,
        le=86_400,
        description="Time without any answer from a replica, while others answer, after which it "
        "counts as failed. 0: never.",
    )
    health_path: UrlPath = Field(
        default="",
        description="Path, such as `/health`, that is asked for to see whether a replica is well. "
        "Empty: only its answers to requests tell.",
    )
    health_interval: Duration = Field(
        default=5,
        ge=1,
        le=3600,
        description="Time between two such checks of a replica, by one of all routers.",
    )
    metrics: UrlPath = Field(
        default="",
        description="Path, such as `/metrics`, at which a replica's engine (vLLM, SGLang, TGI) "
        "tells its queue, its cache and its start; see docs/engines.md. Empty: it is not asked.",
    )
    metrics_interval: Duration = Field(
        default=2,
        ge=1,
        le=60,
        description="Time between two such looks at a replica, by one of all routers.",
    )
    kv_events_port: int = Field(
        default=0,
        ge=0,
        le=65_535,
        description="Port at which each replica's engine publishes its KV cache events (vLLM's "
        "`--kv-events-config`); needs the extra `kv-events`, see docs/engines.md. 0: not followed.",
    )
    kv_events_replay_port: int = Field(
        default=0,
        ge=0,
        le=65_535,
        description="Port at which missed events can be had again (its `replay_endpoint`). "
        "0: none.",
    )
    inspect_window: Size | None = Field(
        default=None,
        ge=1024,
        le=64 * 1024 * 1024,
        description="Bytes of a body that are read before deciding, or `64KiB`, `1MiB`. Empty: "
        "the process's `inspect_window`.",
    )

    @cached_property
    def policy(self) -> Policy:
        """The numbers that the store's algorithm needs, as integers."""
        return Policy(
            strategy=self.strategy,
            uncached_milli=round(self.uncached_weight * 1000),
            decode_tokens=self.decode_weight,
            prefill_rate=self.prefill_rate,
            threshold=self.concurrency_threshold,
            ttl_s=self.ttl,
            cache_tokens=self.cache_tokens,
            session_tokens=self.session_weight,
            max_keys=self.max_keys,
        )

    @cached_property
    def health(self) -> HealthPolicy:
        """The numbers by which replicas are ejected and warmed up."""
        return HealthPolicy(self.eject_after, self.eject_time, self.slow_start, self.hang_after)

    @cached_property
    def checks(self) -> CheckPolicy:
        """How replicas are checked."""
        return CheckPolicy(self.health_path, self.health_interval)

    @cached_property
    def engines(self) -> EnginePolicy:
        """How the replicas' engines are asked."""
        shadow = self.mode is Mode.SHADOW
        return EnginePolicy(
            self.metrics,
            self.metrics_interval,
            self.decode_weight,
            shadow,
            self.kv_events_port,
            self.kv_events_replay_port,
        )


KEYS = {PREFIX + name.replace("_", "-"): name for name in PoolSettings.model_fields}
"""Metadata key to field name."""


class SettingError(NamedTuple):
    """A setting that does not hold.

    Attributes:
        key: The metadata key.
        value: What it said, cut to what a log line bears.
        cure: What to write instead.
    """

    key: str
    value: str
    cure: str


class Parsed(NamedTuple):
    """Settings, and what was wrong with the metadata that they came from."""

    settings: PoolSettings
    errors: tuple[SettingError, ...] = ()


def pairs_of(text: str) -> tuple[tuple[str, str], ...]:
    """Metadata written as text: ``x-prefix-protocol=epp; x-prefix-ttl=10m``.

    Raises:
        ValueError: A part is no setting, with the cure.
    """
    items = (item.partition("=") for item in text.split(";") if item.strip())
    pairs = tuple((key.strip(), value.strip()) for key, _, value in items)
    for key, _ in pairs:
        if not key.startswith(PREFIX):
            raise ValueError(f"{_printable(key)!r} is no setting of a pool: write {PREFIX}…=value")
    for error in _parse(pairs).errors:
        raise ValueError(f"{error.key}: {error.value}: {error.cure}")
    return pairs


class _Item(Interface):
    def __iter__(self) -> Any: ...


def parse(metadata: Iterable[_Item] | None) -> Parsed:
    """Read a pool's settings. A value that is no good leaves its default.

    Args:
        metadata: Pairs of key and value (text or bytes), as ``ServicerContext.invocation_metadata``
            has them. Keys without the prefix are not looked at; of a repeated key the last counts.
    """
    return _parse(tuple(pair for key, value in metadata or () if (pair := _text(key, value))))


def _text(key: Any, value: Any) -> tuple[str, str] | None:
    if not key.startswith(PREFIX):
        return None
    return key, value.decode("utf-8", "replace") if isinstance(value, bytes) else value


@lru_cache(maxsize=1024)
def _parse(pairs: tuple[tuple[str, str], ...]) -> Parsed:
    values: dict[str, str] = {}
    errors: list[SettingError] = []
    for key, value in pairs:
        if key not in KEYS:
            errors.append(SettingError(_printable(key), _printable(value), _did_you_mean(key)))
        elif value.strip():
            values[KEYS[key]] = value.strip()
        else:
            values.pop(KEYS[key], None)
    while True:
        try:
            return Parsed(PoolSettings.model_validate(values), tuple(errors))
        except ValidationError as error:
            for each in error.errors(include_url=False):
                name = str(each["loc"][0])
                default = PoolSettings.model_fields[name].default
                cure = f"{each['msg']}; the default {show(default)} holds"
                key = PREFIX + name.replace("_", "-")
                errors.append(SettingError(key, _printable(values.pop(name)), cure))


def _did_you_mean(key: str) -> str:
    near = get_close_matches(key, KEYS, n=1, cutoff=0.8)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(KEYS))}"
    return f"unknown key, ignored: {hint}"


def _printable(value: str) -> str:
    text = value if len(value) <= 100 else value[:97] + "..."
    return text.encode("unicode_escape").decode("ascii")


def show(value: Any) -> str:
    """A default as a user would write it."""
    if value is None or value in ("", ()):
        return "(empty)"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
