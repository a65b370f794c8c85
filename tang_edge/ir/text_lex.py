"""Tokens of the text form (see `text`), and a cursor over the tokens of one line."""

from __future__ import annotations

import json
import re
from typing import Final

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<string>\"(?:[^\"\\]|\\.)*\")|(?P<digest>sha256:[0-9a-f]{64})|(?P<ref>%\d+)"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_']*)"
    r"|(?P<sign>->|==|!=|<=|>=|//|\.\.|[-+*/%<=()\[\],:|.@]))"
)


class TextError(ValueError):
    """A text that is no program; the message names the line."""


class Line:
    """A cursor over the tokens of one line."""

    def __init__(self, text: str, number: int) -> None:
        self.number = number
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        end = 0
        text = text.rstrip()
        while end < len(text):
            m = _TOKEN.match(text, end)
            if m is None or m.lastgroup is None:
                raise self.error(f"cannot read {text[end : end + 20]!r}")
            self.tokens.append((m.lastgroup, m[m.lastgroup]))
            end = m.end()

    def error(self, message: str) -> TextError:
        """An error at this line."""
        return TextError(f"line {self.number}: {message}")

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        """(kind, text) of a token to come; ("end", "") after the last."""
        k = self.at + ahead
        return self.tokens[k] if k < len(self.tokens) else ("end", "")

    def next(self) -> tuple[str, str]:
        """The next token, consumed."""
        token = self.peek()
        self.at += 1
        return token

    def take(self, *texts: str) -> str | None:
        """The next token's text, consumed, when it is one of these signs or words (no quoted name is)."""
        kind, text = self.peek()
        if kind != "string" and text in texts:
            self.at += 1
            return text
        return None

    def expect(self, text: str) -> None:
        """Consumes this sign or word."""
        if self.take(text) is None:
            raise self.error(f"expected {text!r}, found {self.peek()[1]!r}")

    def name(self) -> str:
        """A plain or quoted name."""
        kind, text = self.next()
        if kind not in ("name", "string"):
            raise self.error(f"expected a name, found {text!r}")
        return str(json.loads(text)) if kind == "string" else text

    def string(self) -> str:
        """A quoted string."""
        if self.peek()[0] != "string":
            raise self.error(f"expected a string, found {self.peek()[1]!r}")
        return self.name()

    def integer(self) -> int:
        """An integer with an optional sign."""
        sign = -1 if self.take("-") else 1
        kind, text = self.next()
        if kind != "number" or not text.isdigit():
            raise self.error(f"expected an integer, found {text!r}")
        return sign * int(text)

    def done(self) -> None:
        """Nothing may follow."""
        if self.peek()[0] != "end":
            raise self.error(f"unexpected {self.peek()[1]!r}")
