"""Coding 4: `annotate`."""

from gradescope_utils.autograder_utils.decorators import number, weight

NAMES = [
    "attn",
    "decoder",
    "down",
    "embed",
    "encoder",
    "gate",
    "head",
    "mixer",
    "mlp",
    "norm",
    "up",
]


# ---- what is annotated, and what should be seen --------------------------------------------------
# A toy model is described by nested dicts, see Block in the probe. Its blocks write "enter" and
# "leave" between the ranges, so that it is known when a forward began and ended.


def _draw_block(draw, depth: int) -> dict:
    """A block whose children, `depth` levels of them, are called in any order, one twice."""
    children, calls = {}, []
    if depth:
        names = draw.sample(NAMES, 3)
        children[names[0]] = _draw_block(draw, depth - 1)
        children[names[1]] = _draw_block(draw, 0)
        children[names[2]] = [_draw_block(draw, draw.randint(0, depth - 1)) for _ in range(2)]
        calls = [names[0], names[1], f"{names[2]}.0", f"{names[2]}.1"]
        calls.append(draw.choice(calls))
        draw.shuffle(calls)
    return {"children": children, "calls": calls, "raises": False, "catches": False}


def _draw_model(draw) -> tuple[dict, dict[str, str]]:
    """A model, and its shared module: {its second path: its first}."""
    model = _draw_block(draw, 3)
    original = draw.choice([path for path in model["calls"] if "." not in path])
    model["calls"].append("twin")
    return model, {"twin": original}


def _child(block: dict, path: str) -> dict:
    name, _, index = path.partition(".")
    found = block["children"][name]
    return found[int(index)] if index else found


def _run(block: dict, path: str, shared: dict[str, str], ranges: bool) -> tuple[list, bool]:
    """The steps that a call of `block` should leave, and whether it raises."""
    steps = [["enter", path]]
    raised = False
    for call in block["calls"]:
        own = shared.get(call, call)  # only the model itself has a shared module
        inner, raised = _run(_child(block, own), f"{path}.{own}" if path else own, {}, ranges)
        steps += inner
        if raised:
            break
    raised = (raised and not block["catches"]) or block["raises"]
    if not raised:
        steps.append(["leave", path])
    if path and ranges:
        steps = [["push", path], *steps, ["pop", ""]]
    return steps, raised


def _expected(model: dict, shared: dict[str, str], ranges: bool = True) -> list:
    return _run(model, "", shared, ranges)[0]


# ---- what went wrong -----------------------------------------------------------------------------


def _pushed(steps: list) -> list[str]:
    return [name for kind, name in steps if kind == "push"]


def _pops(steps: list) -> int:
    return sum(kind == "pop" for kind, _ in steps)


def _diagnosis(steps: list, expected: list, shared: dict[str, str]) -> str:  # noqa: PLR0911
    """What the ranges of one call of the toy model show, in words."""
    pushed, wanted = _pushed(steps), _pushed(expected)
    if not pushed:
        return "annotate opened no NVTX range when the model was called"
    if all(name.startswith("Block") for name in pushed):
        return (
            f"ranges are named by class, as in {pushed[0]!r}: name each by its path in the model, "
            f"as in {max(wanted, key=len)!r}"
        )
    if steps[0][0] == "push":  # before the model's own forward
        return (
            f"the model itself has a range, named {pushed[0]!r}: its submodules have one, it has "
            "none"
        )
    if len(pushed) == len(wanted) and len(set(pushed)) == 1:
        return (
            f"every range has the same name, {pushed[0]!r}: a function made in a loop sees the "
            "loop variable's last value, unless it is bound: `def hook(module, args, path=path)`"
        )
    wrong = _wrong_names(pushed, wanted, shared)
    if wrong:
        return wrong
    missing = [name for name in dict.fromkeys(wanted) if name not in pushed]
    if missing:
        if set(pushed) == {name for name in wanted if "." not in name}:
            return (
                f"only the model's direct children have a range, and {missing[0]!r} has none: go "
                "through model.named_modules(), which visits every level"
            )
        return f"{missing[0]!r} was called and has no range"
    if len(pushed) > _pops(steps):
        return (
            f"{len(pushed)} ranges were opened and {_pops(steps)} closed: each must be closed when "
            "its module's forward ends"
        )
    if len(pushed) < _pops(steps):
        return (
            f"{len(pushed)} ranges were opened and {_pops(steps)} closed: close each exactly once"
        )
    for name in dict.fromkeys(wanted):
        if pushed.count(name) != wanted.count(name):
            return (
                f"{name!r} was called {_times(wanted.count(name))}, and its range was opened "
                f"{_times(pushed.count(name))}"
            )
    return _wrong_order(steps, expected)


