"""What every metadata store that has the nodes /a and /a/b must refuse, and why."""

from ottla.cluster.metadata_store import BadVersion, Create, Delete, NodeExists, NoNode, NotEmpty, Set, VersionCheck

REFUSALS = [
    (Create("/a"), NodeExists),
    (Create("/no/parent"), NoNode),
    (Set("/no", b""), NoNode),
    (Set("/a", b"", version=7), BadVersion),
    (Delete("/no"), NoNode),
    (Delete("/a"), NotEmpty),
    (Delete("/a/b", version=3), BadVersion),
    (VersionCheck("/a", 4), BadVersion),
    (VersionCheck("/no", 0), NoNode),
]
