"""The models that stand in for an agent's own, one after the other, when a provider fails for good."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from massmem.config.models import AgentConfig, BackendConfig
from massmem.core.errors import (
    AuthenticationError,
    ContentRefused,
    NotAnActionError,
    ProviderConnectionError,
    ProviderError,
)
from massmem.memory.budget import MeteredProvider
from massmem.turn.compressor import TokenMeter
from massmem.turn.prompt_builder import Prompt

_ANSWERED = (NotAnActionError, ContentRefused)
"""The provider works: the model's reply was of no use, or refused. Another model is not asked to get around that."""

OUTAGES = (AuthenticationError, ProviderConnectionError)
"""Errors that concern more than one request."""


@dataclass(frozen=True, slots=True)
class Model:
    """A fallback of an agent."""

    config: AgentConfig
    """The agent's, with the backend of this model."""
    provider: MeteredProvider
    open_meter: Callable[[], Awaitable[TokenMeter]]
    """Asks for the window: only a model that is needed is asked."""


@dataclass(slots=True)
class Outages:
    """What has failed in a turn for everybody who would ask there."""

    _errors: dict[tuple[object, ...], ProviderError] = field(default_factory=dict[tuple[object, ...], ProviderError])
    _working: set[tuple[object, ...]] = field(default_factory=set[tuple[object, ...]])
    """Accounts of which a request was answered: a later failure is no outage."""

    def note_reply(self, backend: BackendConfig) -> None:
        """Remember that a request was answered."""
        self._working.add(_account(backend))
        self._errors.pop(_account(backend), None)
        self._errors.pop((backend.type, backend.base_url), None)

    def note(self, backend: BackendConfig, error: ProviderError) -> None:
        """Remember a failure, if it is not of one request alone. Models in this process share nothing that can fail."""
        if isinstance(error, OUTAGES) and not backend.is_in_process and _account(backend) not in self._working:
            by_key = isinstance(error, AuthenticationError)
            self._errors[_account(backend) if by_key else (backend.type, backend.base_url)] = error

    def require_none(self, backend: BackendConfig) -> None:
        """Raise the ProviderError with which the same request would fail: nothing is asked twice in vain."""
        error = self._errors.get((backend.type, backend.base_url)) or self._errors.get(_account(backend))
        if error is not None:
            raise error


class Fallbacks:
    """The fallbacks of one agent in a turn. A turn that is resumed begins with the agent's own model again."""

    def __init__(self, own: BackendConfig, models: Sequence[Model] = (), outages: Outages | None = None) -> None:
        self.places = {(backend.type, backend.base_url) for backend in (own, *own.fallbacks)}
        """The providers of all models, the agent's own included."""
        self.name = ""
        """Of the fallback that is asked now; "": it is the agent's own model."""
        self._backend = own
        self._models = list(models)
        self._labels = [own.label, *(model.config.backend.label for model in models)]
        self._outages = outages or Outages()
        self._errors: list[ProviderError] = []

    def require_reachable(self) -> None:
        """Raise the ProviderError with which another agent's request to the same provider has just failed."""
        self._outages.require_none(self._backend)

    def note_reply(self) -> None:
        """Remember that the present model has answered."""
        self._outages.note_reply(self._backend)

    def take_next(self, error: ProviderError, prompt: Prompt) -> Model:
        """Return the model that goes on after an error, or raise the error when no model is left for that.

        prompt: what it would be sent.
        """
        self._outages.note(self._backend, error)
        if isinstance(error, _ANSWERED):
            raise error
        self._errors.append(error)
        while self._models:
            model = self._models.pop(0)
            number = len(self._labels) - len(self._models) - 1
            label = model.config.backend.label
            self.name = label if self._labels.count(label) == 1 else f"{label} (fallback {number})"
            try:
                self._outages.require_none(model.config.backend)
            except ProviderError as known:
                self._errors.append(known)
                continue
            if prompt.attachments and model.provider.abilities.vision is False:
                self._errors.append(ProviderError(f"{self.name}: not asked, it does not see what is attached"))
                continue
            self._backend = model.config.backend
            return model
        if len(self._errors) == 1:
            raise error
        raise self._sum_up(error) from error

    def _sum_up(self, last: ProviderError) -> ProviderError:
        """Return one error for all models, of the kind of the last one that was asked."""
        messages = list(dict.fromkeys(error.message.rstrip(". ") for error in self._errors))
        hint = next((error.hint for error in self._errors if error.hint), "")
        return type(last)(f"all its models failed: {'; '.join(messages)}", hint)


def drop_pictures(prompt: Prompt) -> Prompt:
    """Return the prompt as a model is sent it that does not see. Messages of earlier turns name their pictures."""
    bare = (replace(m, message=replace(m.message, attachments=())) for m in prompt.history)
    return replace(prompt, history=tuple(bare))


def _account(backend: BackendConfig) -> tuple[object, ...]:
    """A key may be allowed one model and not another."""
    key = backend.api_key.get_secret_value() if backend.api_key else ""
    return backend.type, backend.base_url, key, backend.model
