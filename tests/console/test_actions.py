"""Everything that the console offers, done in a real browser and checked at the gateway."""

import json
import os
import shlex
import subprocess
from urllib.parse import quote

import jwt

from tests.console.driver import JSON, Driver
from tests.helpers.rawhttp import wait_until
from tests.helpers.server import run_weir

CHANGE = {"type": "user", "key": "1", "value": {"name": "Ada"}, "headers": {"operation": "insert"}}


def test_a_newcomer_mints_a_token_with_one_click(driver: Driver) -> None:
    driver.open()
    driver.says("No token", "#token-button")
    driver.mint()
    driver.says("dev · 59 min", "#token-button")


def test_the_secret_leaves_the_address_and_stays_in_the_tab(driver: Driver) -> None:
    driver.open()
    secret = driver.mint_key.secret
    assert driver.page.evaluate("location.href") == f"{driver.gateway.url}/console/"
    assert driver.page.evaluate("sessionStorage.getItem('weir-mint')") == secret
    assert driver.page.evaluate("localStorage.length") == 0
    driver.mint()
    assert not any(secret in url for url in driver.page.requests)


def test_without_the_printed_address_the_console_says_where_tokens_come_from(
    driver: Driver,
) -> None:
    driver.expects_refusals = True
    driver.open("")
    driver.says(
        "open the address that `weir up` printed, or paste the output of `weir token`", "main"
    )
    assert "Mint" not in driver.text("main")
    driver.page.click("#token-button")
    driver.says("`weir up` printed", "dialog")
    assert "Mint" not in driver.text("dialog")
    driver.page.evaluate("document.querySelector('dialog').close()")
    driver.page.evaluate("location.hash = '#mint=of-an-earlier-run'")
    driver.says("Mint", "main")
    driver.page.click(".empty-page .primary")
    driver.says("open the address that `weir up` printed")
    driver.page.evaluate(f"location.hash = '{driver.printed}'")  # pasted into the same tab
    driver.page.wait_for("location.hash === ''")
    driver.mint()


def test_names_that_browsers_would_change_are_refused(console: Driver) -> None:
    for name in ("../../console/setup", "/ds/agents/.."):
        console.go(name)
        console.says("No part of a name can be")
        console.sees("main .home")
    console.page.click("[aria-label='New stream']")
    console.fill("dialog .field:nth-of-type(1) input", "a/../b")
    console.page.click("dialog [type=submit]")
    console.says("No part of a name can be", "dialog")


def test_a_url_may_be_typed_letter_by_letter(console: Driver) -> None:
    """No script complains on the way to it."""
    url = f"{console.gateway.url}/v1/stream/by-url"
    console.page.click("[aria-label='New stream']")
    for end in range(1, len(url) + 1):
        console.fill("dialog .field:nth-of-type(1) input", url[:end])
    console.submit()
    console.says("by-url", ".stream-head h1")


def test_minting_shows_the_command_that_does_the_same(driver: Driver) -> None:
    driver.open()
    driver.page.click("#token-button")
    driver.fill("dialog .pair .field:nth-of-type(1) input", "bob")
    driver.fill("dialog .pair .field:nth-of-type(2) input", "30")
    driver.page.click("dialog form details summary")
    driver.says("--ttl 30m", "dialog form .curl")
    shown = driver.text("dialog form .curl")
    driver.page.click("dialog form .primary")
    driver.sees("#token-button[data-kind=good]")
    minted = driver.page.evaluate("sessionStorage.getItem('weir-token')")
    word, *rest = shlex.split(shown)
    printed = run_weir(*rest).stdout.strip()
    assert word == "weir"
    once, again = (jwt.decode(t, options={"verify_signature": False}) for t in (minted, printed))
    assert once["exp"] - once["iat"] == again["exp"] - again["iat"] == 1800
    for claim in ("sub", "scope", "iss", "aud"):
        assert once[claim] == again[claim]
    with driver.gateway.client(printed) as client:
        assert client("HEAD", "none").status == 404


def test_the_token_is_explained_and_never_in_the_address(driver: Driver) -> None:
    driver.open()
    token = driver.token("read:chat/* write:chat/1", ttl=600)
    driver.use(token)
    driver.says("alice · 9 min", "#token-button")
    driver.page.click("#token-button")
    for words in ("alice", "read:chat/*", "write:chat/1", "9 min", "weir-dev"):
        driver.says(words, "dialog .facts")
    assert driver.page.evaluate("sessionStorage.getItem('weir-token')") == token
    assert driver.page.evaluate("localStorage.getItem('weir-token')") is None
    assert not any(token in url for url in driver.page.requests)


