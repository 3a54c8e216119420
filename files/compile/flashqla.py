"""FlashQLA's extension for cards below 9.0, which it would compile at the first request.

Runs in the new runtime (gpufleet's verb `runtime`), once for each architecture, and needs no card: the patched package
writes it below its own folder, where it looks for it first. A minute or two on one core.
"""

import os
import sys
from pathlib import Path

from flash_qla.ops.gated_delta_rule.legacy import sm_legacy

made = Path(sm_legacy.prebuild())
into = Path(os.environ["GPUFLEET_INTO"])
if into.resolve() not in made.resolve().parents:
    sys.exit(f"FlashQLA wrote {made}, which is not in {into}: correct `into` of the stack's page")
print(f"gpufleet: FlashQLA: {made.relative_to(into)}, {made.stat().st_size >> 10} KiB", flush=True)
