"""How much memory was allocated, allocation by allocation, from PyTorch's own record of them."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pandas as pd
import torch

MAX_ENTRIES = 200_000  # of the ring buffer; a step of four layers makes a few thousand
CHANGES = {"alloc": 1, "free_requested": -1}  # "free_completed" follows, at once on one stream


@dataclass
class History:
    """A recorded stretch: what was allocated before and after it, and every change in between."""

    entries: list[dict] = field(default_factory=list)  # {"action": "alloc", "size": bytes, ...}
    before_bytes: int = 0
    after_bytes: int = 0
    overflowed: bool = False  # the ring buffer has lost its oldest entries


@contextlib.contextmanager
def recorded(max_entries: int = MAX_ENTRIES) -> Iterator[History]:
    """Record the allocations and frees of a block.  The history is filled in at its end."""
    history = History()
    torch.cuda.synchronize()
    history.before_bytes = torch.cuda.memory_allocated()
    # Without stack traces: they cost time and memory, and a curve needs none.
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=max_entries)
    try:
        yield history
    finally:
        history.after_bytes = torch.cuda.memory_allocated()
        trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
        torch.cuda.memory._record_memory_history(None)
        history.entries = list(trace)
        history.overflowed = len(trace) >= max_entries


def curve(history: History) -> pd.DataFrame:
    """Memory after each change: columns `event` (0, 1, 2, ... changes so far) and `gib`.

    The history logs the sizes that were asked for, which the allocator rounds up; so the peak lies
    a little below `torch.cuda.max_memory_allocated()`.  It knows nothing of what was allocated
    before it began: the curve starts from there.  Where the ring buffer has overflowed the
    beginning is lost, and the rest is laid so that it ends at what was allocated at the end.
    """
    changes = [
        CHANGES[entry["action"]] * entry["size"]
        for entry in history.entries
        if entry["action"] in CHANGES
    ]
    level = history.after_bytes - sum(changes) if history.overflowed else history.before_bytes
    levels = [level]
    for change in changes:
        level += change
        levels.append(level)
    return pd.DataFrame({"event": range(len(levels)), "gib": [b / 2**30 for b in levels]})


def of_step(step: Callable[[], object], max_entries: int = MAX_ENTRIES) -> tuple[pd.DataFrame, str]:
    """The curve of one call of `step`, and a note for its caption if it is not whole."""
    with recorded(max_entries) as history:
        step()
        torch.cuda.synchronize()
    lost = f"beginning lost: more than {max_entries:,} entries" if history.overflowed else ""
    return curve(history), lost
