"""Recomputes each layer to its end: no early stop.

exercise: C5
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            if recompute:
                x = checkpoint(layer, x, seqs, rope, use_reentrant=False, determinism_check="none")
            else:
                x = layer.__call__(x, seqs, rope=rope)
        return self.lm_head(self.norm(x))
