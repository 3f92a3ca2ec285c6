"""What make knows of the sources: `make -W FILE` takes that file for new."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KINDS = sorted({file.suffix for file in (ROOT / "engine/native").glob("*.*")})


@pytest.mark.parametrize("suffix", KINDS)
def test_the_engine_is_built_again_after_a_change(suffix):
    file = min((ROOT / "engine/native").glob(f"*{suffix}")).relative_to(ROOT)
    command = ["make", "--no-print-directory", "-n", "-W", str(file), "build/smoe-engine"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "--build" in planned
