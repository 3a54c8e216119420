"""pyinfra operations: they carry a plan out, and decide nothing."""

import sys


def keep_byte_code() -> None:
    """pyinfra keeps Python from writing byte code, for deploy.py and its like are run and not imported. Of our modules
    none would be written either, and each run would compile them anew."""
    sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)


keep_byte_code()
