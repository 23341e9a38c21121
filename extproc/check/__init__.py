"""Reads Envoy's configuration and the meshes' manifests, and names what would go wrong.

``nodes`` is YAML or JSON with positions, ``layout`` finds the router's filter and what belongs to
it, the ``*_rules`` modules have the rules, ``edits`` mends text and keeps comments and order.
"""
