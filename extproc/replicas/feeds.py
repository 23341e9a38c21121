"""From a discovery URL to what follows it."""

from extproc.replicas.discovery_url import parse_target
from extproc.replicas.dns import dns_feed
from extproc.replicas.eds import EdsFeed
from extproc.replicas.envoy_admin import AdminFeed
from extproc.replicas.envoy_file import FileFeed
from extproc.replicas.target import (
    AdminTarget,
    DnsTarget,
    EdsTarget,
    FileTarget,
    SrvTarget,
)
from extproc.replicas.watch import Feed


def open_feed(url: str) -> Feed:
    """The feed of a valid URL; nothing is sent before it is followed."""
    match parse_target(url):
        case AdminTarget() as target:
            return AdminFeed(target)
        case DnsTarget() | SrvTarget() as target:
            return dns_feed(target)
        case FileTarget() as target:
            return FileFeed(target)
        case EdsTarget() as target:
            return EdsFeed(target)
