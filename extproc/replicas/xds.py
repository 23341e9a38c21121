"""The xDS protocol for one ``ClusterLoadAssignment``: responses in, requests out. No I/O.

Source: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
"""

from typing import Any, NamedTuple

from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError

from extproc.replicas.assignment import hosts_of, numeric
from extproc.replicas.endpoint import Endpoint, SourceError

TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
_INVALID_ARGUMENT = 3


class Taken(NamedTuple):
    """What follows from a response.

    Attributes:
        reply: The request that acknowledges it, or refuses it.
        endpoints: Who is there now; None where the response does not say.
        problem: Why the response is no good, after the words "control plane …"; else empty.
    """

    reply: Any
    endpoints: list[Endpoint] | None = None
    problem: str = ""


class StateOfTheWorld:
    """The protocol whose responses tell everything that was asked for.

    Args:
        resource: The resource's name.
        node: What we call ourselves.
    """

    def __init__(self, resource: str, node: str) -> None:
        self._resource = resource
        self._node = node
        self._version = ""

    def first(self) -> Any:
        """The first request of a stream; it tells which version is there from an earlier one."""
        request = self._request("")
        request.node.id = self._node
        request.node.cluster = "prefix-extproc"
        return request

    def take(self, response: Any) -> Taken:
        """Take in a ``DiscoveryResponse``."""
        reply = self._request(response.nonce)
        try:
            found = _assignment(response.resources, self._resource)
        except SourceError as error:
            reply.error_detail.code = _INVALID_ARGUMENT
            reply.error_detail.message = str(error)
            return Taken(reply, problem=f"sent what cannot be used: {error}")
        self._version = reply.version_info = response.version_info
        if found is None:  # for assignments, not to be there does not mean to be removed
            return Taken(reply, problem=f"tells others than {self._resource!r}: does it exist?")
        return Taken(reply, found)

    def _request(self, nonce: str) -> Any:
        return discovery_pb2.DiscoveryRequest(
            version_info=self._version,
            resource_names=[self._resource],
            type_url=TYPE,
            response_nonce=nonce,
        )


class Delta:
    """The protocol whose responses tell what is new; see ``StateOfTheWorld``."""

    def __init__(self, resource: str, node: str) -> None:
        self._resource = resource
        self._node = node
        self._version = ""

    def first(self) -> Any:
        """The first request of a stream; it tells which version is there from an earlier one."""
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=TYPE, resource_names_subscribe=[self._resource]
        )
        request.node.id = self._node
        request.node.cluster = "prefix-extproc"
        if self._version:
            request.initial_resource_versions[self._resource] = self._version
        return request

    def take(self, response: Any) -> Taken:
        """Take in a ``DeltaDiscoveryResponse``."""
        reply = discovery_pb2.DeltaDiscoveryRequest(type_url=TYPE, response_nonce=response.nonce)
        ours = [each for each in response.resources if each.name == self._resource]
        try:
            found = _assignment([each.resource for each in ours], self._resource)
        except SourceError as error:
            reply.error_detail.code = _INVALID_ARGUMENT
            reply.error_detail.message = str(error)
            return Taken(reply, problem=f"sent what cannot be used: {error}")
        if found is not None:
            self._version = ours[-1].version
        elif self._resource in response.removed_resources:
            self._version = ""
            return Taken(reply, problem=f"has removed {self._resource!r}")
        return Taken(reply, found)


def _assignment(resources: Any, name: str) -> list[Endpoint] | None:
    """The endpoints in the last of the resources that has the name.

    Raises:
        SourceError: A resource is no assignment, or not all its hosts have addresses.
    """
    found = None
    for wrapped in resources:
        message, inner = endpoint_pb2.ClusterLoadAssignment(), _unwrapped(wrapped)
        try:
            if not inner.Unpack(message):
                raise SourceError(f"{inner.type_url[:100]!r} where {TYPE!r} was asked for")
        except DecodeError:
            raise SourceError("a resource that cannot be decoded") from None
        if message.cluster_name == name:
            found = numeric(hosts_of(message))
    return found


def _unwrapped(resource: Any) -> Any:
    if not resource.Is(discovery_pb2.Resource.DESCRIPTOR):
        return resource
    wrapper = discovery_pb2.Resource()
    try:
        resource.Unpack(wrapper)
    except DecodeError:
        raise SourceError("a resource that cannot be decoded") from None
    return wrapper.resource
