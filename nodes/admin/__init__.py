"""What operators see of nodes, by subject. Acts go through nodes.fleet and nodes.incidents."""

from nodes.admin import gpus, incidents, leases, ledger, nodes

__all__ = ["gpus", "incidents", "leases", "ledger", "nodes"]
