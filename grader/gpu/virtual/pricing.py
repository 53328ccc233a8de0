"""What one ATen operation is to a GPU: a kernel, a view, an allocation; its bytes and its FLOPs.

Read from the operation's schema, once per operation. Bytes are those of a kernel that reads each
of its inputs once and writes each of its results once; a gather reads only the rows it needs.
"""

from dataclasses import dataclass
from math import prod

import torch

_NO_KERNEL = {
    # memory without a kernel
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::empty_permuted",
    "aten::new_empty", "aten::new_empty_strided", "aten::resize_", "aten::resize_as_",
    "aten::set_",
    # views that the schema does not call views
    "aten::_unsafe_view", "aten::_reshape_alias",
}  # fmt: skip

_NEW_STORAGE = {"aten::lift_fresh", "aten::set_", "aten::resize_", "aten::resize_as_"}
"""Operations that the schema says return an argument, whose storage may be new or resized."""

_SYNCHRONIZES = {
    "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal",
    "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
    "aten::unique_dim_consecutive", "aten::bincount", "aten::is_nonzero", "aten::argwhere",
}  # fmt: skip
"""Operations whose result the host needs: it waits for the device before it goes on."""

_GATHERS = {
    "aten::embedding", "aten::index_select", "aten::index", "aten::gather", "aten::take",
}  # fmt: skip
"""Operations that read as much of their first tensor as they write."""

_SCATTERS = {
    "aten::index_put_", "aten::_index_put_impl_", "aten::index_add_", "aten::scatter_",
    "aten::scatter_add_", "aten::index_copy_",
}  # fmt: skip
"""Operations that read and write as much of their first tensor as the others bring."""

_TAKES_MASKS = {"aten::index", "aten::index_put_", "aten::_index_put_impl_"}
"""Operations whose indices may be boolean; the host then has to learn how many are true."""

_READ_ONLY = {("aten::_fused_adamw_", "grads"), ("aten::_fused_adam_", "grads")}
"""Arguments that a schema calls written, but a kernel without loss scaling only reads."""


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@dataclass(frozen=True, slots=True)
class Price:
    """What the schema says about one operation."""

    name: str  # "aten::mm"
    composite: bool  # made of other operations, to be charged one by one
    allocates: bool  # a result may bring a storage of its own
    free: bool  # no kernel
    synchronizes: bool
    synchronizes_on_mask: bool  # if an index is boolean
    written: frozenset[int | str]  # arguments that are also written, by position and by name


def price(op: torch._ops.OpOverload) -> Price:
    """Classify an operation by its schema."""
    schema = op._schema
    name = schema.name
    aliases = [each.alias_info for each in schema.returns]
    written = [
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None
        and argument.alias_info.is_write
        and (name, argument.name) not in _READ_ONLY
    ]
    is_view = bool(aliases) and all(info is not None and not info.is_write for info in aliases)
    return Price(
        name=name,
        composite=op.has_kernel_for_dispatch_key(_COMPOSITE)
        and not op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CPU),
        allocates=None in aliases or name in _NEW_STORAGE or _is_out(schema),
        free=is_view or name in _NO_KERNEL,
        synchronizes=name in _SYNCHRONIZES
        or (name == "aten::repeat_interleave" and schema.overload_name == "Tensor"),
        synchronizes_on_mask=name in _TAKES_MASKS,
        written=frozenset(each for pair in written for each in pair),
    )


def _is_out(schema) -> bool:
    """An `out=` variant, which resizes the tensor it is given."""
    return "out" in schema.overload_name.split("_")


def nbytes(tensor: torch.Tensor) -> int:
    """Bytes of the elements of a tensor (an expanded one counts each element)."""
    return tensor.numel() * tensor.element_size()


def tensors_in(values) -> list[torch.Tensor]:
    """The tensors among `values` and in the lists and tuples among them."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors_in(value)
    return found


def _nbytes_in(value) -> int:
    if isinstance(value, torch.Tensor):
        return nbytes(value)
    if isinstance(value, (list, tuple)):
        return sum(map(nbytes, tensors_in(value)))
    return 0


def bytes_moved(what: Price, args: tuple, kwargs: dict, results: list[torch.Tensor]) -> int:
    """Bytes that the operation's kernel moves."""
    if what.name in _GATHERS:
        return 2 * sum(map(nbytes, results)) + _nbytes_in(args[1:])
    if what.name in _SCATTERS:
        rest = tensors_in(args[1:])
        return sum(map(nbytes, rest)) + 2 * max(map(nbytes, rest), default=0)
    total = 0
    written = what.written
    for position, argument in enumerate(args):
        size = _nbytes_in(argument)
        total += 2 * size if position in written else size
    for name, argument in kwargs.items():
        size = _nbytes_in(argument)
        total += 2 * size if name in written else size
    return total if written else total + sum(map(nbytes, results))


# -- FLOPs: 2 per multiply-add ------------------------------------------------------------------


def _matmul(a, b) -> int:
    """[..., m, k] @ [..., k, n]"""
    return 2 * a.numel() * b.shape[-1]


def _grouped_mm(a, b, *_, **__) -> int:
    """`offs` cuts the rows of a, the columns of b, or the dimension that is summed over."""
    if a.dim() == b.dim():  # summed over [m, T] @ [T, n] in groups, or one product per group
        return _matmul(a, b)
    if a.dim() == 2:  # [T, k] @ [groups, k, n]
        return 2 * a.numel() * b.shape[-1]
    return 2 * b.numel() * a.shape[-2]  # [groups, m, k] @ [k, T]


def _is_causal(args, kwargs, position: int) -> bool:
    return bool(kwargs.get("is_causal", args[position] if len(args) > position else False))


def _attention(query, key, causal: bool, matmuls: int) -> int:
    """`matmuls` products of [.., q, d] and [.., d, k]; a causal mask leaves half of each."""
    *batch, queries, width = query.shape
    flops = matmuls * 2 * prod(batch) * queries * key.shape[-2] * width
    return flops // 2 if causal else flops


def _convolution(x, weight, *_, **__) -> int:
    return 2 * x.numel() * weight.numel() // max(1, weight.shape[1])


_CPU_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"

_FLOPS = {
    "aten::mm": lambda a, b, **_: _matmul(a, b),
    "aten::bmm": lambda a, b, **_: _matmul(a, b),
    "aten::mv": lambda a, b: 2 * a.numel(),
    "aten::dot": lambda a, b: 2 * a.numel(),
    "aten::addmm": lambda _, a, b, **__: _matmul(a, b),
    "aten::_addmm_activation": lambda _, a, b, **__: _matmul(a, b),
    "aten::baddbmm": lambda _, a, b, **__: _matmul(a, b),
    "aten::_grouped_mm": _grouped_mm,
    "aten::convolution": _convolution,
    # forward: QK^T and PV
    _CPU_ATTENTION: lambda *a, **k: _attention(a[0], a[1], _is_causal(a, k, 4), 2),
    # backward: the first again, then dV, dP, dQ and dK
    _CPU_ATTENTION + "_backward": lambda *a, **k: _attention(a[1], a[2], _is_causal(a, k, 7), 5),
}  # fmt: skip


def flops(what: Price, args: tuple, kwargs: dict) -> int:
    """FLOPs of a matrix product or an attention; everything else is limited by its bytes."""
    count = _FLOPS.get(what.name)
    return count(*args, **kwargs) if count else 0
