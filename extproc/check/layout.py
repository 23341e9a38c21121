"""Finds the router's filter in what Envoy is given, and everything that bears on it.

Files may be whole (a bootstrap, a config dump), one kind of resource (LDS, RDS, CDS) or pieces,
such as the patches of an Istio EnvoyFilter. What is in a connection manager belongs together; all
pieces outside of one make up one more deployment.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from extproc.check.nodes import Node

DESTINATION = "x-gateway-destination-endpoint"
METADATA_NAMESPACE = "envoy.lb"
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
PREFIX = "x-prefix-"

_CLUSTER_FIELDS = (
    "load_assignment",
    "eds_cluster_config",
    "load_balancing_policy",
    "lb_policy",
    "circuit_breakers",
    "typed_extension_protocol_options",
)


@dataclass(frozen=True)
class Route:
    """A route with an action, and the virtual host and route configuration that it is in."""

    node: Node
    levels: tuple[Node, ...] = ()

    @property
    def action(self) -> Node:
        """The ``RouteAction``."""
        return self.node.at("route")

    @property
    def clusters(self) -> list[str]:
        """The clusters that it names."""
        weighted = self.action.at("weighted_clusters", "clusters").items
        names = [self.action.at("cluster"), *(item.at("name") for item in weighted)]
        return [name.text for name in names if name.present]

    def nearest(self, *path: str) -> Node:
        """A field of the route's action, else of the virtual host; absent where neither has it."""
        for level in (self.action, self.node, *self.levels):
            if (found := level.at(*path)).present:
                return found
        return self.action.at(*path)

    def per_filter(self, name: str) -> Node:
        """The settings of one HTTP filter here, the most specific ones."""
        for level in (self.node, *self.levels):
            if (found := level.at("typed_per_filter_config", name)).present:
                return found
        return self.node.at("typed_per_filter_config", name)


@dataclass(frozen=True)
class Deployment:
    """The router's filter with all that the files tell of its surroundings.

    Attributes:
        entry: The item of ``http_filters`` that has the filter.
        filter: Its ``ExternalProcessor``; absent where only other parts were given.
        manager: The HTTP connection manager; absent for pieces.
        listener: The listener around it; absent for pieces.
        filters: All HTTP filters of the manager, in order, also the router's.
        routes: Routes on which the filter runs.
        routes_known: Whether ``routes`` are all that there are.
        clusters: All clusters by name.
        clusters_known: Whether no other cluster can come from elsewhere.
        pieces: Whether this is made of pieces outside of a manager.
        istio: Whether the pieces are patches of Istio's, which see to the surroundings too.
        managers: The manager, or the pieces of one.
    """

    entry: Node
    filter: Node
    manager: Node
    listener: Node
    filters: tuple[Node, ...]
    routes: tuple[Route, ...]
    routes_known: bool
    clusters: dict[str, Node]
    clusters_known: bool
    pieces: bool = False
    istio: bool = False
    managers: tuple[Node, ...] = ()

    @cached_property
    def router_cluster_name(self) -> str:
        """The cluster that the filter calls."""
        return self.filter.at("grpc_service", "envoy_grpc", "cluster_name").text

    @cached_property
    def router_cluster(self) -> Node | None:
        """That cluster, if it is here."""
        return self.clusters.get(self.router_cluster_name)

    @cached_property
    def replica_clusters(self) -> list[Node]:
        """The clusters whose replicas the router chooses among."""
        if self.routes_known:
            names = dict.fromkeys(name for route in self.routes for name in route.clusters)
            return [self.clusters[name] for name in names if name in self.clusters]
        return [
            cluster
            for name, cluster in self.clusters.items()
            if name != self.router_cluster_name and override_host(cluster) is not None
        ]

    def before(self, *messages: str) -> list[Node]:
        """HTTP filters of these types that run before the router's."""
        return [item for item in self.filters[: self._place] if _type(item) in messages]

    def behind(self, *messages: str) -> list[Node]:
        """HTTP filters of these types that run after the router's."""
        return [item for item in self.filters[self._place + 1 :] if _type(item) in messages]

    @cached_property
    def _place(self) -> int:
        for place, item in enumerate(self.filters):
            if item.raw is self.entry.raw:
                return place
        return len(self.filters)

    @property
    def buffer_filter(self) -> Node | None:
        """The buffer filter before the router's, if there is one."""
        found = self.before("Buffer")
        return found[0] if found else None


def _type(item: Node) -> str:
    return item.at("typed_config").message


def override_host(cluster: Node) -> Node | None:
    """The ``OverrideHost`` of a cluster."""
    for node in cluster.at("load_balancing_policy").walk():
        if node.message == "OverrideHost":
            return node
    return None


def http_options(cluster: Node) -> Node:
    """The ``HttpProtocolOptions`` of a cluster."""
    return cluster.at("typed_extension_protocol_options", HTTP_OPTIONS)


