"""Ends the server for other boxes."""

from __future__ import annotations

from hostkit import files, share, systemd


def run(spec: dict) -> dict:
    with share.locked():
        systemd.stop(share.UNIT)
        files.with_suppressed_unlink(share.SECRETS)
    return {}
