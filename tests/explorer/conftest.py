"""A real browser for the explorer's pages, opened from files with the network off."""

import shutil

import pytest


@pytest.fixture(scope="session")
def browser():
    """Chromium, from the distribution's packages."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on the PATH (Debian, Ubuntu: apt install chromium)")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def open_page(browser):
    """Open a file as `open_page(path)`, offline; `page.errors` and `page.requests` list what goes wrong."""
    contexts = []

    def opened(path, **options):
        contexts.append(browser.new_context(offline=True, **options))
        page = contexts[-1].new_page()
        page.errors, page.requests = [], []
        page.on("console", lambda line: page.errors.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.resolve().as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
