"""Setting attributes of modules and classes for a while, and putting back what stood there."""

_ABSENT = object()


class Patches:
    """Attributes set on modules and classes, and what stood there before."""

    def __init__(self):
        self._before = []

    def set(self, target, name: str, value) -> None:
        """Set `target.name`; `restore` puts back what it was, or removes it if there was none."""
        self._before.append((target, name, vars(target).get(name, _ABSENT)))
        setattr(target, name, value)

    def set_if_there(self, target, name: str, value) -> None:
        """Set `target.name` if this version of torch has it."""
        if hasattr(target, name):
            self.set(target, name, value)

    def restore(self) -> None:
        """Undo every `set`, the latest first."""
        while self._before:
            target, name, before = self._before.pop()
            if before is _ABSENT:
                delattr(target, name)
            else:
                setattr(target, name, before)
