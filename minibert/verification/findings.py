"""What a verification finds, in lines that a terminal can show."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import InputError, InputWarning, RunError
from minibert.base.terminal import printable

LONGEST = 600  # characters of a sentence; a damaged file may make it quote anything
MOST = 1000  # findings


class Finding(NamedTuple):
    """Something that is wrong with a file.

    Attributes
    ----------
    place : str
        The file, relative to the folder.
    message : str
        One sentence: what is wrong, and what to do.
    """

    place: str
    message: str

    def __str__(self) -> str:
        is_named = self.message.startswith(self.place) or f"'{self.place}'" in self.message
        return self.message if is_named else f"{self.place}: {self.message}"


@dataclass
class Verification:
    """The result of `minibert.verify`; `print` shows it as the command does.

    Attributes
    ----------
    folder : Path
        The folder or file that was verified.
    kind : str
        What it is, such as "pre-training run".
    checked : list of str
        What was compared and is right, a line each.
    findings : list of Finding
        What is wrong; [] if everything is whole.
    """

    folder: Path
    kind: str = ""
    checked: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def right(self, text: str) -> None:
        """Note something that is right.

        Parameters
        ----------
        text : str
            A line.
        """
        self.checked.append(printable(text)[:LONGEST])

    def wrong(self, place: str, message: str) -> None:
        """Note something that is wrong; paths in the message become relative to the folder.

        Parameters
        ----------
        place : str
            The file, relative to the folder.
        message : str
            What is wrong and what to do.
        """
        text = printable(message.replace(f"{self.folder}{os.sep}", ""))
        finding = Finding(printable(place), text[:LONGEST])
        if len(self.findings) < MOST and finding not in self.findings:
            self.findings.append(finding)

    def names(self, place: str) -> bool:
        """Return whether something is wrong with a file.

        Parameters
        ----------
        place : str
            The file, relative to the folder.

        Returns
        -------
        bool
        """
        return any(finding.place == place for finding in self.findings)

    @contextmanager
    def reading(self, place: str) -> Iterator[None]:
        """Note the error that ends the block, and every warning in it about what is read.

        Parameters
        ----------
        place : str
            The file that the block reads, relative to the folder.

        Yields
        ------
        None
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            except (InputError, RunError) as error:
                self.wrong(place, str(error))
            except OSError as error:
                self.wrong(place, f"can't be read ({error.strerror or error}); check the file.")
        for warning in caught:
            if isinstance(warning.message, InputWarning):
                self.wrong(place, str(warning.message))

    def include(self, part: "Verification") -> None:
        """Add the findings about a folder inside this one.

        Parameters
        ----------
        part : Verification
            Of a subfolder.
        """
        for place, message in part.findings:
            self.wrong(f"{part.folder.name}/{place}", message)

    def to_json(self) -> dict[str, Any]:
        """Return everything as a value for JSON.

        Returns
        -------
        dict
            `folder`, `kind`, `whole` (whether nothing is wrong), `checked` and `findings`.
        """
        findings = [finding._asdict() for finding in self.findings]
        return {
            "folder": str(self.folder),
            "kind": self.kind,
            "whole": not findings,
            "checked": self.checked,
            "findings": findings,
        }

    def __str__(self) -> str:
        lines = [f"OK     {text}" for text in self.checked]
        lines += [f"WRONG  {finding}" for finding in self.findings]
        return "\n".join(lines)
