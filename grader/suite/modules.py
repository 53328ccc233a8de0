"""Whose code is meant: imports the five files from the hand-in, or from the release.

`olmoe` and `a1` are namespace packages, so a list of folders decides. While a `Modules` is
entered, the edited modules come from the hand-in's folders, and a file listed in `replaced` (it
cannot be imported) comes from the release instead, so that exercises in other files go on.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from shared.assignment import assignment

from . import defaults
from .places import given_folders, released_folder


class Modules(importlib.abc.MetaPathFinder):
    """Imports of one hand-in; a context manager that leaves `sys` as it found it."""

    def __init__(
        self,
        folders: Iterable[Path],
        replaced: Iterable[str] = (),
        on_import: Callable[[list[str]], None] | None = None,
    ):
        """folders: where the five files are looked for, first match wins.

        replaced: of the five files, those to take from the release.
        on_import: told the files being executed, innermost last, whenever that changes.
        """
        self.folders = [Path(f) for f in folders]
        self.replaced = set(replaced)
        self.edited = assignment().modules
        self.failed_import: tuple[BaseException | None, str] = (None, "")  # the file that raised it
        self.changed_by_import: dict[str, list[defaults.Setting]] = {}  # and put back; by file
        self._on_import = on_import
        self._executing: list[str] = []
        self._released: dict[str, ModuleType] = {}
        self._only_released = False

    def __enter__(self) -> Modules:
        self._saved_path = list(sys.path)
        self._saved_modules = self._take_out()
        given = [str(f) for f in given_folders()]
        overlay = {str(f) for f in (*given_folders(), *folders_to_hide())}
        rest = [p for p in sys.path if str(Path(p or ".").resolve()) not in overlay]
        sys.path[:] = [*(str(f) for f in self.folders if str(f) not in given), *given, *rest]
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_):
        sys.meta_path[:] = [f for f in sys.meta_path if f is not self]
        self._take_out()
        sys.modules.update(self._saved_modules)
        sys.path[:] = self._saved_path

    def load(self, name: str) -> ModuleType:
        """The hand-in's module `name`. Raises whatever its import raises."""
        return importlib.import_module(name)

    def released(self, name: str) -> ModuleType:
        """The released module `name`, built on released modules alone."""
        if name not in self.edited:
            return importlib.import_module(name)
        if name not in self._released:
            handed_in = self._take_out(self.edited)
            self._only_released = True
            try:
                importlib.import_module(name)
            finally:
                self._only_released = False
                self._released |= self._take_out(self.edited)
                for full, module in handed_in.items():
                    sys.modules[full] = module
                    package, _, leaf = full.rpartition(".")
                    if package in sys.modules:
                        setattr(sys.modules[package], leaf, module)
        return self._released[name]

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self.edited:
            return None
        file = self.edited[fullname]
        use_released = self._only_released or file in self.replaced
        folders = [] if use_released else self.folders
        for folder in (*folders, released_folder()):
            source = folder / file
            if source.is_file():
                loader = _Told(fullname, str(source), self, file)
                return importlib.util.spec_from_file_location(fullname, source, loader=loader)
        return None

    def file_of(self, path: str) -> str | None:
        """Which of the five files `path` is, if it is the hand-in's; for naming lines."""
        for folder in self.folders:
            for file in self.edited.values():
                if file not in self.replaced and Path(path) == folder / file:
                    return file
        return None

    def source_of(self, file: str) -> str:
        """The hand-in's text of one of the five files; "" where the release stands in for it."""
        for folder in [] if file in self.replaced else self.folders:
            if (folder / file).is_file():
                return (folder / file).read_text(encoding="utf-8", errors="replace")
        return ""

    def _executes(self, file: str, starts: bool):
        if starts:
            self._executing.append(file)
        else:
            self._executing.pop()
        if self._on_import:
            self._on_import(list(self._executing))

    def _take_out(self, names: Iterable[str] | None = None) -> dict[str, ModuleType]:
        """Removes and returns the packages' modules (all of them, or `names`)."""
        packages = {name.split(".")[0] for name in self.edited}
        taken = {}
        for full in list(sys.modules):
            if full in names if names is not None else full.split(".")[0] in packages:
                taken[full] = sys.modules.pop(full)
                package, _, leaf = full.rpartition(".")
                if package in sys.modules and hasattr(sys.modules[package], leaf):
                    delattr(sys.modules[package], leaf)
        return taken


class _Told(importlib.machinery.SourceFileLoader):
    """A source loader that says when a file starts and stops executing, and writes no cache."""

    def __init__(self, fullname: str, path: str, modules: Modules, file: str):
        super().__init__(fullname, path)
        self._modules, self._file = modules, file

    def exec_module(self, module):
        self._modules._executes(self._file, True)
        before = defaults.now()
        try:
            super().exec_module(module)
        except BaseException as error:
            if self._modules.failed_import[0] is not error:  # else a file within this one raised it
                self._modules.failed_import = (error, self._file)
            raise
        finally:
            if left := defaults.put_back(before):
                self._modules.changed_by_import[self._file] = left
            self._modules._executes(self._file, False)

    def get_code(self, fullname):
        # Compiled from the source each time: a stale or planted .pyc is nobody's hand-in.
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def folders_to_hide() -> list[Path]:
    """Folders of the overlay that a hand-in must not fall back on by accident."""
    root = given_folders()[-1]
    return [root / "staff", root / "student"]
