"""How the names of another package are put in its place, and taken out again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_MISSING = object()


def missing(package: str, names: Collection[str], what: str) -> Callable[[str], Any]:
    """``__getattr__`` of a module that has a part of another package: ``what`` is that part.

    Of a name that the package has and the module does not, the sentence is an ImportError: as an
    AttributeError it would be lost in ``from package import name``.
    """

    def refuse(name: str) -> Any:
        if name in names:
            raise ImportError(f"turnout.compat.{package}: {package}.{name} is not here; Turnout has {what}")
        raise AttributeError(f"turnout.compat.{package}: there is no {name}; Turnout has {what}")

    return refuse


class Installation:
    """Modules of a package, by their full names, with what each of them has.

    A module that is not there is made, with a ``__spec__`` like that of an imported one. In a module that is
    there, with ``force``, names are replaced or added, and the others stay.
    """

    def __init__(
        self, package: str, modules: dict[str, dict[str, Any]], getattr: Callable | None = None
    ) -> None:
        """``getattr`` is called for a name that a module made here does not have."""
        self._package = package
        self._modules = modules
        self._getattr = getattr
        self._made: list[str] = []
        self._replaced: list[tuple[ModuleType, str, Any]] = []

    @property
    def is_installed(self) -> bool:
        return bool(self._made or self._replaced)

    def install(self, force: bool = False) -> None:
        if self.is_installed:
            return
        imported = sys.modules.get(self._package)
        if imported is not None and not force:
            where = getattr(imported, "__file__", None) or "another stand-in"
            raise RuntimeError(
                f"turnout.compat.{self._package}.install: {self._package} is imported already ({where}); "
                "install before it is imported, or with force=True to replace its names"
            )
        try:
            # All modules first: a package may have a function of the name of one of its modules.
            modules = [self._module(name, may_import=imported is not None) for name in self._modules]
            for module, contents in zip(modules, self._modules.values(), strict=True):
                for attribute, value in contents.items():
                    self._set(module, attribute, value)
        except BaseException:
            self.uninstall()
            raise

    def uninstall(self) -> None:
        for module, attribute, before in reversed(self._replaced):
            if before is _MISSING:
                module.__dict__.pop(attribute, None)
            else:
                setattr(module, attribute, before)
        for name in self._made:
            sys.modules.pop(name, None)
        self._replaced.clear()
        self._made.clear()

    def _module(self, name: str, may_import: bool) -> ModuleType:
        if may_import:
            try:
                return importlib.import_module(name)
            except ImportError:
                pass  # a part that this installation of the package does not have
        module = ModuleType(name, f"Turnout in place of {name}: see turnout.compat.{self._package}.")
        is_package = any(other.startswith(f"{name}.") for other in self._modules)
        module.__spec__ = ModuleSpec(
            name, None, origin=f"turnout.compat.{self._package}", is_package=is_package
        )
        module.__package__ = name if is_package else name.rpartition(".")[0]
        if is_package:
            module.__path__ = []
        if self._getattr is not None:
            module.__getattr__ = self._getattr
        sys.modules[name] = module
        self._made.append(name)
        parent, _, child = name.rpartition(".")
        if parent:
            self._set(sys.modules[parent], child, module)
        return module

    def _set(self, module: ModuleType, attribute: str, value: Any) -> None:
        self._replaced.append((module, attribute, module.__dict__.get(attribute, _MISSING)))
        setattr(module, attribute, value)
