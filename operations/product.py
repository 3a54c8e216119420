"""The product's deploy page, run by the deploy.py of an owner's folder: an upgrade of gpufleet brings its newest."""

from __future__ import annotations

from pyinfra_cli.util import exec_file

from gpufleet.paths import deploy_page


def deploy() -> None:
    """
    Run the product's deploy.py for the box at hand, as if it stood in the owner's.

    pyinfra's `local.include` would put the file's name before the title of each operation, by which waves are known.

    **Example:**

    .. code:: python

        from operations import product

        product.deploy()
    """
    exec_file(str(deploy_page()))
