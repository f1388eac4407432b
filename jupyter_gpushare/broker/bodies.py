"""Request bodies -> typed values, with one line that names the field where they are not usable."""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from ..errors import BadDemand

Body = TypeVar("Body")
_AT = re.compile(r"(?P<what>.*?) - at `\$\.?(?P<path>.*)`$")
BODY_MAX = 1 << 20
NUL = rb"\u0000"  # in JSON; PostgreSQL keeps no text with one, so nothing of that user would be kept


def parsed(body: bytes, kind: type[Body], **fields: object) -> Body:
    """The body as `kind`, an empty one as {}; `fields` come from the path and win. Raises BadDemand."""
    if len(body) > BODY_MAX:
        raise BadDemand(f"body: {len(body)} bytes are more than the {BODY_MAX} that are read.")
    if NUL in body:
        raise BadDemand("body: a NUL character is part of no text; leave out \\u0000.")
    try:
        raw = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadDemand(f"body: not JSON ({error}).") from None
    except RecursionError:
        raise BadDemand("body: nested deeper than is read.") from None
    if not isinstance(raw, dict):
        raise BadDemand("body: not a JSON object.")
    raw |= fields
    _known(raw, kind, "")
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise BadDemand(_said(str(error))) from None


def _known(raw: dict[str, Any], kind: type, where: str) -> None:
    """Raises BadDemand for a field that nobody would read: a misspelt one must not be lost in silence."""
    allowed = {name: name for name in kind.__struct_fields__} | {
        name: name for name in (kind.__struct_config__.tag_field,) if name
    }
    for name in raw:
        if name not in allowed:
            raise BadDemand(f"{where}{name}: no such field; there are {', '.join(sorted(allowed))}.")
    hints = get_type_hints(kind)
    for name, value in raw.items():
        if isinstance(value, dict):
            for part in (hints.get(name), *get_args(hints.get(name))):
                if isinstance(part, type) and issubclass(part, msgspec.Struct):
                    _known(value, part, f"{where}{name}.")


def _said(error: str) -> str:
    """msgspec's sentence, the field first: ``gpus: expected `float`, got `str`.``"""
    found = _AT.match(error)
    if found is None:
        return f"{error}."
    what = found["what"]
    return f"{found['path'] or 'body'}: {what[:1].lower()}{what[1:]}."
