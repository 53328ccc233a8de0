"""OLMoE (Muennighoff et al., 2024, arXiv:2409.02060): a mixture-of-experts language model.

Shapes, in the comments at the ends of lines:
    T  tokens in the micro batch, of all its sequences   E  experts
    D  hidden size                                       K  experts per token
    H  heads                                             F  hidden width of an expert
    A  width of a head: D = H * A                        V  vocabulary
A weight that multiplies activations is stored [out, in], as in torch.nn.functional.linear.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from torch.utils.checkpoint import checkpoint

from olmoe.config import OlmoeConfig
from olmoe.data import Seqs
from olmoe.prof import nvtx_range

MOE_IMPLS = ("grouped", "naive")


class Olmoe(nn.Module):
    """The whole model: token ids in, logits out.

    `moe_impl` chooses between two implementations of the experts that compute the same:
    "grouped" is fast, "naive" is a plain loop. The weights are random, the same for the same
    `seed` and kind of device; on the meta device there are none.
    """

    def __init__(
        self, cfg: OlmoeConfig, moe_impl: str = "grouped", device=None, dtype=None, seed: int = 0
    ):
        super().__init__()
        if moe_impl not in MOE_IMPLS:
            raise ValueError(f"moe_impl is {moe_impl!r}: it must be one of {MOE_IMPLS}")
        kwargs = {"device": device, "dtype": dtype}
        self.cfg = cfg
        self.embed = nn.Embedding(cfg.vocab_size, cfg.d_model, **kwargs)
        self.layers = nn.ModuleList(Layer(cfg, moe_impl, **kwargs) for _ in range(cfg.n_layers))
        self.norm = nn.RMSNorm(cfg.d_model, eps=cfg.norm_eps, **kwargs)
        self.lm_head = nn.Linear(cfg.d_model, cfg.vocab_size, bias=False, **kwargs)
        init_weights(self, seed)

    def forward(self, tokens: Tensor, seqs: Seqs, recompute: bool = False) -> Tensor:
        """Logits [T, V] of the token that follows each of `tokens` [T].

        With `recompute`, a layer keeps only its input for the backward pass, which runs the
        layer's forward again for everything else (Chen et al., 2016, arXiv:1604.06174): Coding
        Exercise 5, one line with torch.utils.checkpoint.checkpoint and use_reentrant=False. The
        gradients are the same.
        """
        if tokens.shape != (seqs.n_tokens,):
            raise ValueError(
                f"tokens have shape {tuple(tokens.shape)}, but seqs describe {seqs.n_tokens} tokens"
            )
        x = self.embed(tokens)  # [T, D]
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                raise NotImplementedError("Coding 5: Olmoe.forward")
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))  # [T, V]


class Layer(nn.Module):
    """Attention, which mixes the tokens of a sequence, then experts, which see one token each."""

    def __init__(self, cfg: OlmoeConfig, moe_impl: str, **kwargs):
        super().__init__()
        self.attn_norm = nn.RMSNorm(cfg.d_model, eps=cfg.norm_eps, **kwargs)
        self.attn = Attention(cfg, **kwargs)
        self.moe_norm = nn.RMSNorm(cfg.d_model, eps=cfg.norm_eps, **kwargs)
        self.moe = MoE(cfg, moe_impl, **kwargs)

    def forward(self, x: Tensor, seqs: Seqs, rope: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attn(self.attn_norm(x), seqs, rope)
        return x + self.moe(self.moe_norm(x))


class Attention(nn.Module):
    """Causal self-attention within each sequence, with normalized queries and keys."""

    def __init__(self, cfg: OlmoeConfig, **kwargs):
        super().__init__()
        self.cfg = cfg
        self.qkv = nn.Parameter(torch.empty(3, cfg.d_model, cfg.d_model, **kwargs))
        self.qk_norm = nn.Parameter(torch.empty(2, cfg.d_model, **kwargs))
        self.out = nn.Parameter(torch.empty(cfg.d_model, cfg.d_model, **kwargs))

    def forward(self, x: Tensor, seqs: Seqs, rope: tuple[Tensor, Tensor]) -> Tensor:
        heads = (self.cfg.n_heads, self.cfg.head_dim)
        # Queries and keys go through every step together: half as many kernels.
        qkv = torch.bmm(x.expand(3, *x.shape), self.qkv.mT)  # [3, T, D]
        qk, v = qkv.split((2, 1))  # [2, T, D], [1, T, D]
        # OLMoE normalizes over all heads at once, so this comes before the split into heads.
        qk = F.rms_norm(qk, x.shape[-1:], eps=self.cfg.norm_eps) * self.qk_norm[:, None]
        q, k = rotate(qk.unflatten(-1, heads), *rope)  # [T, H, A] each
        y = causal_attention(q, k, v[0].unflatten(-1, heads), seqs)  # [T, H, A]
        return F.linear(y.flatten(1), self.out)  # [T, D]


class MoE(nn.Module):
    """A router sends each token to K of E experts and adds up their outputs, weighted."""

    def __init__(self, cfg: OlmoeConfig, moe_impl: str, **kwargs):
        super().__init__()
        self.cfg, self.moe_impl = cfg, moe_impl
        E, D, width = cfg.n_experts, cfg.d_model, cfg.d_expert
        self.router = nn.Parameter(torch.empty(E, D, **kwargs))
        self.gate_up = nn.Parameter(torch.empty(E, 2 * width, D, **kwargs))
        self.down = nn.Parameter(torch.empty(E, D, width, **kwargs))

    def forward(self, x: Tensor) -> Tensor:
        with nvtx_range("router"):
            # The weights of a token's K experts add up to less than 1: the softmax is over all E.
            probs = F.linear(x, self.router).softmax(-1, dtype=torch.float32)  # [T, E]
            weights, experts = probs.topk(self.cfg.experts_per_token, sorted=False)  # [T, K]
            weights = weights.to(x.dtype)
        with nvtx_range("experts"):
            if self.moe_impl == "naive":
                return self._experts_naive(x, weights, experts)
            return self._experts_grouped(x, weights, experts)

    def _experts_naive(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        """One expert after another. `weights` and `experts` are [T, K]."""
        y = torch.zeros_like(x)
        for e in range(self.cfg.n_experts):
            token, slot = (experts == e).nonzero(as_tuple=True)  # n rows
            gate, up = F.linear(x[token], self.gate_up[e]).chunk(2, dim=-1)  # [n, F] each
            hidden = F.silu(gate) * up * weights[token, slot, None]
            y.index_add_(0, token, F.linear(hidden, self.down[e]))
        return y

    def _experts_grouped(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        """All experts in one call: the rows are sorted by expert, and never counted on the CPU."""
        n_rows = experts.numel()  # T * K
        # Sorting bytes takes an eighth of the passes of sorting int64.
        ids, order = experts.flatten().to(torch.uint8).sort(stable=True)  # [T*K]
        every_id = torch.arange(self.cfg.n_experts, dtype=torch.uint8, device=x.device)
        ends = torch.searchsorted(ids, every_id, right=True, out_int32=True)  # [E]
        source = order // self.cfg.experts_per_token  # sorted row -> token
        place = torch.empty_like(order)  # token, slot -> sorted row
        place = place.scatter_(0, order, torch.arange(n_rows, device=x.device)).view_as(experts)

        rows = Dispatch.apply(x, source, place)  # [T*K, D]
        gate, up = grouped_linear(rows, self.gate_up, ends).chunk(2, dim=-1)  # [T*K, F] each
        # Weighting here, and not the experts' outputs, is the same but for rounding: F < D.
        hidden = F.silu(gate) * up * weights.flatten().index_select(0, order)[:, None]
        return Combine.apply(grouped_linear(hidden, self.down, ends), source, place)  # [T, D]


class Dispatch(torch.autograd.Function):
    """Copies each token's row to its K places: [T, D] -> [T*K, D].

    Its transpose is Combine, so each one's backward is the other's forward. Left to itself,
    autograd would add gradients to rows given by an index, which is slow: it does not know, as
    `place` does, where the K gradients of each row are.
    """

    @staticmethod
    def forward(ctx, x: Tensor, source: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(source, place)
        return x[source]

    @staticmethod
    def backward(ctx, grad: Tensor):
        return Combine.apply(grad, *ctx.saved_tensors), None, None


class Combine(torch.autograd.Function):
    """Adds up the K rows of each token: [T*K, D] -> [T, D]. The transpose of Dispatch."""

    @staticmethod
    def forward(ctx, y: Tensor, source: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(source, place)
        # The same as y[place].sum(1), without the [T, K, D] in between.
        return F.embedding_bag(place, y, mode="sum")

    @staticmethod
    def backward(ctx, grad: Tensor):
        return Dispatch.apply(grad, *ctx.saved_tensors), None, None


def grouped_linear(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Rows [T*K, in] sorted by expert, times each expert's weight [E, out, in]: [T*K, out].

    `ends` int32 [E] holds where each expert's rows end.
    """
    aligned = all(n * weight.element_size() % 16 == 0 for n in weight.shape[1:])
    if aligned and weight.dtype != torch.float64:
        return F.grouped_mm(x, weight.mT, offs=ends)
    # What the kernel cannot do: float64, and rows that are not a multiple of 16 bytes long.
    rows_per_expert = ends.diff(prepend=ends.new_zeros(1)).tolist()
    return torch.cat(
        [F.linear(r, w) for r, w in zip(x.split(rows_per_expert), weight, strict=True)]
    )


