"""The recomputation as a helper in olmoe/prof.py.

exercise: C5
"""

# file: olmoe/model.py
from olmoe.prof import run_again_later


class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                x = run_again_later(layer, x, seqs, rope)
            else:
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))


# file: olmoe/prof.py
def run_again_later(module, *args):
    from torch.utils import checkpoint

    return checkpoint.checkpoint(module, *args, use_reentrant=False)
