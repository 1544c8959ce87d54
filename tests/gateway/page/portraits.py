"""``python -m tests.gateway.page.portraits``: takes the pictures of the status page for its how-to page."""

import asyncio
import base64
import tempfile
from pathlib import Path

from tests.gateway.page.serving import add_scene, observer_of, paged
from tests.gateway.serving import running
from tests.house.repository import ROOT
from tests.support.browser import open_page

LIVE = """new Promise(done => setInterval(() =>
    document.getElementById('state').textContent.startsWith('It renews') &&
    !document.getElementById('tiles').innerText.includes('?') && done(), 50))"""
SIZES = {"status-page": (1000, 1180), "status-page-phone": (390, 844)}


async def main(folder: Path, out: Path) -> None:
    async with running(folder / "store") as broker:
        observer = observer_of(broker, "central")
        await add_scene(broker, observer)
        async with paged(broker, observer) as page, open_page(f"http://127.0.0.1:{page.port}/", folder / "p") as shown:
            await shown.evaluate(LIVE)
            for name, (width, height) in SIZES.items():
                is_phone = width < 500
                await shown.call(
                    "Emulation.setDeviceMetricsOverride",
                    width=width,
                    height=height,
                    deviceScaleFactor=1.5 if is_phone else 1,
                    mobile=is_phone,
                )
                taken = await shown.call("Page.captureScreenshot", format="png")
                (out / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary), ROOT / "docs/pictures"))
