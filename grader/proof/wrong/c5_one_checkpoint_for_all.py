"""Puts all the layers into a single checkpoint.

exercise: C5
caught by: C5.2
says: inside a single checkpoint
"""


# file: olmoe/model.py
class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)

        def run_layers(x):
            for layer in self.layers:
                x = layer(x, seqs, rope)
            return x

        x = checkpoint(run_layers, x, use_reentrant=False) if recompute else run_layers(x)
        return self.lm_head(self.norm(x))
