"""Text to token ids and back, with the tokenizer that lies beside the checkpoint."""

import json
from pathlib import Path

from a1.session import Stop


class Text:
    """A checkpoint's tokenizer.  Raises Stop, which says what is missing, without one."""

    def __init__(self, checkpoint: Path) -> None:
        file = checkpoint / "tokenizer.json"
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise Stop(
                "no package `tokenizers`, which reads text (transformers brings it)"
            ) from None
        if not file.is_file():
            raise Stop(f"no {file}: text needs the checkpoint's tokenizer")
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as broken:  # tokenizers raises nothing more specific
            raise Stop(f"{file} is no tokenizer: {broken}") from None
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        ends = config.get("eos_token_id")
        self.end_ids = set(ends if isinstance(ends, list) else [ends])  # ids that end a text

    def ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids)
