"""What the kit raises: mistakes in a test, tools that do not act once, and the errors of its stand-in for a
provider."""

from __future__ import annotations


class InvalidCheck(Exception):
    """The check itself is wrong: the test needs a change, not the tool."""


class NotOnce(AssertionError):
    """The effect did not happen once. The text is the report."""


class ProviderError(Exception):
    """The base of the errors of the stand-in for a provider."""


class NoAnswer(ProviderError):
    """The answer did not arrive. The effect may have happened.

    Its text contains no phrase that the ledger takes as evidence, such as "timed out": not every client says as much.
    """

    def __init__(self, message: str = "the provider did not respond") -> None:
        super().__init__(message)


class RequestRefused(ProviderError):
    """The provider refused before anything happened."""

    def __init__(self, message: str = "the provider refused the request; nothing happened") -> None:
        super().__init__(message)


class KeyReused(ProviderError):
    """The idempotency key was used for another effect before."""

    def __init__(self, message: str = "the provider knows this key from another request; nothing happened") -> None:
        super().__init__(message)
