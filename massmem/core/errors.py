"""Every error that a user may see, as one tree. The number is the exit code; a class without one inherits it.

MassmemError                      one message, one hint, one exit code
├── InputError                2   the user's input is wrong
│   ├── ConfigError               all problems of a configuration file at once
│   ├── MissingKeyError           no API key for the chosen provider
│   ├── MissingModelError         model weights are not on this machine, or are damaged
│   ├── HomeError                 ~/.massmem cannot be created or written
│   └── DuplicateRequestError     a question with this request key is in the log already
├── UnknownSessionError       5
├── StoreError                3   the session store cannot be used now
│   ├── StoreUnavailable          its server cannot be reached
│   ├── StoreVersionError     2   written by a newer massmem
│   ├── StoreDamagedError     2   the file is not a readable database
│   ├── SessionExistsError        the id is taken; the caller picks another
│   └── SessionBusyError          another process runs a turn of this session
├── MemoryUnavailable         3   the memory index cannot be used now: locked by another process, or its server is gone
│   ├── IndexDamaged              `massmem memory rebuild` builds it again from the log
│   └── EmbeddingError            no usable vector; nothing was written
├── ToolServerError           3   a tool server that the configuration requires does not start
├── ProviderError             1   a model request failed
│   ├── ContextOverflow           the prompt does not fit the model's window
│   │   └── DoesNotFit            it cannot be made to fit: the message names the part that is too large
│   ├── PromptTruncated       2   the server cut the prompt without an error
│   ├── RateLimited           3   429, with the time that the server asks to wait
│   ├── ProviderUnavailable   3   408/409/5xx, overloaded
│   ├── ProviderTimeout       3
│   │   └── DeadlineExceeded      the reply was not complete in the time that a whole reply may take
│   ├── ProviderConnectionError 3
│   │   └── WrongAddress      3   no such host, or no TLS there: not tried again
│   ├── StreamInterrupted     3   the stream ended without a finish reason; the error has the partial text
│   ├── MalformedResponse         the reply is not what the protocol promises
│   │   └── NotAnActionError      the agent's reply and its repair are no valid action; it acts again next round
│   ├── AuthenticationError   2
│   ├── ModelNotFound         2
│   ├── RequestRejected       2   any other 4xx
│   │   └── ToolsRefused          the model takes no function tools; the same can be asked for as JSON
│   └── ContentRefused            the provider's filter or the model refused
├── DownloadError             3   no source delivered the file
├── TurnError                 1   no agent could answer
├── BusyError                 3   too many strangers' files are being read; the same may succeed in a minute
├── MachineError              3   the machine is at its limit: no disk space, no memory, too many open files
├── InternalError            70   a bug of massmem in one agent's step; its traceback is in the log
└── LimitReached              4   time, cost or tokens
"""

from typing import ClassVar

from massmem.core.messages import Usage


class MassmemError(Exception):
    """Base of all errors shown to a user."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        """message: what went wrong and why, one line. hint: what to do next; empty when there is nothing to do."""
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(MassmemError):
    exit_code: ClassVar[int] = 2


class ConfigError(InputError):
    def __init__(self, problems: list[str], hint: str = "") -> None:
        """problems: one line each, `file:line: dotted.key: message`."""
        super().__init__("\n".join(problems), hint)
        self.problems = problems


class MissingKeyError(InputError):
    pass


class MissingModelError(InputError):
    pass


class HomeError(InputError):
    pass


class DuplicateRequestError(InputError):
    def __init__(self, seq: int) -> None:
        """seq: the event in the log that this question became."""
        super().__init__("a question with this key was asked before", "read its answer in the session")
        self.seq = seq


class UnknownSessionError(MassmemError):
    exit_code: ClassVar[int] = 5


class UnknownMemoryError(InputError):
    """There is no memory with this id."""


class StoreError(MassmemError):
    exit_code: ClassVar[int] = 3


class StoreUnavailable(StoreError):
    pass


class StoreVersionError(StoreError):
    exit_code: ClassVar[int] = 2


class StoreDamagedError(StoreError):
    exit_code: ClassVar[int] = 2


class SessionExistsError(StoreError):
    pass


class SessionBusyError(StoreError):
    pass


class MemoryUnavailable(MassmemError):
    exit_code: ClassVar[int] = 3


class IndexDamaged(MemoryUnavailable):
    pass


class EmbeddingError(MemoryUnavailable):
    pass


class ToolServerError(MassmemError):
    exit_code: ClassVar[int] = 3


class ProviderError(MassmemError):
    retryable: ClassVar[bool] = False
    """The same request may succeed later."""

    def __init__(self, message: str, hint: str = "", *, partial: str = "", retry_after: float | None = None) -> None:
        """partial: text streamed before the failure. retry_after: seconds that the server asks to wait, if it does."""
        super().__init__(message, hint)
        self.partial = partial
        self.retry_after = retry_after
        self.usage: Usage | None = None
        """What the server reported of the reply before it failed."""


class ContextOverflow(ProviderError):
    def __init__(
        self, message: str, hint: str = "", *, prompt_tokens: int | None = None, window: int | None = None
    ) -> None:
        """prompt_tokens, window: as the server named them, None when it did not."""
        super().__init__(message, hint)
        self.prompt_tokens = prompt_tokens
        self.window = window


class PromptTruncated(ProviderError):
    exit_code: ClassVar[int] = 2


class DoesNotFit(ContextOverflow):
    pass


class RateLimited(ProviderError):
    exit_code: ClassVar[int] = 3
    retryable: ClassVar[bool] = True


class ProviderUnavailable(ProviderError):
    exit_code: ClassVar[int] = 3
    retryable: ClassVar[bool] = True


class ProviderTimeout(ProviderError):
    exit_code: ClassVar[int] = 3
    retryable: ClassVar[bool] = True


class DeadlineExceeded(ProviderTimeout):
    retryable: ClassVar[bool] = False


class ProviderConnectionError(ProviderError):
    exit_code: ClassVar[int] = 3
    retryable: ClassVar[bool] = True


class WrongAddress(ProviderConnectionError):
    """No server can be reached at the address, however often it is tried."""

    retryable: ClassVar[bool] = False


class StreamInterrupted(ProviderError):
    exit_code: ClassVar[int] = 3
    retryable: ClassVar[bool] = True


class MalformedResponse(ProviderError):
    pass


class NotAnActionError(MalformedResponse):
    pass


class AuthenticationError(ProviderError):
    exit_code: ClassVar[int] = 2


class ModelNotFound(ProviderError):
    exit_code: ClassVar[int] = 2


class RequestRejected(ProviderError):
    exit_code: ClassVar[int] = 2


class ToolsRefused(RequestRejected):
    pass


class ContentRefused(ProviderError):
    pass


class DownloadError(MassmemError):
    exit_code: ClassVar[int] = 3


class TurnError(MassmemError):
    pass


class BusyError(MassmemError):
    exit_code: ClassVar[int] = 3


class MachineError(MassmemError):
    exit_code: ClassVar[int] = 3


class InternalError(MassmemError):
    exit_code: ClassVar[int] = 70


class LimitReached(MassmemError):
    exit_code: ClassVar[int] = 4

    def __init__(self, message: str, hint: str = "", *, partial: str = "") -> None:
        """partial: text of the reply that was cut off, if one was."""
        super().__init__(message, hint)
        self.partial = partial
