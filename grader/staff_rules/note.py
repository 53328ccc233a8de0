"""What a rule for the staff has to say."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Note:
    """One observation about one file."""

    rule: str  # name of the function that made it
    file: str  # "gemm.csv", or several
    what: str  # for a person, and with the honest cause that it may have
    evidence: dict[str, float] = field(default_factory=dict)  # the figures behind it

    def line(self) -> str:
        """The note as the report shows it, on one line."""
        figures = ", ".join(f"{name} {value:.4g}" for name, value in self.evidence.items())
        return f"{self.file}: {self.what}{f' ({figures})' if figures else ''} [{self.rule}]"