def _wrong_names(pushed: list[str], wanted: list[str], shared: dict[str, str]) -> str:
    """What is wrong with the names of ranges, or nothing."""
    strange = [name for name in pushed if name not in wanted]
    if not strange:
        return ""
    for path, first in shared.items():
        if all(name == path or name.startswith(f"{path}.") for name in strange):
            return (
                f"a module that is at two paths got a range named by the second, {path!r}: it has "
                f"one range, named by the first path that named_modules() gives, {first!r}"
            )
    if set(pushed) <= {name.rpartition(".")[2] for name in wanted}:
        return (
            f"the range {strange[0]!r} is named by the last part of a path alone: use the whole "
            f"path, as in {max(wanted, key=len)!r}"
        )
    return (
        f"a range is named {strange[0]!r}: no submodule of the model has this path (one that has "
        f"is {max(wanted, key=len)!r})"
    )


def _wrong_order(steps: list, expected: list) -> str:
    """Every range is opened and closed as often as it should, but not where."""
    i = next((i for i, (s, e) in enumerate(zip(steps, expected, strict=False)) if s != e), 0)
    name = expected[i][1]
    if expected[i][0] == "push" and steps[i] == ["enter", name]:
        return (
            f"the range of {name!r} is opened after its forward has begun: open it in a forward "
            "pre-hook"
        )
    if expected[i][0] == "enter" and steps[i][0] == "pop":
        return (
            f"the range of {name!r} is closed before its forward begins: close it in a forward "
            "hook, not in a forward pre-hook"
        )
    around = [" ".join(filter(None, step)) for step in expected[max(0, i - 1) : i + 3]]
    seen = [" ".join(filter(None, step)) for step in steps[max(0, i - 1) : i + 3]]
    return (
        f"ranges are not where they should be. Expected: {', '.join(around)}. "
        f"Seen: {', '.join(seen)}"
    )


def _times(n: int) -> str:
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


# ---- the tests -----------------------------------------------------------------------------------


@number("C4.1")
@weight(3)
def test_every_submodule_has_a_range_named_by_its_path(probe, draw):
    """Each call of a submodule is inside a range with its path; the model itself has none."""
    model, shared = _draw_model(draw)
    expected = _expected(model, shared)
    seen = probe("prof.annotated_toy", described=model, shared=shared, seed=draw.getrandbits(20))
    for call in ("first", "second"):
        steps, waits = seen[call]["steps"], seen[call]["waits"]
        assert steps == expected, _diagnosis(steps, expected, shared)
        assert not waits, (
            f"the annotated model synchronizes with the GPU {_times(waits)} in one call: a range "
            "needs no synchronization, and it changes what is profiled"
        )


@number("C4.2")
@weight(2)
def test_ranges_are_closed_when_forward_raises(probe, draw):
    """A range is closed also when its module's forward raises an exception."""
    model, shared = _draw_model(draw)
    inner = _child(model, draw.choice([c for c in model["calls"] if _has_calls(model, c)]))
    _child(inner, draw.choice(inner["calls"]))["raises"] = True
    inner["catches"] = draw.random() < 0.5
    expected, raises = _run(model, "", shared, ranges=True)
    # Of the submodules alone: the model itself has no range.
    interrupted = sum((k == "enter") - (k == "leave") for k, name in expected if name)
    seen = probe("prof.annotated_toy", described=model, shared=shared, seed=draw.getrandbits(20))
    for call in ("first", "second"):
        steps, raised = seen[call]["steps"], seen[call]["raised"]
        left = len(_pushed(steps)) - _pops(steps)
        assert left != interrupted, (
            f"when a forward raises, its range is not closed ({left} left open here): register the "
            "forward hook that closes it with always_call=True, and do not rely on its output, "
            "which is None then"
        )
        assert (raised is not None) == raises, (
            "the exception that a submodule raised did not come out as it should: hooks must not "
            "catch it"
        )
        assert steps == expected, _diagnosis(steps, expected, shared)


def _has_calls(block: dict, path: str) -> bool:
    return path != "twin" and bool(_child(block, path)["calls"])


