"""What every part of the configuration is made of."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from massmem.redact import redact_values

Secret = Annotated[SecretStr, Field(min_length=1)]
"""A value that no repr, error or dump shows; empty is a mistake, never a key."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _as_written_in_yaml(cls, value: Any, info: ValidationInfo) -> Any:
        """Two readings that YAML needs and pydantic does not have.

        A section whose keys are all commented out is null: it means the defaults. And true is not the number 1.
        """
        annotation = cls.model_fields[str(info.field_name)].annotation
        if value is None and isinstance(annotation, type) and issubclass(annotation, Section):
            return {}
        if isinstance(value, bool) and {int, float} & {annotation, *get_args(annotation)}:
            raise ValueError("must be a number")
        return value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Also URLs and arguments may hold a password: what is shown of them is redacted."""
        for name, value in super().__repr_args__():
            yield name, value if isinstance(value, Section) else redact_values(value)
