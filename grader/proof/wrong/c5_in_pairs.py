"""Checkpoints layers two at a time.

exercise: C5
caught by: C5.2
says: inside a single checkpoint
"""


# file: olmoe/model.py
def run_both(layers, x, seqs, rope):
    for layer in layers:
        x = layer(x, seqs, rope)
    return x


class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        for i in range(0, len(self.layers), 2):
            pair = self.layers[i : i + 2]
            if recompute:
                x = checkpoint(run_both, pair, x, seqs, rope, use_reentrant=False)
            else:
                x = run_both(pair, x, seqs, rope)
        return self.lm_head(self.norm(x))
