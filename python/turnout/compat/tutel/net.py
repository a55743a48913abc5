"""Tutel's ``net``: collectives, process groups, and the distributed optimizer."""

from turnout.compat.tutel.collectives import (
    all_to_all,
    barrier,
    get_world_rank,
    get_world_size,
    simple_all_gather,
    simple_all_reduce,
    simple_broadcast,
    simple_reduce_scatter,
    simple_split,
    zero_gather,
    zero_scatter,
)
from turnout.compat.tutel.groups import create_groups_from_world
from turnout.compat.tutel.optimizer import TutelDistributedOptimizer

__all__ = [
    "TutelDistributedOptimizer",
    "all_to_all",
    "barrier",
    "create_groups_from_world",
    "get_world_rank",
    "get_world_size",
    "simple_all_gather",
    "simple_all_reduce",
    "simple_broadcast",
    "simple_reduce_scatter",
    "simple_split",
    "zero_gather",
    "zero_scatter",
]
