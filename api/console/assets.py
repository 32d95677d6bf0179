"""`/console/`: the page of the console and the assets that scripts/console has built, for every caller.

The console is a client like others: its page and assets need no login.
"""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

STATIC = Path(__file__).parent / "static"
_PAGE = "index.html"
# Listed here, since the system's tables of media types differ between machines.
_MEDIA_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "png": "image/png",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
_HASHED = re.compile(rf"[\w.-]+-[A-Z0-9]{{8}}\.({'|'.join(_MEDIA_TYPES)})")  # as console/build.mjs names files
_NOT_BUILT = "The console is not built here. Run scripts/console in the checkout, then load this page again.\n"
# The page loads, shows and queries only this origin, sends no forms, and is shown in no frame.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "font")),
        "img-src 'self' data:",
        *(f"{kind} 'none'" for kind in ("form-action", "base-uri", "frame-ancestors")),
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}


def message_page(text: str, status: int) -> Response:
    """Answer with a page of one message and a link to the console, in the console's style if that is built."""
    style = next((f'<link rel="stylesheet" href="/console/{each.name}">' for each in STATIC.glob("style-*.css")), "")
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Fleetlight</title>{style}'
        f'<main class="alone"><h1>Fleetlight</h1><p class="problem" role="alert">{escape(text)}</p>'
        '<p><a class="button" href="/console/">Back to the login</a></p></main></html>'
    )
    return HTMLResponse(page, status, _HEADERS)


class ConsoleAssets:
    """Serves the console. folder: the built assets."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder

    def routes(self) -> Sequence[Route]:
        return [Route("/console", _to_console), Route("/console/{path:path}", self.show)]

    async def show(self, http: Request) -> Response:
        """Answer with the asset of this name, or else the page, which shows the view of the address itself."""
        asked: str = http.path_params["path"]
        name = asked if _HASHED.fullmatch(asked) else _PAGE
        file = self._folder / name
        if not (self._folder / _PAGE).is_file():
            return PlainTextResponse(_NOT_BUILT, 503, _HEADERS)
        if not file.is_file():
            return PlainTextResponse("There is no such asset.\n", 404, _HEADERS)
        is_compressed = "gzip" in http.headers.get("accept-encoding", "")
        cache = "no-cache" if name == _PAGE else "public, max-age=31536000, immutable"
        headers = {**_HEADERS, "Cache-Control": cache, **({"Content-Encoding": "gzip"} if is_compressed else {})}
        media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
        return FileResponse(file.with_name(f"{name}.gz") if is_compressed else file, 200, headers, media_type)


async def _to_console(_http: Request) -> Response:
    return RedirectResponse("/console/", 302)
