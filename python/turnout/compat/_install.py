"""Installs stand-ins in the place of another package's modules, and removes them again."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn, Protocol

_MISSING = object()
Undo = Callable[[], None]
# What a module gets, by name; or a function that says it for the module, which is imported or made here.
Contents = Mapping[str, Any] | Callable[[ModuleType], Mapping[str, Any]]


class Install(Protocol):
    """The type of ``install`` in each module of turnout.compat."""

    def __call__(self, force: bool = False) -> None: ...


def names_of(module: ModuleType) -> dict[str, Any]:
    """Returns a module's public functions and classes, and those it imports from turnout.compat, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("turnout.compat.")
    }


class _Placeholder(type):
    """The type of a name that a stand-in lacks: it can be imported, but using it raises an error.

    Because it is a class, it can also be a base class, part of an annotation, or the second argument of
    isinstance().
    """

    def __call__(cls, *arguments: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(cls.__doc__)

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(cls.__doc__)


def missing(package: str, names: Collection[str] | None, what: str) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a module that implements only ``what`` of another package.

    ``names`` are the package's names that the module lacks; None means every public name. Looking one up
    returns a placeholder, so that a program can import it without using it.
    """

    def find(name: str) -> Any:
        if name in names if names is not None else not name.startswith("_"):
            return placeholder(
                name,
                f"{name}: turnout.compat.{package} does not implement this name; Turnout has {what}",
            )
        raise AttributeError(f"turnout.compat.{package} has no attribute {name}; Turnout has {what}")

    return find


@functools.cache
def placeholder(name: str, message: str) -> Any:
    """A name that can be imported, and whose use raises this message."""
    return _Placeholder(name, (), {"__doc__": message})


# -- single steps, each of which returns what undoes it ----------------------------------------------------


def set_attribute(owner: Any, name: str, value: Any) -> Undo:
    """Sets an attribute of a module or a class."""
    before = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)

    def undo() -> None:
        if before is not _MISSING:
            setattr(owner, name, before)
        elif name in vars(owner):
            delattr(owner, name)

    return undo


def make_module(name: str, package: str, *, is_package: bool = False) -> ModuleType:
    """An empty module that stands in for one of ``package``, with a ``__spec__`` like an imported one."""
    module = ModuleType(name, f"Turnout's stand-in for {name}; see turnout.compat.{package}.")
    module.__spec__ = ModuleSpec(name, None, origin=f"turnout.compat.{package}", is_package=is_package)
    module.__package__ = name if is_package else name.rpartition(".")[0]
    if is_package:
        module.__path__ = []
    return module


def enter_module(name: str, package: str, contents: Mapping[str, Any]) -> Undo:
    """Enters a module in sys.modules without importing its parents, which then find it there.

    If a module of that name is imported already, its names are replaced.
    """
    module = sys.modules.get(name)
    if module is not None:
        steps = [set_attribute(module, attribute, value) for attribute, value in contents.items()]
        return lambda: undo_all(steps)
    module = make_module(name, package)
    vars(module).update(contents)
    sys.modules[name] = module

    def undo() -> None:
        if sys.modules.get(name) is module:
            del sys.modules[name]
        parent, _, child = name.rpartition(".")
        if vars(sys.modules.get(parent, module)).get(child) is module:
            delattr(sys.modules[parent], child)

    return undo


def enter_fallback(name: str, package: str, contents: Mapping[str, Any]) -> Undo:
    """Makes a module importable if the package itself does not have it."""
    finder = _Absent((name,), f"turnout.compat.{package}", contents=contents)
    sys.meta_path.append(finder)  # last: what the package has is found first
    return finder.remove


def enter_stubs(packages: Collection[str], asked_by: str) -> Undo:
    """Makes packages that are not installed importable, with all modules below them; using a name raises."""
    absent = tuple(name for name in packages if find_package(name) is None)

    def find(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"there is no {name} in a stub of {asked_by}")
        return placeholder(name, f"{name}: {', '.join(absent)} can be imported, but not used: see {asked_by}")

    finder = _Absent(absent, asked_by, find)
    sys.meta_path.append(finder)
    return finder.remove


def find_package(name: str) -> ModuleSpec | None:
    """The spec of an installed or imported package; None: there is none."""
    try:
        return importlib.util.find_spec(name)
    except ValueError:  # imported, without a spec
        return ModuleSpec(name, None)


def undo_all(steps: list[Undo]) -> None:
    """Undoes the last step first."""
    while steps:
        steps.pop()()


class _Absent(MetaPathFinder, Loader):
    """Finds modules that nothing else has found, and all modules below them."""

    def __init__(
        self,
        names: tuple[str, ...],
        origin: str,
        getattr: Callable[[str], Any] | None = None,
        contents: Mapping[str, Any] | None = None,
    ) -> None:
        self._names, self._origin = names, origin
        self._contents = {**(contents or {}), **({"__getattr__": getattr} if getattr else {})}

    def has(self, name: str) -> bool:
        return any(name == one or name.startswith(f"{one}.") for one in self._names)

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, origin=self._origin, is_package=True) if self.has(name) else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self._contents)

    def remove(self) -> None:
        sys.meta_path.remove(self)
        for name, module in [*sys.modules.items()]:
            if getattr(getattr(module, "__spec__", None), "loader", None) is self:
                del sys.modules[name]
                parent, _, child = name.rpartition(".")
                vars(sys.modules.get(parent, module)).pop(child, None)


class Installation:
    """The modules of a stand-in by their full names, with the contents of each.

    A module that does not exist is created, with a ``__spec__`` like that of an imported one. In an existing
    module, names are replaced or added; its other names stay.

    Args:
        package: the package that is replaced.
        modules: maps each module to its contents; a parent precedes its submodules. Contents may be a
            function of the module, called before the next module is imported, which may need the names.
        getattr: called for a name that a module created here lacks.
        absent: modules of the package that can be imported, but whose names cannot be used;
            ``absent_getattr`` provides them.
        keeps_package: whether other parts of the package are needed. If so and the package is installed, it
            is imported and names are replaced in it. Otherwise it is not searched for.
        registries: called last. Each registers names elsewhere and returns a function that removes them
            again, or None if there is nothing to register with.
    """

    def __init__(
        self,
        package: str,
        modules: Mapping[str, Contents],
        *,
        getattr: Callable[[str], Any] | None = None,
        absent: tuple[str, ...] = (),
        absent_getattr: Callable[[str], Any] | None = None,
        keeps_package: bool = False,
        registries: tuple[Callable[[], Undo | None], ...] = (),
    ) -> None:
        self._package = package
        self._modules = modules
        self._getattr = getattr
        self._absent = _Absent(absent, f"turnout.compat.{package}", absent_getattr) if absent else None
        self._keeps_package = keeps_package
        self._registries = registries
        self._imported_here: ModuleType | None = None
        self._undo: list[Undo] = []

    @property
    def is_installed(self) -> bool:
        return bool(self._undo)

    def install(self, force: bool = False) -> None:
        if self.is_installed:
            return
        imported = sys.modules.get(self._package)
        if imported is not None and imported is not self._imported_here and not force:
            where = getattr(imported, "__file__", None) or "another stand-in"
            raise RuntimeError(
                f"turnout.compat.{self._package}.install: {self._package} is already imported ({where}); "
                "call install before it is imported, or with force=True to replace its names"
            )
        if imported is None and self._keeps_package and importlib.util.find_spec(self._package) is not None:
            imported = self._imported_here = importlib.import_module(self._package)
        try:
            # Create all modules first: a package may have a function with the name of one of its modules.
            modules = []
            for name, contents in self._modules.items():
                modules.append(self._module(name, may_import=imported is not None))
                if callable(contents):
                    self._fill(modules[-1], contents(modules[-1]))
            for module, contents in zip(modules, self._modules.values(), strict=True):
                if not callable(contents):
                    self._fill(module, contents)
            if self._absent is not None:
                sys.meta_path.append(self._absent)  # after the finders of installed modules
                self._undo.append(self._absent.remove)
            for register in self._registries:
                undo = register()
                if undo is not None:
                    self._undo.append(undo)
        except BaseException:
            self.uninstall()
            raise

    def uninstall(self) -> None:
        undo_all(self._undo)

    def functions(self, example: str, more: str = "") -> tuple[Install, Undo]:
        """Returns the functions ``install`` and ``uninstall`` of ``turnout.compat.<package>``.

        Args:
            example: an import statement that finds these names once they are installed.
            more: text appended to the docstring of ``install``.
        """
        package = self._package

        def install(force: bool = False) -> None:
            self.install(force)

        def uninstall() -> None:
            """Undoes :func:`install`; does nothing if the names are not installed."""
            self.uninstall()

        install.__doc__ = (
            f"After this call, ``{example}`` finds these names, even if {package} is not installed.\n\n"
            f"A second call does nothing. If {package} is already imported, raises RuntimeError, because "
            "models may already use its names. With ``force``, it replaces those names, and the others stay. "
            f"{more}"
        ).rstrip()
        for function in (install, uninstall):
            function.__module__ = f"turnout.compat.{package}"
            function.__qualname__ = function.__name__
        return install, uninstall

    def _module(self, name: str, may_import: bool) -> ModuleType:
        if may_import:
            try:
                return importlib.import_module(name)
            except ImportError:
                pass  # the installed package lacks this module or cannot load it
        is_package = any(other.startswith(f"{name}.") for other in self._modules)
        module = make_module(name, self._package, is_package=is_package)
        if self._getattr is not None:
            module.__getattr__ = self._getattr
        sys.modules[name] = module
        self._undo.append(lambda: sys.modules.pop(name, None))
        parent, _, child = name.rpartition(".")
        if parent:
            self._fill(sys.modules[parent], {child: module})
        return module

    def _fill(self, module: ModuleType, contents: Mapping[str, Any]) -> None:
        for attribute, value in contents.items():
            self._undo.append(set_attribute(module, attribute, value))