@number("C4.3")
@weight(1)
def test_remove_takes_off_its_own_hooks_and_no_others(probe, draw):
    """What annotate returns takes its hooks off again; nothing else about the model changes."""
    model, shared = _draw_model(draw)
    plain = _expected(model, shared, ranges=False)
    ranges = _expected(model, shared)
    seen = probe("prof.removed", described=model, shared=shared, seed=draw.getrandbits(20))
    assert seen["with"]["steps"] == ranges, _diagnosis(seen["with"]["steps"], ranges, shared)
    assert seen["callable"], (
        f"annotate returned {_kind(seen['returned'])}: return a function of no arguments that "
        "removes the hooks"
    )
    steps = seen["after"]["steps"]
    opened, closed = len(_pushed(steps)), _pops(steps)
    assert not opened or not closed, (
        f"after remove(), the model still opens {_times_ranges(opened)}: keep the handle of every "
        "hook, and call remove() of each"
    )
    assert not opened, (
        f"after remove(), the model still opens {_times_ranges(opened)} and closes none: the "
        "forward pre-hooks were not removed"
    )
    assert not closed, (
        f"after remove(), the model still closes {_times_ranges(closed)} and opens none: the "
        "forward hooks were not removed"
    )
    assert steps == plain, "after remove(), the model does not run as it did before annotate"
    calls = sum(kind == "enter" for kind, _ in plain)
    others = (seen["before"]["others"], seen["with"]["others"], seen["after"]["others"])
    assert others == (2 * calls, 2 * calls, 4 * calls), (
        "hooks that somebody else had put on the model are gone: remove only those that annotate "
        "put on, through their handles"
    )
    for call in ("with", "after"):
        assert _same(seen[call]["output"], seen["before"]["output"]), (
            "the model's output is not what it was before annotate: a hook must return None, "
            "because what it returns replaces the module's arguments or output"
        )
    steps = seen["again"]["steps"]
    assert steps == ranges, "annotated again after remove(): " + _diagnosis(steps, ranges, shared)


@number("C4.4")
@weight(2)
def test_recomputed_forwards_have_ranges_of_their_own(probe, draw):
    """On the course's model with recomputation: ranges are right, and all of them are closed."""
    n_layers = draw.randint(2, 3)
    seen = probe(
        "prof.annotated_olmoe",
        n_layers=n_layers,
        seqlen=draw.randint(8, 24),
        seed=draw.getrandbits(20),
    )
    forward, backward = seen["forward"]["steps"], seen["backward"]["steps"]
    layers = [f"layers.{i}" for i in range(n_layers)]
    calls = [
        "embed",
        *(f"{a}{b}" for a in layers for b in ("", ".attn_norm", ".attn", ".moe_norm", ".moe")),
        "norm",
        "lm_head",
    ]
    opened = [name for name in _pushed(forward) if "." in name or name in calls]
    for name in calls:
        assert name in opened, f"in a forward pass of Olmoe, {name!r} has no range"
    assert opened == calls, (
        f"in a forward pass of Olmoe, ranges should open in this order: {', '.join(calls)}. "
        f"Seen: {', '.join(opened[: 2 * len(calls)])}"
    )
    assert _pops(forward) == len(_pushed(forward)), (
        f"in a forward pass of Olmoe, {len(_pushed(forward))} ranges are opened and "
        f"{_pops(forward)} closed"
    )
    again = _pushed(backward)
    # Whoever forgets always_call would otherwise be told of the wrong thing.
    left = len(again) - _pops(backward)
    assert left <= 0, (
        f"{left} ranges stay open after a backward pass with recomputation. PyTorch ends a "
        "recomputed forward by an exception: register the forward hook with always_call=True"
    )
    assert left == 0, f"a backward pass closes {-left} ranges more than it opens"
    plain = [name for name in again if name in calls]
    assert not plain, (
        f"a recomputed forward opens the range {plain[0]!r}, as an ordinary one does: open ranges "
        f"with range_push, which calls this one 'recompute.{plain[0]}'"
    )
    recomputed = [name for name in again if name.removeprefix("recompute.") in layers]
    expected = [f"recompute.{layer}" for layer in reversed(layers)]
    assert recomputed == expected, (
        f"in a backward pass with recomputation of every layer, {', '.join(expected)} should open, "
        f"in this order. Seen: {', '.join(recomputed) or 'none of them'}"
    )
    for layer in layers:
        assert f"recompute.{layer}.attn" in again, (
            f"inside recompute.{layer} there should be recompute.{layer}.attn, and there is not"
        )


def _times_ranges(n: int) -> str:
    return "one range" if n == 1 else f"{n} ranges"


def _kind(value) -> str:
    if value is None or type(value).__name__ == "Opaque":
        return str(value)
    return f"a {type(value).__name__}"


def _same(output, before) -> bool:
    kinds = {type(output).__name__, type(before).__name__}
    return kinds == {"Tensor"} and output.shape == before.shape and bool((output == before).all())
