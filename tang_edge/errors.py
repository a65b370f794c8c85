"""The errors that tang-edge raises on purpose. A leaf: it imports nothing of ours.

Every message says where the problem is, what it is, and (where there is one) what to do about it.
"""

from __future__ import annotations


class TangError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: what is wrong, in words.
        where: the file, member, input or kernel concerned ("" where there is none).
        remedy: what the reader can do about it ("" where there is nothing).

    ``str()`` of it is ``"where: message. remedy"``.
    """

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(message, where, remedy)
        self.message = message
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        if self.remedy:
            return f"{text.rstrip('. ')}. {self.remedy}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        # keyword-only arguments do not survive the default pickling of exceptions (process pools need it)
        return _rebuild, (type(self), self.message, self.where, self.remedy)


def _rebuild(kind: type[TangError], message: str, where: str, remedy: str) -> TangError:
    return kind(message, where=where, remedy=remedy)


class UnsupportedModel(TangError):
    """The model asks for something that the compiler does not derive."""


class TargetLimit(TangError):
    """The model cannot be expressed within the limits of a device class."""


class BundleError(TangError):
    """The bundle file is malformed, truncated, tampered with, too new, or not usable here."""


class DeviceError(TangError):
    """The driver, the adapter or the compiler of this machine failed or is missing."""


class InputError(TangError):
    """The caller's arrays: names, dtypes, shapes or dimension values are not what the model takes."""


class CompilerBug(TangError):
    """An invariant of ours does not hold. Please report it."""
