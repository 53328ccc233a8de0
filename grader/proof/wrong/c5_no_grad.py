"""Runs the layers without a graph, so that they keep nothing.

exercise: C5
caught by: C5.1
says: no gradient reaches
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for layer in self.layers:
            with torch.set_grad_enabled(not recompute):
                x = layer(x, seqs, rope)
        return self.lm_head(self.norm(x))
