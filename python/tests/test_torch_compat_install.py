"""install() and uninstall() of turnout.compat."""

import importlib
import importlib.util
import inspect
import pickle
import subprocess
import sys

import pytest
import torch

from turnout import compat
from turnout.compat import fast_rnnt as our_fast_rnnt
from turnout.compat import k2 as our_k2
from turnout.compat import mmcv as our_mmcv
from turnout.compat import spconv as our_spconv
from turnout.compat import torch_npu as our_torch_npu
from turnout.compat import torch_scatter as our_torch_scatter
from turnout.compat import torchaudio as our_torchaudio
from turnout.compat._install import Installation

pytestmark = pytest.mark.torch

# A package on disk with a part of the installation's names.
FILES = {
    "thing/__init__.py": "answer = 42",
    "thing/ops/__init__.py": "from thing.ops.grid import Grid\nnms = 7",
    "thing/ops/grid.py": "class Grid: pass",
}


class Grid:
    pass


class Scatter:
    pass


@pytest.fixture
def installation():
    made = Installation(
        "thing",
        {
            "thing": {},
            "thing.ops": {"Grid": Grid, "Scatter": Scatter},
            "thing.ops.grid": {"Grid": Grid},
            "thing.ops.scatter": {"Scatter": Scatter},
        },
    )
    yield made
    made.uninstall()
    for name in [name for name in sys.modules if name.split(".")[0] == "thing"]:
        del sys.modules[name]


@pytest.fixture
def on_disk(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)


def test_stand_ins(installation):
    installation.install()
    installation.install()  # the second call does nothing
    ops = importlib.import_module("thing.ops")
    assert ops.Grid is ops.grid.Grid is importlib.import_module("thing.ops.grid").Grid is Grid
    assert ops.scatter.Scatter is Scatter
    for name in ("thing", "thing.ops", "thing.ops.grid"):
        spec = importlib.util.find_spec(name)
        assert sys.modules[name].__spec__ is spec
        assert (spec.name, spec.origin) == (name, "turnout.compat.thing")
        assert (spec.submodule_search_locations is None) == (name == "thing.ops.grid")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("thing.cnn")
    installation.uninstall()
    installation.uninstall()
    assert not [name for name in sys.modules if name.split(".")[0] == "thing"]
    assert importlib.util.find_spec("thing") is None
    installation.install()
    assert importlib.import_module("thing.ops").Grid is Grid


@pytest.mark.usefixtures("on_disk")
def test_refused_when_the_package_is_imported(installation):
    thing = importlib.import_module("thing")
    with pytest.raises(RuntimeError) as caught:
        installation.install()
    assert str(caught.value) == (
        f"turnout.compat.thing.install: thing is already imported ({thing.__file__}); call install before "
        "it is imported, or with force=True to replace its names"
    )
    assert "thing.ops" not in sys.modules
    assert vars(thing).keys() & {"ops"} == set()


@pytest.mark.usefixtures("on_disk")
@pytest.mark.parametrize("imported", ["thing", "thing.ops"])
def test_force_replaces_names_and_keeps_the_others(installation, imported):
    importlib.import_module(imported)
    installation.install(force=True)
    thing, ops, grid = (importlib.import_module(name) for name in ("thing", "thing.ops", "thing.ops.grid"))
    assert ops.Grid is grid.Grid is Grid
    assert ops.Scatter is importlib.import_module("thing.ops.scatter").Scatter is Scatter
    assert (thing.answer, ops.nms) == (42, 7)
    installation.uninstall()
    assert ops.Grid is grid.Grid is not Grid
    assert not hasattr(ops, "Scatter") and not hasattr(ops, "scatter")
    assert "thing.ops.scatter" not in sys.modules
    assert sys.modules["thing.ops.grid"] is grid


