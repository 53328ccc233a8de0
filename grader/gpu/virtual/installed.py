"""Which virtual GPU is open in this process, if any."""

import threading


def _holder():
    gpu = None
    owner = None

    def install(new) -> None:
        """Make `new` this process's virtual GPU, owned by the calling thread."""
        nonlocal gpu, owner
        if gpu is not None:
            raise RuntimeError(
                "a virtual GPU is already open in this process; leave its `with` block first"
            )
        gpu, owner = new, threading.get_ident()

    def uninstall() -> None:
        nonlocal gpu, owner
        gpu = owner = None

    def installed():
        """The virtual GPU, whichever thread asks. Raises RuntimeError when none is open."""
        if gpu is None:
            raise RuntimeError("no virtual GPU is open: this object belongs to one that was closed")
        return gpu

    def owned():
        """The virtual GPU if one is open and the calling thread opened it, else None."""
        return gpu if owner == threading.get_ident() else None

    return install, uninstall, installed, owned


install, uninstall, installed, owned = _holder()
