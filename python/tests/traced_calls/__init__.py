"""A valid call of every torch operator, which test_torch_traced.py breaks: one module per family.

Every module has CALLS, the arguments of each operator by name. The tests give each tensor another dtype, rank
and number of rows, and each time the call must be refused. The rest is optional:

- FREE_RANK, FREE_ROWS: pairs (operator, tensor) for which another rank or number of rows is valid
- WRONG: pairs (operator, changes) of further calls that must be refused
- WITHOUT_GRADIENT: operators that refuse tensors that require grad
- DYNAMIC_SIZE: operators with a result whose size depends on values, and how messages call it
"""

import importlib
import pkgutil

_modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]


def _all(kind: str) -> list:
    return [item for module in _modules for item in getattr(module, kind, ())]


CALLS = {name: call for module in _modules for name, call in module.CALLS.items()}
WRONG = _all("WRONG")
FREE_RANK, FREE_ROWS = set(_all("FREE_RANK")), set(_all("FREE_ROWS"))
WITHOUT_GRADIENT = set(_all("WITHOUT_GRADIENT"))
DYNAMIC_SIZE = {name: what for m in _modules for name, what in getattr(m, "DYNAMIC_SIZE", {}).items()}
