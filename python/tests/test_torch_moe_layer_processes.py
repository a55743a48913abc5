"""moe_layer on four processes equals one process, also with DistributedDataParallel and FSDP2."""

import processes
import pytest

pytestmark = pytest.mark.torch


def test_processes_give_what_one_gives():
    """moe_layer_program.py defines the comparisons; one of the processes has no tokens."""
    assert processes.run_well(4, "moe_layer_program", "everything") == ["same\n"] * 4


def test_a_missing_rank_is_named():
    (status, output), _ = processes.run(2, "moe_layer_program", "a_rank_dies")
    assert (status, output) == (0, "named\n"), output
