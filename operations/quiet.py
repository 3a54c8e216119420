"""pyinfra says `No changes` of every box in every wave, also of those whose turn it is not: left out of its log."""

from __future__ import annotations

import logging

from pyinfra import logger

NOTHING = "No changes"


class _Quiet(logging.Filter):
    on = False

    def filter(self, record: logging.LogRecord) -> bool:
        return not (self.on and NOTHING in str(record.msg))


_quiet = _Quiet()


def during(a_wave: bool) -> None:
    """Called as an operation begins. In others `No changes` says something: that all was in place."""
    _quiet.on = a_wave
    logger.addFilter(_quiet)
