"""The settings of the process: flags of ``serve``, else ``PREFIX_EXTPROC_*`` in the environment."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from extproc.address import join_host_port, split_host_port
from extproc.affinity.connect import connect, memory_routers
from extproc.pool_settings import PREFIX, Duration, PoolSettings, Size, pairs_of, show

ENV_PREFIX = "PREFIX_EXTPROC_"


class LogFormat(StrEnum):
    """How log lines are written."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """Least level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _listen(text: str) -> str:
    if text.startswith("unix:"):
        if not text.startswith("unix:/"):
            raise ValueError("write host:port, or unix:/absolute/path")
        return text
    split_host_port(text)
    return text


def _admin(text: str) -> str:
    if text:
        split_host_port(text)
    return text


def _store(text: str) -> str:
    if memory_routers(text) is None:
        connect(text)  # makes a client and sends nothing: its errors name what is wrong
    return text


def _key(secret: SecretStr | None) -> SecretStr | None:
    if not secret:
        return None
    if len(secret) < 16:
        raise ValueError("too short to be a secret: take 16 characters or more")
    return secret


def _pool_defaults(text: str) -> str:
    pairs_of(text)
    return text


def _lower(value: Any) -> Any:
    return value.lower() if type(value) is str else value  # enums of strings stay as they are


class Settings(BaseSettings):
    """Everything that a process of this server is told."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid")

    listen: Annotated[str, BeforeValidator(_listen)] = Field(
        default="127.0.0.1:9002",
        description="Where Envoy connects: `host:port`, `[ipv6]:port` or `unix:/path`.",
    )
    tls_cert: str = Field(
        default="",
        description="PEM file with the certificate that is shown to Envoy, and those between it "
        "and its root. Read again when it changes. Empty: no TLS.",
    )
    tls_key: str = Field(default="", description="PEM file with its private key.")
    tls_client_ca: str = Field(
        default="",
        description="PEM file with who signs Envoy's certificate; whoever has none is turned "
        "away. Empty: clients are not asked.",
    )
    store: Annotated[str, BeforeValidator(_store)] = Field(
        default="memory://",
        description="Where affinity and load are kept: `memory://` (this process alone), "
        "`memory://separate?routers=3` (one of three routers that share nothing), "
        "`redis://host:6379/0`, `rediss://` (TLS), `redis+sentinel://h1:26379,h2:26379/service/0`, "
        "`redis+cluster://h1:6379,h2:6379`.",
    )
    admin: Annotated[str, BeforeValidator(_admin)] = Field(
        default="127.0.0.1:9003",
        description="Where `/metrics`, `/healthz`, `/readyz` and `/pools` are; empty for nowhere. "
        "Unset with several workers: behind their ports, `127.0.0.1:9002` + `workers`.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Processes to run. Each has its own port (`listen` + 0, 1, …; the admin's "
        "likewise) or socket (`/path`, `/path.1`, …); Envoy's cluster lists them all.",
    )
    store_deadline_ms: float = Field(
        default=10,
        gt=0,
        le=10_000,
        allow_inf_nan=False,
        description="Milliseconds that one call to the store may take; then this router decides "
        "from its own memory.",
    )
    store_memory_entries: int = Field(
        default=200_000,
        ge=1000,
        description="Most checkpoints in this process's own memory, about 400 bytes each.",
    )
    drain_deadline: Duration = Field(
        default=30,
        ge=0,
        description="Time that open requests have to finish after SIGTERM; seconds, or `2m`.",
    )
    drain_delay: Duration = Field(
        default=0,
        ge=0,
        description="Time after SIGTERM in which new requests are still taken, while health "
        "checks tell Envoy to go elsewhere; seconds, or `1m`.",
    )
    pool_defaults: Annotated[str, AfterValidator(_pool_defaults)] = Field(
        default="",
        description="Settings of pools where Envoy gives none, as under a gateway that writes its "
        "configuration itself: `x-prefix-protocol=epp; x-prefix-discovery=dns://llm:8000`.",
    )
    inspect_window: Size = Field(
        default=512 * 1024,
        ge=1024,
        le=64 * 1024 * 1024,
        description="Bytes of a streamed body that are read before deciding, or `64KiB`; a pool "
        "may set its own.",
    )
    inspect_memory: Size = Field(
        default=256 * 1024 * 1024,
        ge=0,
        description="Bytes of bodies that all open requests together keep for deciding, or "
        "`256MiB`. A request that finds no room is decided by what it has, or by load. "
        "0: no limit.",
    )
    max_message_size: Size = Field(
        default=64 * 1024 * 1024,
        ge=1024 * 1024,
        le=2**31 - 1,
        description="Largest gRPC message that is accepted, in bytes, or `64MiB`: the first part "
        "of a buffered body can be many megabytes.",
    )
    max_streams: int = Field(
        default=0,
        ge=0,
        description="Most requests open at once; Envoy routes the others by itself. 0: no limit.",
    )
    max_pools: int = Field(
        default=1000,
        ge=1,
        description="Most pools that Envoy's clusters name; Envoy routes the requests of others by "
        "itself. Pools that `x-prefix-pool` names are not counted.",
    )
    metric_pools: int = Field(
        default=100,
        ge=1,
        description="Most values of the label `pool` in metrics; further pools count as `other`.",
    )
    metric_replicas: int = Field(
        default=1000,
        ge=1,
        description="Most replicas, over all pools, that have metrics of their own.",
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = Field(
        default=LogLevel.INFO,
        description="Least level to log: `debug`, `info`, `warning`, `error`.",
    )
    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = Field(
        default=LogFormat.CONSOLE, description="`json` for one object a line, `console` for people."
    )

    decision_log: str = Field(
        default="",
        description="File to which a line of JSON is added for every request: what was decided, "
        "who served, and hashes of the prompt, for `prefix-extproc simulate`. It never holds text. "
        "Empty: none. Of several workers each has its own: `FILE`, `FILE.1`, …",
    )
    decision_log_key: Annotated[SecretStr | None, AfterValidator(_key)] = Field(
        default=None,
        description="Secret under which prompts are hashed in the decision log, 16 characters or "
        "more; set it in the environment. Logs of routers with one key can be simulated together. "
        "Empty: a new one for every start, which nobody learns.",
    )

    @model_validator(mode="before")
    @classmethod
    def _admin_behind_workers(cls, given: Any) -> Any:
        """The default of ``admin`` would be the second worker's ``listen``."""
        workers = str(given.get("workers", ""))
        if "admin" in given or not workers.isdecimal() or len(workers) > 3:
            return given
        return {**given, "admin": f"127.0.0.1:{9002 + int(workers)}"}

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("--tls-cert and --tls-key need each other: give both, or none")
        if self.tls_client_ca and not self.tls_cert:
            raise ValueError("--tls-client-ca needs --tls-cert and --tls-key")
        return self

    @model_validator(mode="after")
    def _ports_of_workers(self) -> Self:
        if self.workers == 1:
            return self
        both = [
            split_host_port(text)
            for text in (self.listen, self.admin)
            if text and not text.startswith("unix:")
        ]
        for host, port in both:
            if port + self.workers > 65_536:
                raise ValueError(
                    f"{join_host_port(host, port)} leaves no ports for {self.workers} workers: "
                    "choose a lower one"
                )
        ports = [port for _, port in both if port]
        if len(ports) == 2 and abs(ports[0] - ports[1]) < self.workers:
            raise ValueError(
                f"--listen {self.listen} and --admin {self.admin} need {self.workers} ports each, "
                f"one for each worker, and these overlap: put them {self.workers} apart or more"
            )
        return self


