"""bench/sweep: a point can be repeated by its name; wrong results and lost threads are reported."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from sweep import main, measure, report, table
from sweep.point import Case, Data, Point, drawn, named

del sys.path[0]


def made(us=10.0, peer_us=10.0, threads=1, point="call,f32,rows=4"):
    return measure.Measured(point, threads, 4, us, "peer", peer_us)


def stub(own, peer, tolerance=1e-4):
    return Point(Case("call", lambda data: (own, {"peer": peer}), ("f32",), {}, 1, 1, tolerance), "f32", ())


@pytest.fixture(autouse=True)
def threads():
    before = measure.turnout.get_num_threads(), torch.get_num_threads()
    yield
    measure.turnout.set_num_threads(before[0])
    torch.set_num_threads(before[1])


def test_the_default_sweep_has_enough_points_of_every_case():
    points = drawn(main.parse([]).count, 0, list(table.CASES.values()))
    assert 2 * len(points) >= 1500
    assert {point.case.name for point in points} == set(table.CASES)
    assert all(point.elements <= point.case.most for point in points)


def test_points_depend_on_the_seed_only():
    cases = list(table.CASES.values())
    names = [point.name for point in drawn(200, 3, cases)]
    assert names == [point.name for point in drawn(200, 3, cases)]
    assert names != [point.name for point in drawn(200, 4, cases)]
    assert len(set(names)) == len(names)


def test_a_name_gives_the_same_point_and_the_same_data():
    point = drawn(1, 0, [table.CASES["moe_combine"]])[0]
    again = named(point.name)
    assert again == point
    assert torch.equal(measure.tensors(point.programs()[0]())[0], measure.tensors(again.programs()[0]())[0])


@pytest.mark.parametrize(
    "name",
    [
        "none,f32,rows=1",
        "scatter_sum",
        "scatter_sum,f64,rows=1,channels=1,per_group=1",
        "scatter_sum,f32,rows=1",
        "scatter_sum,f32,rows=0,channels=1,per_group=1",
        "scatter_sum,f32,rows=x,channels=1,per_group=1",
    ],
)
def test_a_misspelt_point_is_refused(name):
    with pytest.raises(SystemExit, match="point is"):
        named(name)


@pytest.mark.parametrize("case", table.CASES.values(), ids=list(table.CASES))
def test_every_call_agrees_with_its_peers(case):
    smallest = replace(case, sizes={name: values[1:2] or values for name, values in case.sizes.items()})
    for dtype in case.dtypes:
        point = Point(smallest, dtype, tuple((name, values[0]) for name, values in smallest.sizes.items()))
        own, peers = point.programs()
        assert peers
        for name, peer in peers.items():
            measure.verify(point, name, own(), peer())


@pytest.mark.parametrize(
    "wrong", [torch.tensor([1.0, 2.5]), torch.tensor([1.0]), torch.tensor([1.0, float("nan")])]
)
def test_a_wrong_result_is_reported_and_not_timed(wrong, monkeypatch):
    monkeypatch.setattr(measure, "burst", lambda *_: pytest.fail("a wrong program was timed"))
    point = stub(lambda: wrong, lambda: torch.tensor([1.0, 2.0]))
    done, found, losses = measure.sweep([point], 10, lambda _: None)
    assert not done
    assert not losses
    assert len(found) == 1
    assert found[0].startswith("call,f32: result 0")


def test_integers_must_be_equal():
    point = stub(lambda: torch.tensor([1000001]), lambda: torch.tensor([1000000]))
    with pytest.raises(measure.WrongResultError):
        measure.verify(point, "peer", torch.tensor([1000001]), torch.tensor([1000000]))


def test_a_second_thread_that_loses_is_reported(monkeypatch):
    def slow(point, *_):
        return [made(us=100, threads=1), made(us=150, threads=2)]

    monkeypatch.setattr(measure, "measure", slow)
    point = stub(lambda: None, lambda: None)
    done, wrong, losses = measure.sweep([point], 10, lambda _: None)
    assert len(done) == 2
    assert not wrong
    assert losses == ["call,f32: 100.0 us on one thread, 150.0 us on two"]
    assert not measure.lost(made(us=100), made(us=105))
    assert not measure.lost(made(us=2), made(us=4))


def test_a_point_is_measured_on_one_and_two_threads():
    x = torch.ones(4)
    one, two = measure.measure(stub(lambda: x, lambda: x.clone()), rounds=1, least=0)
    assert (one.threads, two.threads, one.peer) == (1, 2, "peer")
    assert min(one.us, one.peer_us, two.us, two.peer_us) > 0


def test_shares():
    points = [made(us=10, peer_us=9), made(us=10, peer_us=7), made(us=6, peer_us=4), made(us=1, peer_us=2)]
    assert [m.excused for m in points] == [False, False, True, True]
    text = report.summary(points)
    assert "4 points; the peer is faster in 75.0 %, below 0.8 in 50.0 % (25.0 %" in text
    lines = report.worst(points, 2).splitlines()
    assert lines[0].startswith("0.70")
    assert lines[1].strip() == "./dev bench sweep --point call,f32,rows=4"


def test_two_sweeps_are_compared_by_their_ratios(tmp_path):
    before = [made(us=10, peer_us=10), made(us=10, peer_us=10, threads=2)]
    after = [made(us=20, peer_us=20), made(us=12, peer_us=10, threads=2)]
    report.save(tmp_path / "before.json", before, {"cpu": "x"}, "command")
    assert report.load(tmp_path / "before.json") == before
    text = report.compared(report.load(tmp_path / "before.json"), after)
    assert text.startswith("2 common points: 50.0 % slower by more than 5%, 0.0 % faster")
    assert report.compared([], after) == "no common points"


def test_map(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    report.draw([made(), made(threads=2)], tmp_path / "map.svg", "title")
    assert "call" in (tmp_path / "map.svg").read_text()


def test_data_depends_on_the_seed():
    assert torch.equal(Data("f32", 1).values(8), Data("f32", 1).values(8))
    assert not torch.equal(Data("f32", 1).values(8), Data("f32", 2).values(8))
