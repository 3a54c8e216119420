"""What must hold before pyinfra connects: see operations/session.py."""

from operations import session

session.install()
