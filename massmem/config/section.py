"""The base of all sections of a configuration."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from massmem.core.redact import redact_values


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _accept_yaml(cls, value: Any, info: ValidationInfo) -> Any:
        """Take null for a section whose keys are all commented out, and refuse true where a number must stand."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        if value is None and isinstance(annotation, type) and issubclass(annotation, Section):
            return {}
        if isinstance(value, bool) and {int, float} & {annotation, *get_args(annotation)}:
            raise ValueError("must be a number")
        return value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # URLs and arguments may hold a password, too.
        for name, value in super().__repr_args__():
            yield name, value if isinstance(value, Section) else redact_values(value)
