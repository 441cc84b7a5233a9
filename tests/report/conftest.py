"""Pages of all samples, rendered once, for drawing them is the slow part."""

import pytest
from report_samples import SAMPLES, sample

from compress.report.html import render_html


@pytest.fixture(scope="session")
def pages() -> dict[str, str]:
    return {name: render_html(sample(name)) for name in SAMPLES}