@pytest.mark.usefixtures("on_disk")
def test_uninstall_gives_the_package_back(installation):
    installation.install()
    assert importlib.import_module("thing.ops").Grid is Grid
    installation.uninstall()
    ops = importlib.import_module("thing.ops")
    assert ops.Grid is not Grid
    assert ops.nms == 7


@pytest.mark.usefixtures("on_disk")
def test_a_package_that_is_kept_is_imported(installation):
    """Other parts of it are needed. A second installation accepts it, because we imported it."""
    installation._keeps_package = True
    for _ in range(2):
        installation.install()
        thing, ops = importlib.import_module("thing"), importlib.import_module("thing.ops")
        assert ops.Grid is Grid and (thing.answer, ops.nms) == (42, 7)
        installation.uninstall()
        assert ops.Grid is not Grid and not hasattr(ops, "Scatter")
        assert sys.modules["thing.ops"] is ops
    del sys.modules["thing"]
    importlib.import_module("thing")
    with pytest.raises(RuntimeError, match="thing is already imported"):
        installation.install()


def test_registries_are_undone_also_when_a_later_one_fails():
    entries = []

    def enter():
        entries.append("entered")
        return entries.clear

    def fail():
        raise OSError

    made = Installation("thing", {"thing": {}}, registries=(enter, lambda: None))
    made.install()
    assert entries == ["entered"]
    made.uninstall()
    assert entries == []
    made = Installation("thing", {"thing": {}}, registries=(enter, fail))
    with pytest.raises(OSError):
        made.install()
    assert entries == [] and not made.is_installed and "thing" not in sys.modules


# -- mmcv: absent, mmcv-lite without operators, and complete -----------------------------------------------

MMENGINE = {
    "mmengine/__init__.py": "",
    "mmengine/registry.py": """
class Registry:
    def __init__(self):
        self._module_dict = {}
    @property
    def module_dict(self):
        return self._module_dict
    def _register_module(self, module, module_name=None, force=False):
        if not force and module_name in self._module_dict:
            raise KeyError(module_name)
        self._module_dict[module_name] = module
MODELS = Registry()
""",
}
LITE = {
    "mmcv/__init__.py": "__version__ = '2.2.0'",
    "mmcv/cnn.py": "def build_conv_layer(): pass",
    "mmcv/ops/__init__.py": "import mmcv._ext",
}
WHOLE = {
    **LITE,
    "mmcv/_ext.py": "",
    "mmcv/ops/__init__.py": "from mmcv.ops.sparse_conv import SparseConv3d\nnms = 7",
    "mmcv/ops/sparse_conv.py": """
from mmengine.registry import MODELS
class SparseConv3d: pass
MODELS._register_module(SparseConv3d, "SparseConv3d")
""",
}