class Layout:
    """What is in some documents.

    Args:
        documents: Of all files, in order.
    """

    def __init__(self, documents: Iterable[Node]) -> None:
        self._nodes = [node for document in documents for node in document.walk()]
        self.managers = [
            node
            for node in self._nodes
            if node.has("http_filters") and node.at("http_filters").is_sequence
        ]
        self.clusters = {
            node.at("name").text or f"(line {node.line})": node
            for node in self._nodes
            if _is_cluster(node)
        }
        self._dynamic = any(node.key in ("cds_config", "cdsConfig") for node in self._nodes)
        self._bootstrap = any(
            node.key in ("static_resources", "staticResources") for node in self._nodes
        )

    @property
    def istio(self) -> bool:
        """Whether there are patches of Istio's."""
        return any(node.key in ("configPatches", "config_patches") for node in self._nodes)

    def deployments(self) -> list[Deployment]:
        """One for each filter of ours, else one for what lies about without any."""
        found = [each for manager in self.managers for each in self._of_manager(manager)]
        processors = [
            node
            for node in self._loose
            if node.message == "ExternalProcessor" and not _is_merged_into(node)
        ]
        chosen = _ours(processors)
        if chosen:
            found += [self._of_pieces(node) for node in chosen]
        elif not found and self.clusters:
            found.append(self._of_pieces(None))
        return found

    def all_routes(self, manager: Node) -> list[Route]:
        """All routes of a manager, wherever they are configured."""
        configs = [manager.at("route_config")]
        if name := manager.at("rds", "route_config_name").text:
            configs = [
                node
                for node in self._nodes
                if node.at("virtual_hosts").is_sequence and node.at("name").text == name
            ]
        return [route for config in configs for route in _routes(config)]

    @cached_property
    def _loose(self) -> list[Node]:
        inside = {id(node.raw) for manager in self.managers for node in manager.walk()}
        return [node for node in self._nodes if id(node.raw) not in inside]

    def _of_manager(self, manager: Node) -> Iterator[Deployment]:
        filters = tuple(manager.at("http_filters").items)
        processors = [item for item in filters if _type(item) == "ExternalProcessor"]
        ours = _ours([item.at("typed_config") for item in processors])
        everything = self.all_routes(manager)
        known = bool(everything)
        for processor in ours:
            entry = processor.parent
            assert entry is not None
            yield Deployment(
                entry=entry,
                filter=processor,
                manager=manager,
                listener=_listener(manager),
                filters=filters,
                routes=tuple(route for route in everything if runs(entry, route)),
                routes_known=known,
                clusters=self.clusters,
                clusters_known=self._bootstrap and not self._dynamic,
                managers=(manager,),
            )

    def _of_pieces(self, processor: Node | None) -> Deployment:
        loose = self._loose
        nowhere = Node(loose[0].source, None, loose[0].mark)
        filters = tuple(
            node
            for node in loose
            if node.at("name").present and ".filters.http." in node.at("typed_config", "@type").text
        )
        entry = processor.parent if processor is not None else None
        return Deployment(
            entry=entry or nowhere,
            filter=processor or nowhere,
            manager=nowhere,
            listener=nowhere,
            filters=filters,
            routes=tuple(Route(node) for node in loose if _is_loose_route(node)),
            routes_known=False,
            clusters=self.clusters,
            clusters_known=False,
            pieces=True,
            istio=self.istio,
            managers=tuple(
                node for node in loose if node.at("early_header_mutation_extensions").present
            ),
        )


def runs(entry: Node, route: Route) -> bool:
    """Whether a filter runs on a route."""
    settings = route.per_filter(entry.at("name").text)
    if settings.present:
        return not settings.at("disabled").flag
    return not entry.at("disabled").flag


def _ours(processors: list[Node]) -> list[Node]:
    """Those with our settings or our name; where nobody has them, all."""
    marked = [node for node in processors if is_marked(node)]
    return marked or processors


def is_marked(processor: Node) -> bool:
    """Whether a filter has our settings or calls a cluster of our name."""
    service = processor.at("grpc_service")
    keys = [item.at("key").text for item in service.at("initial_metadata").items]
    name = service.at("envoy_grpc", "cluster_name").text
    return any(key.startswith(PREFIX) for key in keys) or "prefix-extproc" in name


def _is_merged_into(node: Node) -> bool:
    """Whether Istio merges it into a filter that is there already, so that it is only a part."""
    around = node.parent
    while around is not None and around.key != "patch":
        around = around.parent
    return around is not None and around.at("operation").text == "MERGE"


def _is_cluster(node: Node) -> bool:
    return node.has(*_CLUSTER_FIELDS) and node.key not in ("spec", "loadBalancer", "trafficPolicy")


def _is_loose_route(node: Node) -> bool:
    return node.has("route") and node.at("route").has("cluster", "timeout", "retry_policy")


def _routes(config: Node) -> Iterator[Route]:
    for host in config.at("virtual_hosts").items:
        for node in host.at("routes").items:
            if node.at("route").present:
                yield Route(node, (host, config))


def _listener(manager: Node) -> Node:
    node = manager.parent
    while node is not None and not node.at("filter_chains").present:
        node = node.parent
    return node or Node(manager.source, None, manager.mark)
