"""Pages whose blocks of Python, one after the other, are a script: it runs as it stands there."""

import re
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.commands import alone

pytest.importorskip("torch")

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["data.md", "precision.md"])
def test_the_blocks_of_a_page_run(tmp_path: Path, page: str) -> None:
    """Broken: who copies them would see an error."""
    blocks = BLOCK.findall((DOCS / page).read_text())
    assert len(blocks) >= 3
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    ended = alone(warm.hocket("run", "-n", "2", str(script)), cwd=tmp_path, OMP_NUM_THREADS="1")
    assert ended.returncode == 0, ended.stderr
    assert "same batches" not in ended.stderr
