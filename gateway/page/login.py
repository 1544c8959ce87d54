"""A request to the status page: where it may come from, and the login that it has."""

import base64
import binascii

from aiohttp import hdrs, web

from gateway.listeners.http import is_for_this_machine

CREDENTIALS_MAX = 4096  # characters; a password has 1,024 bytes at most
CHALLENGE = 'Basic realm="Holdfast", charset="UTF-8"'
OF_PROXIES = (hdrs.FORWARDED, hdrs.X_FORWARDED_FOR, hdrs.VIA)


def why_refused(request: web.BaseRequest) -> str:
    """Returns why a request comes from a page that may not ask; "" if it may come.

    Without TLS the Host has to name this machine, as a page of any other name may point here (DNS rebinding). Over TLS
    a browser has checked the name. A browser says in ``Sec-Fetch-Site`` whether a page of another site asks: such a
    page may lead a person here, and may not load anything.
    """
    if not request.secure and not is_for_this_machine(request):
        return "expected a Host that is an address, localhost or this machine's name"
    if request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin"):
        return ""
    leads = request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest")
    return "" if leads == ("navigate", "document") else "pages of other sites may not ask"


def credentials_of(request: web.BaseRequest) -> tuple[str, bytes] | None:
    """Returns user and password of a request [RFC 7617]; None if it has none, or none that can be read."""
    kind, _, data = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if kind.lower() != "basic" or len(data) > CREDENTIALS_MAX:
        return None
    try:
        user, colon, password = base64.b64decode(data.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def is_behind_proxy(request: web.BaseRequest) -> bool:
    """Whether a proxy has handed on a request: then it may come from any machine, also to loopback."""
    return any(header in request.headers for header in OF_PROXIES)
