"""The roles of the tree-walk family: a client and a server for each mechanism, over a `Party`."""

from veilring.protocols.treewalk.roles.blur import blur_client, blur_server
from veilring.protocols.treewalk.roles.bucket import bucket_client, bucket_server
from veilring.protocols.treewalk.roles.found import Nearest
from veilring.protocols.treewalk.roles.keeper import Keeper
from veilring.protocols.treewalk.roles.walk import walk_client, walk_server

__all__ = (
    "Keeper",
    "Nearest",
    "blur_client",
    "blur_server",
    "bucket_client",
    "bucket_server",
    "walk_client",
    "walk_server",
)
