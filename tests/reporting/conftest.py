from __future__ import annotations

import pytest


@pytest.fixture
def browser(chromium):
    """The module's Chromium as if it were new: an empty page, a desktop's size, light colours, empty logs."""
    chromium.get("about:blank")
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    chromium.set_window_size(1200, 1600)
    for kind in ("browser", "performance"):
        chromium.get_log(kind)
    return chromium