def rope_tables(positions: Tensor, cfg: OlmoeConfig, dtype) -> tuple[Tensor, Tensor]:
    """The tables for `rotate`, [T, 1, A] each (rotary embeddings: Su et al., arXiv:2104.09864)."""
    even = torch.arange(0, cfg.head_dim, 2, dtype=torch.float32, device=positions.device)
    angles = positions[:, None, None] * (1 / cfg.rope_theta ** (even / cfg.head_dim))  # [T, 1, A/2]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + A/2) of a head by its angle. `sin` is negative in its first half."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, seqs: Seqs) -> Tensor:
    """Each token attends to itself and to what precedes it in its sequence: [T, H, A]."""
    if q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] % 8 == 0:
        cu, longest = seqs.cu_seqlens, seqs.max_seqlen
        return varlen_attn(q, k, v, cu, cu, longest, longest, window_size=(-1, 0))
    # That kernel exists on a GPU alone, and for these dtypes. Elsewhere, sequence by sequence:
    heads = [x.transpose(0, 1).split(seqs.lengths, dim=1) for x in (q, k, v)]
    y = [F.scaled_dot_product_attention(*s, is_causal=True) for s in zip(*heads, strict=True)]
    return torch.cat(y, dim=1).transpose(0, 1)


@torch.no_grad()
def init_weights(model: Olmoe, seed: int) -> None:
    """Norms 1, all other weights normal with standard deviation 0.02."""
    device = model.lm_head.weight.device
    if device.type == "meta":
        return
    generator = torch.Generator(device).manual_seed(seed)
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.fill_(1)
        else:
            weight.normal_(std=0.02, generator=generator)
