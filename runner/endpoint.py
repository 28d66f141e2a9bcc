"""One base URL, one path. Pure.

People disagree on whether a base URL ends in ``/v1``, in a slash or in the whole path; a client that joins
text then reaches ``/v1/v1`` or a page of HTML. The rule here:

* nothing but a host: ``/v1/chat/completions``;
* a path that ends in ``/chat/completions``: that path;
* any other path (``/v1``, ``/api/v1``, ``/openai/deployments/x``): it and ``/chat/completions``;
* slashes at the end count for nothing; everything that could be read in two ways is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Final

import httpx

from runner.scrub import looks_like_key

_CHAT: Final = "/chat/completions"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>/.*)?", re.ASCII)
_HOST_AND_PORT: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]*))?", re.ASCII)
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:-]+)+")
_TWICE: Final = re.compile(r"/v1/v1(?=/|\Z)")
_OTHER_CALLS: Final = ("/chat", "/completions", "/v1/models", "/responses", "/embeddings", "/messages")


class EndpointError(ValueError):
    """A base URL that does not name one endpoint. The text never repeats user info."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where chat completions are asked for. ``host`` is without brackets, ``path`` the whole path."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, base_url: str) -> Endpoint:
        """The endpoint that `base_url` names, by the rule above. Raises `EndpointError`."""
        _refuse_odd_characters(base_url)
        parts = _URL.fullmatch(base_url)
        if parts is None:
            raise EndpointError("the base URL must look like https://host/v1")
        scheme = parts["scheme"].lower()
        if scheme not in _DEFAULT_PORTS:
            raise EndpointError(f"the base URL's scheme must be http or https, not {scheme}")
        host, port = _host_and_port(parts["authority"], _DEFAULT_PORTS[scheme])
        endpoint = cls(scheme, host, port, _chat_path(parts["path"] or ""))
        try:
            httpx.URL(endpoint.url).host  # noqa: B018  decodes xn-- labels and reads IPv4 addresses
        except (httpx.InvalidURL, UnicodeError):
            raise EndpointError("the base URL's host is neither a host's name nor an address") from None
        return endpoint

    @property
    def url(self) -> str:
        """The whole URL of the chat-completions call; a scheme's own port is left out."""
        return f"{self._origin}{self.path}"

    @property
    def models_url(self) -> str:
        """The list of models beside it."""
        return f"{self._origin}{self.path.removesuffix(_CHAT)}/models"

    @property
    def recorded(self) -> str:
        """What the ledger keeps: scheme, host, port and path. There is nothing else in it, and no secret."""
        return self.url

    @property
    def _origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"


def _refuse_odd_characters(base_url: str) -> None:
    if not base_url:
        raise EndpointError("the base URL is empty")
    if any(char.isspace() or not char.isprintable() for char in base_url):
        raise EndpointError("the base URL holds white space or control characters")
    # Anywhere at all: a password with a slash in it puts the sign into what looks like the path.
    if "@" in base_url:
        raise EndpointError("the base URL holds a user name or password; a key is given by --api-key-env or -file")
    if "?" in base_url or "#" in base_url:
        raise EndpointError("the base URL must not have a query or fragment")
    if looks_like_key(base_url):
        raise EndpointError("the base URL holds what looks like a key; it would be recorded")
    if not base_url.isascii():
        raise EndpointError("the base URL must be ASCII: write the host's name in its xn-- form")


def _host_and_port(authority: str, default_port: int) -> tuple[str, int]:
    match = _HOST_AND_PORT.fullmatch(authority)
    if match is None or not match["host"]:
        raise EndpointError("the base URL names no host")
    digits = match["port"] or str(default_port)
    if len(digits) > 5 or not 0 < int(digits) < 65536:
        raise EndpointError("the base URL's port must be from 1 to 65535")
    host = match["host"].lower()
    if host.startswith("["):
        try:
            host = IPv6Address(host[1:-1]).compressed
        except AddressValueError:
            raise EndpointError("the base URL's host is not an IPv6 address") from None
        if "%" in host:
            raise EndpointError("the base URL's IPv6 address must not have a zone")
    elif _HOST_NAME.fullmatch(host) is None:
        raise EndpointError("the base URL's host is not a host's name")
    return host, int(digits)


def _chat_path(path: str) -> str:
    prefix = path.rstrip("/")
    if _CHAT in prefix.removesuffix(_CHAT) or _TWICE.search(prefix):
        raise EndpointError("the base URL's path says /v1 twice, or /chat/completions before its end")
    if prefix and _PATH.fullmatch(prefix) is None:
        raise EndpointError("the base URL's path holds an empty part or characters that would be rewritten on the way")
    if {".", ".."} & set(prefix.split("/")):
        raise EndpointError("the base URL's path holds a part that is only dots")
    if prefix.endswith(_CHAT):
        return prefix
    for call in _OTHER_CALLS:
        if prefix.endswith(call):
            raise EndpointError(f"the base URL ends in {call}, which is another call; leave that part out")
    return (prefix or "/v1") + _CHAT
