"""The console as a person uses it: with the mouse, with keys, and by looking.

`api` is a client beside the browser, with a token that may do everything.
"""

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gateway.console.minting import MintKey
from gateway.devkeys import ensure_dev_key, sign_token
from tests.helpers.chromium import CONTROL, Chromium, Page
from tests.helpers.gateway import LocalGateway, TokenClient, make_gateway_config
from tests.helpers.keys import ALL_SCOPES, AUDIENCE, ISSUER
from tests.helpers.origin import LocalOrigin

JSON = "application/json"


def make_gateway(origin: LocalOrigin, folder: Path, **auth: Any) -> LocalGateway:
    """With a development key in the folder, and these settings of `[auth]`."""
    key, jwks = ensure_dev_key(folder)
    auth = {"jwks": str(jwks)} | auth
    url = f"http://127.0.0.1:{origin.port}"
    config = make_gateway_config(url, gateway={"drain_secs": 1.0}, auth=auth)
    return LocalGateway(config, mint_key=MintKey(key, "secret-of_1-run"))


class Driver:
    page: Page

    def __init__(self, browser: Chromium, gateway: LocalGateway) -> None:
        self._browser = browser
        self.gateway = gateway
        self.expects_refusals = False
        self.opened = False
        self._api: TokenClient | None = None

    @property
    def api(self) -> TokenClient:
        if self._api is None:
            self._api = self.gateway.client(self.token())
        return self._api

    @property
    def mint_key(self) -> MintKey:
        assert self.gateway.mint_key is not None
        return self.gateway.mint_key

    @property
    def printed(self) -> str:
        """What follows /console/ in the address that `weir up` prints."""
        return f"#mint={self.mint_key.secret}"

    def token(self, scope: str = ALL_SCOPES, *, ttl: float = 3600, now: float = 0.0) -> str:
        key, claim = self.mint_key.path, self.gateway.config.auth.scope_claim
        return sign_token(key, "alice", scope, ttl, AUDIENCE, ISSUER, now or time.time(), claim)

    # -- pages ---------------------------------------------------------------------------------

    def open(self, place: str | None = None, **look: Any) -> None:
        """As `weir up` says, unless another place is given."""
        place = self.printed if place is None else place
        self.page = self._browser.open("about:blank", **look)
        self.opened = True
        self.page.ask(
            "Storage.clearDataForOrigin", origin=self.gateway.url, storageTypes="local_storage"
        )
        self.page.events.discard("Page.loadEventFired")
        self.page.ask("Page.navigate", url=f"{self.gateway.url}/console/{place}")
        self._browser.wait_for(lambda: "Page.loadEventFired" in self.page.events)
        self.page.wait_for("document.querySelector('main > article')")

    def reset(self) -> None:
        """As after `open`, with the token that the page has."""
        self.page.complaints.clear()
        self.expects_refusals = False
        self.page.evaluate(
            """(() => {
                localStorage.clear();
                document.querySelector('dialog')?.close();
                location.hash = '#/';
                dispatchEvent(new HashChangeEvent('hashchange'));
            })()"""
        )
        self.sees("main .home")

    def close(self) -> None:
        self.hang_up()
        if self.opened:
            self.page.close()
            self.opened = False

    def check(self) -> None:
        """No script complained, no policy was broken, nobody else was asked."""
        if not self.opened:
            return
        complaints = [
            c
            for c in self.page.complaints
            if not (self.expects_refusals and c.get("entry", {}).get("source") == "network")
        ]
        assert complaints == []
        ours = (self.gateway.url + "/", "data:", "about:")
        assert [url for url in self.page.requests if not url.startswith(ours)] == []

    def hang_up(self) -> None:
        """Close the client's connection; the next use opens another."""
        if self._api is not None:
            self._api.close()
            self._api = None

    def mint(self) -> None:
        self.page.click(".empty-page .primary")
        self.sees("#token-button[data-kind=good]")

    def use(self, token: str) -> None:
        """Paste a token."""
        self.page.click("#token-button")
        self.fill("dialog textarea", token)
        self.page.click("dialog form:last-of-type .primary")
        self.page.wait_for("!document.querySelector('dialog')")

    def go(self, name: str, *, kind: str = "stream") -> None:
        place = f"#/{kind}/{quote(name, safe='')}"
        self.page.evaluate(f"location.hash = {json.dumps(place)}")

    def watch(self, name: str) -> None:
        """Open a stream and wait until it is followed."""
        self.go(name)
        self.is_now("live")

    # -- doing ---------------------------------------------------------------------------------

    def fill(self, selector: str, text: str) -> None:
        """Replace what is in a field by typing."""
        self.page.evaluate(
            f"""(() => {{
                const field = document.querySelector({json.dumps(selector)});
                field.focus();
                field.select();
            }})()"""
        )
        self.page.type(text)

    def act(self, name: str) -> None:
        """One of the buttons at the stream's name."""
        self.page.click(f"[data-act={name}]")
        self.sees("dialog[open]")

    def submit(self) -> None:
        """Send the open dialog, which must succeed."""
        self.page.click("dialog [type=submit]")
        self.page.wait_for("!document.querySelector('dialog')")

    def append(self, text: str) -> None:
        self.fill(".composer textarea", text)
        self.page.press("Enter", CONTROL)
        self.page.wait_for("document.querySelector('.composer textarea').value === ''")

    # -- looking -------------------------------------------------------------------------------

    def sees(self, selector: str) -> None:
        self.page.wait_for(f"document.querySelector({json.dumps(selector)})")

    def says(self, text: str, selector: str = "body") -> None:
        """The words are to be read there."""
        self.page.wait_for(
            f"document.querySelector({json.dumps(selector)})?.innerText"
            f".includes({json.dumps(text)})"
        )

    def text(self, selector: str) -> str:
        text: str = self.page.evaluate(
            f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"
        )
        return text

    def is_now(self, kind: str) -> None:
        self.page.wait_for(f"document.querySelector('.pill')?.dataset.kind === {json.dumps(kind)}")

    def counts(self, number: int) -> None:
        word = "message" if number == 1 else "messages"
        self.page.wait_for(
            f"document.querySelector('.count')?.textContent === {json.dumps(f'{number:,} {word}')}"
        )

    def shows(self, *messages: str) -> None:
        """These are the messages in sight, in this order."""
        self.page.wait_for(
            f"""JSON.stringify([...document.querySelectorAll('.list .row')]
                .sort((a, b) => a.dataset.index - b.dataset.index)
                .map((row) => row.querySelector('.what').textContent))
                === {json.dumps(json.dumps(messages, ensure_ascii=False, separators=(",", ":")))}"""
        )

    def unfold(self, within: str, words: str) -> str:
        """The command there once it has the words; opened again if it was drawn anew meanwhile."""
        self.page.wait_for(
            f"""(() => {{
                const folded = document.querySelector({json.dumps(within)})
                    ?.querySelector('details:has(.curl)');
                if (!folded) return false;
                folded.open = true;
                return folded.querySelector('.curl').innerText.includes({json.dumps(words)});
            }})()"""
        )
        return self.text(f"{within} .curl")

    def curls(self) -> list[str]:
        """Of all that was sent, newest first."""
        found: list[str] = self.page.evaluate(
            """(() => {
                const strip = document.querySelector('.strip');
                if (strip.getAttribute('aria-expanded') === 'false') strip.click();
                const all = [...document.querySelectorAll('#request-list details')];
                for (const one of all) one.open = true;
                return new Promise((resolve) => setTimeout(() => resolve(
                    all.map((one) => one.querySelector('code').textContent)), 50));
            })()"""
        )
        return found