def test_what_is_no_token_is_not_taken(driver: Driver) -> None:
    driver.open()
    driver.page.click("#token-button")
    driver.fill("dialog textarea", "hello")
    driver.page.click("dialog form:last-of-type .primary")
    driver.says("This is not a JWT", "dialog")
    driver.says("No token", "#token-button")


def test_a_stream_is_created_as_wished(console: Driver) -> None:
    console.page.click("[aria-label='New stream']")
    console.fill("dialog .field:nth-of-type(1) input", "made/here")
    console.fill("dialog .field:nth-of-type(2) input", "text/plain")
    console.fill("dialog .field:nth-of-type(3) input", "3600")
    console.submit()
    console.is_now("live")
    head = console.api("HEAD", "made/here")
    assert (head["Content-Type"], head["Stream-TTL"]) == ("text/plain", "3600")
    console.says("TTL 3600 s", ".badges")
    console.says("made/here", "#sidebar")


def test_a_stream_can_be_closed_from_the_start(console: Driver) -> None:
    console.page.click("[aria-label='New stream']")
    console.fill("dialog .field:nth-of-type(1) input", "finished")
    console.fill("dialog textarea", "[1, 2]")
    console.page.click("dialog .check:last-of-type input")
    console.submit()
    console.is_now("closed")
    console.counts(2)


def test_messages_are_appended_and_appear(console: Driver) -> None:
    console.api.create("orders", JSON)
    console.watch("orders")
    console.append('{"total": 12345678901234567890.10, "ok": [true, null]}')
    console.append('["two", {"three": 3}]')
    console.counts(3)
    console.shows('{"total": 12345678901234567890.10, "ok": [true, null]}', '"two"', '{"three": 3}')
    assert json.loads(console.api.read("orders").body)[1:] == ["two", {"three": 3}]
    console.page.click(".row[data-index='0']")
    console.says("Message 1", ".detail")
    laid_out = '{\n  "total": 12345678901234567890.10,\n  "ok": [\n    true,\n    null\n  ]\n}'
    assert console.text(".detail pre") == laid_out  # as it came, to the last digit


def test_what_is_no_json_is_not_sent(console: Driver) -> None:
    console.api.create("strict-json", JSON)
    console.watch("strict-json")
    console.fill(".composer textarea", "{broken")
    console.page.press("Enter", 2)
    console.says("Invalid JSON", ".composer")
    assert console.api.read("strict-json").body == b"[]"


def test_text_and_bytes_are_shown_for_what_they_are(console: Driver) -> None:
    console.api.create("lines", body=b"one\ntwo")
    console.watch("lines")
    console.append("three")
    console.counts(2)
    console.shows("one ⏎ two", "three")
    console.api.create("bytes", "application/octet-stream", b"\x00\xffWeir")
    console.watch("bytes")
    console.says("00 ff 57 65 69 72", ".detail pre")


def test_a_stream_is_closed_for_good(console: Driver) -> None:
    console.api.create("to-close", JSON, b"[1]")
    console.watch("to-close")
    console.act("close")
    console.submit()
    console.is_now("closed")
    assert console.api("HEAD", "to-close")["Stream-Closed"] == "true"
    assert console.page.evaluate("!document.querySelector('.composer').checkVisibility()")


def test_a_stream_is_forked_where_a_message_ends(console: Driver) -> None:
    console.api.create("source", JSON, b"[1]")
    console.api.append("source", b"[2]", JSON)
    console.api.append("source", b"[3]", JSON)
    console.watch("source")
    console.counts(3)
    console.page.click(".row[data-index='1']")
    console.says("Message 2", ".detail")
    console.page.click(".detail header button:last-of-type")
    console.sees("dialog[open]")
    console.submit()
    console.says("source-fork", ".stream-head h1")
    console.is_now("live")
    console.counts(2)
    assert console.api.read("source-fork").body == b"[1,2]"


def test_deleting_asks_for_the_name(console: Driver) -> None:
    console.expects_refusals = True
    console.api.create("doomed", JSON)
    console.watch("doomed")
    console.act("delete")
    console.fill("dialog input", "doom")
    console.page.click("dialog [type=submit]")
    console.says("The name does not match", "dialog")
    assert console.api("HEAD", "doomed").status == 200
    console.fill("dialog input", "doomed")
    console.submit()
    console.sees("main .home")
    assert console.api("HEAD", "doomed").status == 404
    console.page.wait_for("!document.querySelector('#sidebar').innerText.includes('doomed')")


