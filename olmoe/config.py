"""The sizes of an OLMoE model. Without arguments: OLMoE-1B-7B."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class OlmoeConfig:
    """By default, the sizes of OLMoE-1B-7B (Muennighoff et al., 2024, arXiv:2409.02060)."""

    n_layers: int = 16
    d_model: int = 2048
    n_heads: int = 16
    d_expert: int = 1024  # hidden width of one expert
    n_experts: int = 64
    experts_per_token: int = 8
    vocab_size: int = 50304
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    def __post_init__(self):
        for name in (
            "n_layers",
            "d_model",
            "n_heads",
            "d_expert",
            "n_experts",
            "experts_per_token",
            "vocab_size",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.d_model % (2 * self.n_heads):
            raise ValueError(
                f"d_model={self.d_model} cannot be split into {self.n_heads} heads of even width:"
                " rotary embeddings turn the two halves of a head against each other"
            )
        if self.experts_per_token > self.n_experts:
            raise ValueError(
                f"experts_per_token={self.experts_per_token} is more than"
                f" n_experts={self.n_experts}"
            )
        if self.n_experts > 256:
            raise ValueError(f"n_experts={self.n_experts}: at most 256, an expert id is one byte")

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    def with_layers(self, n_layers: int) -> "OlmoeConfig":
        """The same model with another number of layers."""
        return replace(self, n_layers=n_layers)