@pytest.fixture
def packages(tmp_path, monkeypatch, request):
    """Makes these files the only mmcv and mmengine."""
    names = {"mmcv", "mmengine"}
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] in names}
    for name in before:
        del sys.modules[name]
    for name, text in request.param.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield request.param
    our_mmcv.uninstall()
    for name in [name for name in sys.modules if name.split(".")[0] in names]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.parametrize(
    "packages",
    [MMENGINE, {**MMENGINE, **LITE}, {**MMENGINE, **WHOLE}],
    indirect=True,
    ids=["absent", "lite", "whole"],
)
def test_mmcv_and_the_registry(packages):
    """After install(), models find the names and build layers by name; uninstall() undoes all of it."""
    our_mmcv.install()
    our_mmcv.install()
    from mmcv.ops import SparseConv3d, SparseConvTensor, SubMConv3d
    from mmcv.ops.sparse_conv import SparseConv3d as Again
    from mmengine.registry import MODELS

    assert SparseConv3d is Again is our_mmcv.SparseConv3d and SparseConvTensor is our_mmcv.SparseConvTensor
    assert MODELS.module_dict["SparseConv3d"] is SparseConv3d
    assert MODELS.module_dict["SubMConv3d"] is SubMConv3d
    assert MODELS.module_dict["SubMConv3d"](3, 4, 3, stride=1, padding=1, bias=False).weight.shape == (
        3,
        3,
        3,
        3,
        4,
    )
    spec = importlib.util.find_spec("mmcv.ops")
    assert spec is sys.modules["mmcv.ops"].__spec__ and spec.name == "mmcv.ops"
    if "mmcv/cnn.py" in packages:
        assert importlib.import_module("mmcv.cnn").build_conv_layer is not None
        assert importlib.import_module("mmcv").__version__ == "2.2.0"
    is_whole = packages.get("mmcv/ops/__init__.py") == WHOLE["mmcv/ops/__init__.py"]
    if is_whole:
        assert importlib.import_module("mmcv.ops").nms == 7
    our_mmcv.uninstall()
    assert sorted(MODELS.module_dict) == (["SparseConv3d"] if is_whole else [])
    if is_whole:
        theirs = importlib.import_module("mmcv.ops").SparseConv3d
        assert theirs is not SparseConv3d and MODELS.module_dict["SparseConv3d"] is theirs
    else:
        assert "mmcv.ops" not in sys.modules
    our_mmcv.install()
    assert importlib.import_module("mmcv.ops").SparseConv3d is SparseConv3d
    assert MODELS.module_dict["SparseConv3d"] is SparseConv3d


@pytest.mark.parametrize("packages", [{**MMENGINE, **WHOLE}], indirect=True)
def test_mmcv_that_is_already_imported(packages):
    mmcv = importlib.import_module("mmcv")
    with pytest.raises(RuntimeError, match="mmcv is already imported"):
        our_mmcv.install()
    assert mmcv.__file__.endswith("mmcv/__init__.py") and "mmcv.ops" not in sys.modules
    our_mmcv.install(force=True)
    assert importlib.import_module("mmcv.ops").SparseConv3d is our_mmcv.SparseConv3d


@pytest.mark.parametrize("packages", [{}], indirect=True)
@pytest.mark.skipif(importlib.util.find_spec("mmcv") is not None, reason="mmcv is installed")
def test_mmcv(packages):
    our_mmcv.install()
    try:
        from mmcv.ops import DynamicScatter, Voxelization, dynamic_scatter, voxelization
        from mmcv.ops import sparse_functional as Fsp  # noqa: N812
        from mmcv.ops.scatter_points import DynamicScatter as Scatter
        from mmcv.ops.sparse_functional import SubMConvFunction, indice_conv
        from mmcv.ops.sparse_modules import RemoveGrid, ToDense, is_sparse_conv  # noqa: F401
        from mmcv.ops.sparse_ops import fused_indice_conv, get_indice_pairs, indice_conv_backward  # noqa: F401
        from mmcv.ops.voxelize import Voxelization as Voxels

        assert Voxelization is Voxels is our_mmcv.Voxelization
        assert DynamicScatter is Scatter is our_mmcv.DynamicScatter
        assert get_indice_pairs is our_mmcv.get_indice_pairs
        assert Fsp.indice_conv is indice_conv and Fsp.indice_subm_conv is SubMConvFunction.apply
        assert (voxelization, dynamic_scatter) == (our_mmcv.voxelization, our_mmcv.dynamic_scatter)
        with pytest.raises(ImportError, match="nms"):
            from mmcv.ops import nms  # noqa: F401
    finally:
        our_mmcv.uninstall()
    assert not [name for name in sys.modules if name.split(".")[0] == "mmcv"]


@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is not None, reason="torch_npu is installed")
def test_torch_npu():
    our_torch_npu.install()
    try:
        import torch_npu

        tokens, counts = torch.ones(4, 2), torch.tensor([[3, 1]])
        assert torch.equal(torch_npu.npu_moe_re_routing(tokens, counts, tokens_dtype=None)[0], tokens)
    finally:
        our_torch_npu.uninstall()
    assert "torch_npu" not in sys.modules


