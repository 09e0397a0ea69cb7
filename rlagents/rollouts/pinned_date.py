"""Chat templates that stamp the date, made to stamp a given one: a conversation must not change at midnight."""

import datetime
import re
from typing import Any

# Templates either read the variable date_string or call strftime_now(format). The macro hides the function of that
# name; what it needs is computed here, for templates are given plain data only. The empty expression keeps the
# template's first line break, which would be trimmed after a block.
_MACRO = (
    "{%- macro strftime_now(format) %}"
    "{{- pinned_dates[format] if format in pinned_dates else raise_exception('no pinned date for ' + format) }}"
    "{%- endmacro %}{{ '' }}"
)
_FORMAT = re.compile(r"""(["'])([^"'\n]*%[^"'\n]*)\1""")
DATE_STRING_FORMAT = "%d %b %Y"


def pin_date(template: str, date: datetime.date) -> tuple[str, dict[str, Any]]:
    """The template with the clock replaced by ``date``, and the variables to render it with."""
    formats = {found for _, found in _FORMAT.findall(template)}
    variables = {
        "date_string": date.strftime(DATE_STRING_FORMAT),
        "pinned_dates": {found: date.strftime(found) for found in formats},
    }
    return (_MACRO + template if "strftime_now" in template else template), variables