_SECRET = frozenset({"store", "decision_log_key"})
"""Never shown; a store's URL may hold a password."""


class SettingsError(Exception):
    """Settings that cannot be. Each line names one, its value, and the cure."""


def load(flags: dict[str, Any]) -> Settings:
    """Settings from flags, then the environment, then defaults.

    Args:
        flags: Field name to value; None means not given.

    Raises:
        SettingsError: With one line for each wrong setting.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        lines = (_line(each, given) for each in error.errors(include_url=False))
        raise SettingsError("\n".join(lines)) from None


def strangers(environment: Iterable[str]) -> Iterator[str]:
    """A line for each variable that looks like a setting misspelt.

    Not an error: Kubernetes puts variables with the name of a service before everything.
    """
    known = [ENV_PREFIX + name.upper() for name in Settings.model_fields]
    for name in environment:
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in known:
            near = get_close_matches(name.upper(), known, n=1, cutoff=0.9)
            if near:
                yield f"{name} in the environment is no setting: did you mean {near[0]}?"


def _line(error: Any, given: dict[str, Any]) -> str:
    message: str = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return message
    name = str(error["loc"][0])
    flag = "--" + name.replace("_", "-")
    key = flag if name in given else f"{ENV_PREFIX}{name.upper()}"
    value = "" if name in _SECRET else f" {error['input']!r}"
    return f"{key}{value}: {message}"


def markdown() -> str:
    """Every setting in one table, as the README has it."""
    head = "| setting | where | default | meaning |\n|---|---|---|---|\n"
    process = (
        f"| `--{name.replace('_', '-')}`, `{ENV_PREFIX}{name.upper()}` | process | {rest} |"
        for name, rest in _rows(Settings)
    )
    pool = (
        f"| `{PREFIX}{name.replace('_', '-')}` | pool | {rest} |"
        for name, rest in _rows(PoolSettings)
    )
    return head + "\n".join((*process, *pool)) + "\n"


def plain() -> str:
    """Every setting for a terminal: its names, its default and what it means."""
    process = (
        (f"--{name.replace('_', '-')}, {ENV_PREFIX}{name.upper()}", field)
        for name, field in Settings.model_fields.items()
    )
    pool = (
        (PREFIX + name.replace("_", "-"), field)
        for name, field in PoolSettings.model_fields.items()
    )
    return "".join(
        f"{title} [{show(field.default)}]\n    {field.description}\n"
        for title, field in (*process, *pool)
    )


def _rows(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        yield name, f"{_code(show(field.default))} | {field.description}"


def _code(text: str) -> str:
    return text if text.startswith("(") else f"`{text}`"