def test_a_stream_that_is_not_there_can_be_created(console: Driver) -> None:
    console.expects_refusals = True
    console.go("not/there")
    console.says("Stream “not/there” not found", "main")
    console.page.click(".empty-page .primary")
    console.submit()
    console.is_now("live")


def test_reading_begins_where_it_is_told(console: Driver) -> None:
    console.api.create("history", JSON, b"[1]")
    second = console.api("HEAD", "history").next_offset
    console.api.append("history", b"[2]", JSON)
    console.api.append("history", b"[3]", JSON)
    console.go("history")
    console.counts(3)
    console.page.evaluate(
        f"""(() => {{
            const [start, offset] = document.querySelectorAll('.travel select, .travel input');
            start.value = '';
            start.dispatchEvent(new Event('change'));
            offset.value = '{second}';
            offset.form.requestSubmit();
        }})()"""
    )
    console.counts(2)
    console.shows("2", "3")


def test_a_large_stream_is_not_read_unasked(console: Driver) -> None:
    console.api.create("large")
    for _ in range(17):
        console.api.append("large", b"x" * 1_000_000)
    console.watch("large")
    console.says("This stream is large (16 MiB)", "#notices")
    console.append("new")
    console.shows("new")


def test_following_can_be_paused(console: Driver) -> None:
    console.api.create("paused", JSON, b"[1]")
    console.watch("paused")
    console.page.click(".messages .tools .button")
    console.is_now("paused")
    console.api.append("paused", b"[2]", JSON)
    console.page.click(".messages .tools .button")
    console.counts(2)
    console.is_now("live")


def test_state_is_a_table_that_follows(console: Driver) -> None:
    console.api.create("team", JSON, json.dumps([CHANGE]).encode(), stream_state="strict")
    console.go("team")
    console.says("Ada", ".state tbody")
    update = CHANGE | {"value": {"name": "Grace"}, "headers": {"operation": "update"}}
    console.append(json.dumps([CHANGE | {"key": "2"}, update]))
    console.sees(".state tr.flash")
    console.says("Grace", ".state tbody")
    console.says("2 entities after 3 changes", "#pane-state")
    console.append(json.dumps(CHANGE | {"value": None, "headers": {"operation": "delete"}}))
    console.page.wait_for("document.querySelectorAll('.state tbody tr').length === 1")
    console.append('{"headers": {"control": "reset"}}')
    console.page.wait_for("document.querySelectorAll('.state tbody tr').length === 0")


def test_snapshots_and_bootstraps_are_shown(console: Driver) -> None:
    console.expects_refusals = True
    offset = console.api.create("snapped", JSON, json.dumps([CHANGE]).encode())
    published = console.api("PUT", f"snapped/snapshot/{offset}", {"Content-Type": JSON}, b'["S"]')
    assert published.status in (201, 204), published
    console.api.append("snapped", b'["after"]', JSON)
    console.watch("snapped")
    console.page.click("#tab-snapshot")
    console.says('"S"', "#pane-snapshot pre")
    console.says(offset, "#pane-snapshot .facts")
    console.page.click("#pane-snapshot .tools button:last-child")
    console.says("Update 1", "#pane-snapshot")
    console.says("Parts", "#pane-snapshot .facts")


def test_a_follower_goes_on_from_the_snapshot_that_replaced_its_place(console: Driver) -> None:
    console.expects_refusals = True
    offset = console.api.create("folded", JSON, json.dumps([CHANGE]).encode())
    state = json.dumps([CHANGE | {"key": "7"}]).encode()
    console.api("PUT", f"folded/snapshot/{offset}", {"Content-Type": JSON}, state)
    console.watch("folded")
    console.says("7", ".state tbody")
    console.append(json.dumps(CHANGE | {"key": "8"}))
    console.page.wait_for("document.querySelectorAll('.state tbody tr').length === 2")


def test_details_are_those_of_the_stream(console: Driver) -> None:
    tail = console.api.create("facts", "text/plain", b"abc", stream_ttl="60")
    console.watch("facts")
    console.page.click("#tab-details")
    for words in ("text/plain", tail, "60"):
        console.says(words, "#pane-details .facts")


