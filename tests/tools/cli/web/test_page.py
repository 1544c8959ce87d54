"""The page in a real browser, from the gateway's own HTTP server. Its serial port is not tried: a browser without a
window has no dialog in which a port could be chosen, and no pseudo-terminal would be among them."""

from pathlib import Path
from urllib.parse import urlsplit

from gateway.counters import Counters, State
from gateway.observe.health import HealthServer
from gateway.observe.metrics import Metrics
from tests.support.board_tools import NEEDS_BOARD_TOOLS
from tests.support.browser import open_page
from tests.tools.cli.web.packages import real_package
from tests.tools.cli.web.test_build import Desk

pytestmark = NEEDS_BOARD_TOOLS
BUTTON = "document.querySelector('esp-web-install-button')"
SHOWN = f"customElements.whenDefined('esp-web-install-button').then(() => {BUTTON}.shadowRoot.innerHTML)"


async def test_page_shows_the_button_and_asks_no_other_host(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.package = real_package()
    assert (done := desk.build()).exit_code == 0, done.output
    scripts = sorted(path.name for path in (desk.out / "esp-web-tools").glob("*.js"))
    server = HealthServer(0, Metrics(Counters(), State, list), list, firmware=str(desk.out))
    await server.open()
    try:
        async with open_page(f"http://localhost:{server.port}/firmware/", tmp_path / "profile") as page:
            shown = await page.evaluate(SHOWN)
            assert "<button>Connect</button>" in shown, shown
            assert await page.evaluate(f"{BUTTON}.hasAttribute('install-supported')")
            manifest = f"fetch({BUTTON}.getAttribute('manifest')).then(answer => answer.json())"
            builds = (await page.evaluate(manifest))["builds"]
            for part in builds[0]["parts"]:
                size = await page.evaluate(
                    f"fetch('{part['path']}').then(a => a.arrayBuffer()).then(b => b.byteLength)"
                )
                assert size == (desk.out / part["path"]).stat().st_size
            for script in scripts:  # also scripts that are loaded only when a board is connected
                assert await page.evaluate(f"import('/firmware/esp-web-tools/{script}').then(() => true)")
            refused = "fetch('https://example.org/').then(() => 'sent', () => 'refused')"
            assert await page.evaluate(refused) == "refused"
            asked = {urlsplit(url).netloc for url in page.requests if not url.startswith("data:")}
            assert asked - {"example.org"} == {f"localhost:{server.port}"}
            assert [error for error in page.errors if "example.org" not in error] == []
            assert len([url for url in page.requests if url.endswith(".js")]) >= len(scripts)
    finally:
        await server.close()
