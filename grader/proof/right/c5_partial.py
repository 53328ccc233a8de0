"""functools.partial around the layer.

exercise: C5
"""

# file: olmoe/model.py
import functools


class Olmoe:
    def forward(self, tokens, seqs, recompute=False):
        x = self.embed(tokens)
        rope = rope_tables(seqs.positions, self.cfg, x.dtype)
        run = functools.partial(checkpoint, use_reentrant=False) if recompute else _call
        for layer in self.layers:
            x = run(functools.partial(layer, seqs=seqs, rope=rope), x)
        return self.lm_head(self.norm(x))


def _call(function, *args):
    return function(*args)
