"""The scales of MoE re-routing. Design document 002 names none; these are from its public tests."""

from __future__ import annotations

import numpy as np

import turnout
from turnout import check
from turnout.check.scales.case import Cases, Data

cases = Cases("002")


def _data(
    rows: int,
    hidden: int,
    ranks: int,
    experts: int,
    dtype: str = "int8",
    *,
    counts: np.ndarray | None = None,
    count_type: str = "int32",
    scales: bool = False,
    idx_type: int = 0,
    expert_token_num_type: int = 1,
) -> Data:
    random = np.random.default_rng(1)
    if counts is None:
        runs = ranks * experts
        counts = random.multinomial(rows, np.full(runs, 1 / runs)).reshape(ranks, experts)
    counts = counts.astype(count_type)
    tokens = np.frombuffer(random.bytes(rows * hidden), np.int8).reshape(rows, hidden).astype(dtype)
    options = {
        "per_token_scales": random.random(rows, dtype=np.float32) if scales else None,
        "idx_type": idx_type,
        "expert_token_num_type": expert_token_num_type,
    }

    def without_none(results: tuple) -> tuple:
        return tuple(result for result in results if result is not None)

    def by_torch():
        import torch

        source, index = torch.from_numpy(tokens), definition()[-2]  # the index is computed beforehand
        rows, target = torch.from_numpy(index).long(), torch.empty_like(source)
        return lambda: torch.index_select(source, 0, rows, out=target).numpy()

    def definition() -> tuple:
        return without_none(check.moe_re_routing(tokens, counts, **options))

    names = ["permute_tokens", "permute_per_token_scales", "permute_token_idx", "expert_token_num"]
    out = (np.empty_like(tokens), None, None, None)
    return Data(
        f"tokens {rows} x {hidden} {dtype}, {ranks} ranks, {experts} experts, counts {count_type}",
        lambda: without_none(turnout.moe_re_routing(tokens, counts, **options, out=out)),
        definition,
        {name: 0.0 for name in names if scales or "scales" not in name},
        bytes_moved=2 * tokens.nbytes if rows > 1 else 0,
        torch=by_torch if idx_type == 0 else None,
    )


@cases.add("moe_re_routing", "largest")
def _largest() -> Data:
    return _data(16384, 7168, 16, 16)


@cases.add("moe_re_routing", "256 tokens, float16, scales")
def _float16() -> Data:
    return _data(256, 7168, 16, 16, "float16", scales=True)


@cases.add("moe_re_routing", "256 tokens, int64 counts, cumulative, scatter index")
def _int64() -> Data:
    return _data(256, 7168, 16, 16, count_type="int64", scales=True, idx_type=1, expert_token_num_type=0)


@cases.add("moe_re_routing", "one token")
def _one() -> Data:
    return _data(1, 7168, 16, 16)


@cases.add("moe_re_routing", "no token")
def _none() -> Data:
    return _data(0, 128, 2, 3, scales=True)


@cases.add("moe_re_routing", "by hand")
def _by_hand() -> Data:
    return _data(8, 16, 2, 2, counts=np.array([[2, 1], [3, 2]]))


@cases.add("moe_re_routing", "empty ranks and experts")
def _zeros() -> Data:
    return _data(9, 128, 4, 4, counts=np.array([[0, 3, 0, 1], [0] * 4, [0, 2, 0, 0], [0, 0, 0, 3]]))


@cases.add("moe_re_routing", "hidden 16384")
def _longest() -> Data:
    return _data(64, 16384, 4, 4)
