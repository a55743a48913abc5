"""Checks the built documentation in headless Chromium: python tools/docs/browse.py.

It loads every page at the widths of a phone and of a desktop, and the pages of SHOWN also in the dark theme,
with screenshots. Fails if the browser's console has a message, a page scrolls sideways, a picture is missing
or the search finds nothing.
"""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

OUTPUT = Path(__file__).resolve().parents[2] / "build/docs"
SHOWN = [
    "index",
    "start",
    "numbers",
    "guides/pytorch",
    "guides/cpp",
    "families/sparse_conv",
    "families/mutual_information",
    "reference/cpp",
    "coming_from_mmcv",
]
WIDTHS = [390, 1280]
# Chromium's window is at least 500 wide, so the width of a phone is emulated.
_WIDER_THAN_THE_PAGE = """
    const width = document.documentElement.clientWidth;
    const scrolls = element => {
        for (let at = element.parentElement; at && at !== document.body; at = at.parentElement)
            if (getComputedStyle(at).overflowX !== 'visible') return true;
        return false;
    };
    return [...document.querySelectorAll('article *')]
        .filter(element => element.getBoundingClientRect().right > width + 1 && !scrolls(element))
        .slice(0, 3).map(element => element.outerHTML.slice(0, 120));
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def pages() -> list[str]:
    """The pages of the documentation, without Sphinx's own."""
    html = OUTPUT / "html"
    found = (path.relative_to(html).with_suffix("").as_posix() for path in html.rglob("*.html"))
    return sorted(page for page in found if page not in ("genindex", "search") and not page.startswith("_"))


def look(driver: webdriver.Chrome, address: str, page: str, width: int, theme: str) -> list[str]:
    """The faults of one page."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    driver.get(f"{address}/{page}.html")
    wrong = [f"console: {entry['message']}" for entry in driver.get_log("browser")]
    root = "document.documentElement"
    scroll, client = driver.execute_script(f"return [{root}.scrollWidth, {root}.clientWidth]")
    if client > width or scroll > client:
        wrong.append(f"scrolls sideways: {scroll} in {client}")
    wrong += [f"wider than the page: {element}" for element in driver.execute_script(_WIDER_THAN_THE_PAGE)]
    dead = "return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
    wrong += [f"picture is not shown: {source}" for source in driver.execute_script(dead)]
    background = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in background[background.index("(") + 1 : -1].split(",")[:3]) / 3
    if (brightness > 128) != (theme == "light"):
        wrong.append(f"the background is {background} in the {theme} theme")
    if page in SHOWN:
        target = OUTPUT / "screenshots" / f"{page.replace('/', '_')}_{width}_{theme}.png"
        driver.save_screenshot(str(target))
    return [f"{page}, {width} wide, {theme}: {message}" for message in wrong]


def search(driver: webdriver.Chrome, address: str, word: str, expected: str) -> list[str]:
    driver.get(f"{address}/search.html?q={word}")

    def found(driver: webdriver.Chrome) -> bool:
        links = driver.find_elements(By.CSS_SELECTOR, "ul.search li a")
        return any(expected in (link.get_attribute("href") or "") for link in links)

    try:
        WebDriverWait(driver, 20, ignored_exceptions=[StaleElementReferenceException]).until(found)
    except TimeoutException:
        return [f"search for {word}: {expected} is not found"]
    return []


def main() -> None:
    (OUTPUT / "screenshots").mkdir(parents=True, exist_ok=True)
    handler = functools.partial(_Quiet, directory=str(OUTPUT / "html"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    driver = browser()
    try:
        views = [(page, width, "light") for page in pages() for width in WIDTHS]
        views += [(page, width, "dark") for page in SHOWN for width in WIDTHS]
        wrong = [message for view in views for message in look(driver, address, *view)]
        wrong += search(driver, address, "popcount", "families/sparse_conv")
    finally:
        driver.quit()
        server.shutdown()
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"{len(views)} views of {len(pages())} pages, and a search: nothing wrong")
    print(f"screenshots: {OUTPUT / 'screenshots'}")


if __name__ == "__main__":
    main()
