"""Types of the keys of settings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from noisedesign.files.schema import Text

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Nonnegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
Counts = Annotated[list[Count], Field(min_length=1)]
Positives = Annotated[list[Positive], Field(min_length=1)]
Names = Annotated[list[Text], Field(min_length=1)]
Graphs = Annotated[list[dict[str, Any]], Field(min_length=1)]