@pytest.mark.skipif(importlib.util.find_spec("k2") is not None, reason="k2 is installed")
def test_k2():
    our_k2.install()
    try:
        import k2
        from k2 import rnnt_loss
        from k2.rnnt_loss import get_hat_logprobs_pruned, rnnt_loss_pruned

        # The function has the same name as a module of the package.
        assert k2.rnnt_loss is rnnt_loss is our_k2.rnnt_loss
        assert rnnt_loss_pruned is our_k2.rnnt_loss_pruned
        assert get_hat_logprobs_pruned is our_k2.get_hat_logprobs_pruned
        assert k2.with_cuda is False
        from k2 import Fsa, intersect_dense

        with pytest.raises(NotImplementedError) as caught:
            intersect_dense(1, 2)
        assert str(caught.value) == (
            "intersect_dense: turnout.compat.k2 does not implement this name; Turnout has its RNN-T losses "
            "and the recursions under them"
        )
        assert not isinstance(intersect_dense, Fsa) and k2.Fsa is Fsa
        assert not hasattr(k2, "nothing_like_this")
    finally:
        our_k2.uninstall()
    assert not [name for name in sys.modules if name.split(".")[0] == "k2"]


@pytest.mark.skipif(importlib.util.find_spec("fast_rnnt") is not None, reason="fast_rnnt is installed")
def test_fast_rnnt():
    our_fast_rnnt.install()
    try:
        import fast_rnnt

        assert fast_rnnt.rnnt_loss is our_fast_rnnt.rnnt_loss
        assert fast_rnnt.with_cuda() is False
        with pytest.raises(
            NotImplementedError, match=r"get_rnnt_prune_ranges_deprecated: turnout.compat.fast"
        ):
            fast_rnnt.get_rnnt_prune_ranges_deprecated()
    finally:
        our_fast_rnnt.uninstall()
    assert "fast_rnnt" not in sys.modules


def test_torchaudio():
    """Runs in its own process, because an installed torchaudio may fail to import."""
    program = (
        "from turnout.compat import torchaudio as ours; ours.install()\n"
        "import torchaudio; from torchaudio.transforms import RNNTLoss\n"
        "assert RNNTLoss is ours.RNNTLoss and torchaudio.functional.rnnt_loss is ours.rnnt_loss\n"
        "try: torchaudio.load('file')\n"
        "except NotImplementedError as error: assert 'load: turnout.compat.torchaudio' in str(error)\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    with pytest.raises(
        NotImplementedError, match=r"load: turnout.compat.torchaudio does not implement this name"
    ):
        our_torchaudio.load()
    with pytest.raises(AttributeError, match=r"io: turnout.compat.torchaudio does not implement this name"):
        our_torchaudio.io.StreamReader  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute lod; Turnout has its RNN-T loss"):
        our_torchaudio.lod  # noqa: B018


def test_names():
    for module in (
        our_fast_rnnt,
        our_k2,
        our_mmcv,
        our_spconv,
        our_torch_npu,
        our_torch_scatter,
        our_torchaudio,
    ):
        assert all(hasattr(module, name) for name in module.__all__)
    assert compat.__doc__


@pytest.mark.parametrize(
    "name",
    ["fast_rnnt", "k2", "mmcv", "pointops", "spconv", "torch_cluster", "torch_npu", "torchaudio", "tutel"],
)
def test_install_and_uninstall_are_functions_of_their_module(name):
    module = importlib.import_module(f"turnout.compat.{name}")
    for function in (module.install, module.uninstall):
        assert pickle.loads(pickle.dumps(function)) is function and function.__doc__
    assert str(inspect.signature(module.install)) == "(force: 'bool' = False) -> 'None'"
    assert f"If {name} is already imported, raises RuntimeError" in module.install.__doc__


def test_compat_itself_needs_no_torch():
    program = "import sys; sys.modules['torch'] = None; import turnout.compat, turnout.compat._install"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