def test_buckets_and_their_streams_are_listed(console: Driver) -> None:
    console.page.click("[aria-label='New bucket']")
    console.fill("dialog input", "agents")
    console.submit()
    for name in ("one", "two"):
        console.page.click("[aria-label='New stream']")
        console.fill("dialog .field:nth-of-type(1) input", f"/ds/agents/{name}")
        console.submit()
        console.says(f"{name} in agents", ".stream-head h1")
        console.is_now("live")
    console.page.click(".bucket summary")
    console.page.wait_for("document.querySelectorAll('.inside .item').length === 2")
    console.go("/ds/agents", kind="bucket")
    console.says("2 streams", ".bucket-page")
    console.fill(".bucket-page input", "tw")
    console.says("1 stream", ".bucket-page")
    console.page.click(".bucket-page td a")
    console.says("two in agents", ".stream-head h1")


def test_only_the_newest_answer_to_typing_is_shown(console: Driver) -> None:
    """The answer to the first letter comes after that to the second."""
    for path in ("/ds/typed", "/ds/typed/tide", "/ds/typed/two"):
        with console.gateway.connect() as connection:
            headers = {"Authorization": f"Bearer {console.token()}", "Content-Type": JSON}
            assert connection.request("PUT", path, headers).status == 201
    console.go("/ds/typed", kind="bucket")
    console.says("2 streams", ".bucket-page")
    console.page.evaluate(
        """(() => {
            const { fetch } = window;
            window.fetch = async (path, options) => {
                const answer = await fetch(path, options);
                if (!path.endsWith('prefix=t')) return answer;
                const page = await answer.json();
                await new Promise((release) => { window.release = release; });
                window.fetch = fetch;
                return { ok: true, json: async () => page };
            };
        })()"""
    )
    console.fill(".bucket-page input", "t")
    console.page.wait_for("window.release")
    console.fill(".bucket-page input", "tw")
    console.says("1 stream", ".bucket-page")
    console.page.evaluate("new Promise((seen) => { release(); setTimeout(seen); })")
    assert "1 stream" in console.text(".bucket-page .about")
    assert "prefix=tw" in console.text(".bucket-page .curl")


def test_streams_that_others_use_are_listed(console: Driver) -> None:
    console.api.create("others/stream")
    console.page.wait_for(  # the gateway may repeat its last answer for a second
        """(dispatchEvent(new HashChangeEvent('hashchange')),
            document.querySelector('#sidebar').innerText.includes('others/stream'))"""
    )


def test_an_empty_bucket_is_deleted_and_a_full_one_is_not(console: Driver) -> None:
    console.expects_refusals = True
    for path in ("/ds/spare", "/ds/spare/x"):
        with console.gateway.connect() as connection:
            headers = {"Authorization": f"Bearer {console.token()}", "Content-Type": JSON}
            assert connection.request("PUT", path, headers).status == 201
    console.go("/ds/spare", kind="bucket")
    console.says("1 stream", ".bucket-page")
    console.page.click(".bucket-page header .actions button:last-child")
    console.page.click("dialog [type=submit]")
    console.says("still has streams", "dialog")
    console.page.press("Escape")
    console.page.wait_for("!document.querySelector('dialog')")
    with console.gateway.connect() as connection:
        headers = {"Authorization": f"Bearer {console.token()}"}
        assert connection.request("DELETE", "/ds/spare/x", headers).status == 204
    console.page.click(".bucket-page header .actions button:last-child")
    console.submit()
    console.sees("main .home")


def test_notices_are_few_and_take_no_click_from_what_they_cover(console: Driver) -> None:
    """However many things happen at once."""
    console.page.evaluate(
        """import('./dom.js').then(({ notify }) => {
            for (let number = 0; number < 9; number++) notify(`Something ${number}.`, "bad");
        })"""
    )
    above = console.page.evaluate(
        """[...document.querySelectorAll('.notice')].map((notice) => {
            const { x, y, width, height } = notice.getBoundingClientRect();
            return document.elementFromPoint(x + width / 2, y + height / 2).closest('.notices');
        })"""
    )
    assert above == [None] * 3


