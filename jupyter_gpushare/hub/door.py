"""The broker's door on a hub: whoever the hub knows comes in, by a token or by the hub's login."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any, cast

import msgspec
from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated, UserNotAllowed
from tornado import web

from ..broker.port import BrokerPort
from ..errors import GPUShareError, NotAllowed, Unavailable
from ..model import Caller
from ..server.answer import answer, caller_named, refuse, refuse_unasked
from ..server.client import CALLER
from .configure import ADMIN, READ

PAGE = Path(__file__).parent / "page"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


def caller_of(model: dict[str, Any], named: str | None) -> Caller:
    """Who asks, as the hub says; `named` is the caller that their server says it speaks for, as JSON.

    A user server speaks as a server or one of its kernels, of its own user only, and never as an admin (rule 11).
    Raises BadDemand, NotAllowed.
    """
    user = model["name"] if model.get("kind", "user") == "user" else f"/services/{model['name']}"  # no user has a slash
    scopes = set(model.get("scopes", ()))
    if named is None:
        return Caller(user=user, admin=ADMIN in scopes, reads_all=READ in scopes)
    caller = caller_named(named)
    if caller.user != user:
        raise NotAllowed(f"This token is {user!r}'s, so it cannot ask for {caller.user!r}.")
    by_person = caller.role == "user"
    return msgspec.structs.replace(caller, admin=by_person and ADMIN in scopes, reads_all=by_person and READ in scopes)


class Guarded(web.RequestHandler):
    """Whatever is answered carries the headers that keep a browser from being misled."""

    def set_default_headers(self) -> None:
        for name, value in HEADERS.items():
            self.set_header(name, value)


class CallbackHandler(HubOAuthCallbackHandler, Guarded):
    """Where the hub's login comes back to."""


class NowhereHandler(Guarded):
    """Any other path."""

    def prepare(self) -> None:
        self.set_status(404)
        refuse_unasked(self, 404, None)


class Known(HubOAuthenticated, Guarded):
    """A request of somebody who may use this service."""

    async def identify(self) -> dict[str, Any] | None:
        """The hub's word on who asks; None for nobody it knows. Raises NotAllowed, Unavailable.

        A cookie counts only together with the XSRF token, except on a plain visit; jupyterhub sees to that.
        """
        try:
            model = await self.hub_auth.get_user(self, sync=False)
        except web.HTTPError as error:
            raise Unavailable(f"The hub could not say who asks: {error.log_message}", reason="hub") from error
        if model is None:
            return None
        try:
            return cast(dict[str, Any], self.check_hub_user(model))
        except UserNotAllowed:
            raise NotAllowed(f"{model['name']} may not use the GPU service (scope access:services).") from None


class PageHandler(Known):
    """The overview page; a visitor whom the hub does not know yet logs in there first."""

    async def get(self) -> None:
        try:
            if await self.identify() is None:
                self.redirect(self.get_login_url())
                return
        except GPUShareError as error:
            raise web.HTTPError(error.status, log_message=str(error)) from None
        page = (PAGE / "index.html").read_text(encoding="utf-8")
        self.set_header("Cache-Control", "no-store")
        await self.finish(page.replace("@xsrf@", html.escape(self.xsrf_token.decode())))


class AssetHandler(Guarded, web.StaticFileHandler):
    """What the page is made of; the same for everybody."""


class ApiHandler(Known):
    """One request of the route table."""

    def initialize(self, port: BrokerPort) -> None:
        self.port = port

    def get_login_url(self) -> str:
        raise web.HTTPError(403)  # a program cannot log in

    async def answer(self, path: str) -> None:
        try:
            model = await self.identify()
            if model is None:
                raise NotAllowed("The hub does not know who asks: log in, or send a token.")
            await answer(self, self.port, caller_of(model, self.request.headers.get(CALLER)), path)
        except GPUShareError as error:
            refuse(self, error)

    get = post = put = delete = patch = head = answer

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        refuse_unasked(self, status_code, kwargs.get("exc_info", (None, None))[1])
