"""What the author writes by hand: a text, and remarks on verdicts, each shown only while its verdict stands."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from orthobench.errors import UsageError, unknown
from orthobench.papers import find_paper
from orthobench.reporting.account.paper_views import ArtifactView, PaperView
from orthobench.settings.toml_files import read_toml

LEFT_OUT = "Remark left out, because it was written for another verdict."


class Remark(BaseModel):
    """A remark on a claim, or on a number of a table.

    Attributes:
        paper: the paper's key.
        artifact: its table or figure.
        about: the text of a claim, or the row and the column of a number, as in "scoRNN, n = 170, MNIST".
        verdict: the verdict for which the remark was written.
        written: its date.
        commit: the commit whose results it is about.
        text: the remark, with words of code in backticks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    artifact: str
    about: str
    verdict: str
    written: date
    commit: str = ""
    text: str

    def shown(self, verdict: str) -> str:
        """Return the remark, or why it is left out next to this verdict, with its date and commit."""
        text, of = (self.text, "") if verdict == self.verdict else (LEFT_OUT, self.verdict)
        return f"{' '.join(text.split())} ({', '.join(filter(None, (of, str(self.written), self.commit)))})"


class Explanation(BaseModel):
    """The figure that explains the results, with a heading and a text in Markdown.

    Attributes:
        paper: the key of the figure's paper.
        artifact: the figure, of which the first panel is shown.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    paper: str
    artifact: str
    text: str


class Commentary(BaseModel):
    """The content of a commentary's file, in Markdown.

    Attributes:
        title: what the results show, in one line above the first table.
        lead: the sentences below it.
        explanation: why it is so.
        text: what else there is to say, on a page of its own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    lead: str = ""
    explanation: Explanation | None = None
    text: str = ""
    remark: tuple[Remark, ...] = ()

    def on(self, paper: str, artifact: str, about: str | None = None) -> list[Remark]:
        """Return the remarks on a table or figure, or only those on one of its claims or numbers."""
        own = [each for each in self.remark if (each.paper, each.artifact) == (paper, artifact)]
        return [each for each in own if about in (None, each.about)]

    def check(self, views: Sequence[PaperView]) -> None:
        """Warn of the remarks whose verdict has changed.

        Raises:
            UsageError: as for `outdated`.
        """
        for each, verdict in self.outdated(views):
            place = f"{each.paper}, {each.artifact}, {each.about}"
            _logger.warning("remark left out: it was written for '%s', now '%s': %s", each.verdict, verdict, place)

    def outdated(self, views: Sequence[PaperView]) -> Iterator[tuple[Remark, str]]:
        """Yield the remarks whose verdict has changed, with the verdict of today; those on other papers are left out.

        Raises:
            UsageError: a remark is about an unknown paper, table or figure, claim or number.
        """
        parts = {(view.paper.key, part.artifact.name): part for view in views for part in view.artifacts}
        for each in self.remark:
            artifacts = [artifact.name for artifact in find_paper(each.paper).artifacts()]
            if each.artifact not in artifacts:
                raise unknown(f"table or figure of {each.paper}", each.artifact, artifacts)
            if part := parts.get((each.paper, each.artifact)):
                verdicts = verdicts_of(part)
                if each.about not in verdicts:
                    raise unknown(f"claim or number of {each.paper}, {each.artifact}", each.about, verdicts)
                if verdicts[each.about] != each.verdict:
                    yield each, verdicts[each.about]


NONE = Commentary()
_logger = logging.getLogger("orthobench")


def read_commentary(file: Path) -> Commentary:
    """Read a commentary.

    Raises:
        UsageError: the file cannot be read, or is not such a file; the message names the entry.
    """
    content = read_toml(file, f"commentary {file}")
    try:
        return Commentary.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        where = " ".join(str(part + 1) if isinstance(part, int) else part for part in problem["loc"])
        raise UsageError(f"commentary {file}: {where}: {problem['msg'].lower()}") from error


def verdicts_of(part: ArtifactView) -> dict[str, str]:
    """Return the verdicts on the claims and numbers of a table or figure, by what a remark is `about`."""
    rows = part.table.rows if part.table else []
    numbers = {f"{row.label}, {label}": cell.words for row in rows for label, cell in row.cells.items()}
    return numbers | {result.claim.text: str(result.conclusion) for result in part.claim_results}