def test_every_action_shows_the_curl_that_does_the_same(console: Driver) -> None:
    """Run by a shell, in the order they were sent, they do it all once more."""
    console.expects_refusals = True
    name, shown = "it's a $HOME `stream`", []

    def submit() -> None:
        shown.append(console.text("dialog .curl"))
        console.submit()

    console.page.click("[aria-label='New stream']")
    console.fill("dialog .field:nth-of-type(1) input", name)
    submit()
    console.is_now("live")
    console.fill(".composer textarea", """{"it's": "$HOME `id` \\"quoted\\" \\u00e9é"}""")
    shown.append(console.unfold(".composer", "quoted"))
    console.page.click(".composer .primary")
    console.counts(1)
    body = console.api.read(quote(name)).body
    console.act("fork")
    submit()
    console.says(f"{name}-fork", ".stream-head h1")
    console.is_now("live")
    console.act("close")
    submit()
    console.is_now("closed")
    console.page.click("[aria-label='New bucket']")
    console.fill("dialog input", "curled")
    submit()
    console.go("/ds/curled", kind="bucket")
    console.says("No streams.", ".bucket-page")
    console.page.click(".bucket-page header .actions button:last-child")
    submit()
    for doomed in (f"{name}-fork", name):
        console.go(doomed)
        console.says(doomed, ".stream-head h1")
        console.act("delete")
        console.fill("dialog input", doomed)
        submit()
        console.sees("main .home")
    sent = [curl for curl in console.curls() if "-X" in curl]
    assert shown == sent[len(shown) - 1 :: -1]
    assert not any(console.token()[:20] in curl for curl in sent)
    statuses = [shell(console, curl).split(" ", 2)[1] for curl in shown[:4]]
    assert console.api.read(quote(f"{name}-fork")).body == body
    statuses += [shell(console, curl).split(" ", 2)[1] for curl in shown[4:]]
    # create, append, fork, close; create and delete a bucket; delete the fork and the stream
    assert statuses == ["201", "204", "201", "204", "201", "204", "204", "204"]


def test_every_view_shows_the_curl_that_reads_the_same(console: Driver) -> None:
    with console.gateway.connect() as connection:
        headers = {"Authorization": f"Bearer {console.token()}", "Content-Type": JSON}
        for path in ("/ds/viewed", "/ds/viewed/one", "/ds/viewed/two"):
            assert connection.request("PUT", path, headers).status == 201
    offset = console.api.create("viewed", JSON, b"[1]")
    console.api("PUT", f"viewed/snapshot/{offset}", {"Content-Type": JSON}, b'["S"]')
    console.api.append("viewed", b"[2]", JSON)
    console.api("POST", "viewed", {"Content-Type": JSON, "Stream-Closed": "true"})
    console.expects_refusals = True  # what the snapshot replaced is 410
    console.go("viewed")
    console.is_now("closed")
    console.page.click("#tab-snapshot")
    console.says('"S"', "#pane-snapshot pre")
    console.page.click("#pane-snapshot .tools button:last-child")
    console.says("Update 1", "#pane-snapshot")
    console.page.click("#tab-details")
    console.says("curl -I", "#pane-details .curl")
    about = console.text("#pane-details .curl")
    console.go("/ds/viewed", kind="bucket")
    console.fill(".bucket-page input", "tw")
    console.says("1 stream", ".bucket-page")
    listing = console.text(".bucket-page .curl")
    console.page.evaluate("location.hash = '#/gateway'")
    console.says("Live readers", ".tiles")
    figures = console.unfold(".gateway-page", "/console/stats")
    sent = console.curls()
    assert about in sent and listing in sent
    [snapshot] = [curl for curl in sent if "/snapshot/" in curl and offset in curl][:1]
    [bootstrap] = {curl for curl in sent if "/bootstrap" in curl}
    [live] = [curl for curl in sent if "live=sse" in curl and offset in curl]
    for curl, words in (
        (about, "Stream-Closed: true"),
        (listing, '"stream_id":"two"'),
        (figures, '"workers":1'),
        (snapshot, '["S"]'),
        (bootstrap, "\n2\n"),
        (live, "event: data"),
    ):
        said = shell(console, curl)
        assert words.lower() in said.lower(), (curl, said)
        assert curl == live or said.startswith("HTTP/1.1 200"), said


def shell(console: Driver, command: str) -> str:
    command = command.replace("curl ", "curl -sS -m 10 ", 1)
    environment = {"PATH": os.environ["PATH"], "TOKEN": console.token()}
    done = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_gateway_is_drawn_as_it_works(console: Driver) -> None:
    console.api.create("busy", JSON, b"[1]")
    console.page.evaluate("location.hash = '#/gateway'")
    console.says("1 worker; the origin is up", ".page-head")
    before = console.gateway.metric("requests", mode="append")
    for number in range(5):
        console.api.append("busy", b"[%d]" % number, JSON)
    console.page.wait_for("document.querySelectorAll('.plot path.line[d]').length >= 8", seconds=10)
    wait_until(lambda: console.gateway.metric("requests", mode="append") == before + 5)
    label = "document.querySelector('.plot svg').getAttribute('aria-label')"
    assert "Clients" in console.page.evaluate(label)
    console.says("Live readers", ".tiles")
