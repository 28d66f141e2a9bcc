"""Every way to write a base URL reaches one path, or is refused at the start."""

from __future__ import annotations

import httpx
import pytest
import yarl
from hypothesis import given
from hypothesis import strategies as st

from runner.endpoint import Endpoint, EndpointError


@pytest.mark.parametrize(
    "base_url",
    [
        "http://h:1",
        "http://h:1/",
        "http://h:1/v1",
        "http://h:1/v1/",
        "http://h:1/v1//",
        "http://h:1/v1/chat/completions",
        "http://h:1/v1/chat/completions/",
        "HTTP://H:1/v1",
    ],
)
def test_every_form_of_one_base_url_reaches_one_path(base_url: str) -> None:
    endpoint = Endpoint.parse(base_url)
    assert endpoint.url == endpoint.recorded == "http://h:1/v1/chat/completions"
    assert endpoint.models_url == "http://h:1/v1/models"
    assert endpoint.host == "h"


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://openrouter.example/api/v1", "https://openrouter.example/api/v1/chat/completions"),
        ("https://x.example/openai/deployments/gpt-x/", "https://x.example/openai/deployments/gpt-x/chat/completions"),
        ("https://g.example/v1beta/openai", "https://g.example/v1beta/openai/chat/completions"),
        ("https://a.example/models", "https://a.example/models/chat/completions"),
        ("https://integrate.api.nvidia.com:443/v1", "https://integrate.api.nvidia.com/v1/chat/completions"),
        ("http://h:443/v1", "http://h:443/v1/chat/completions"),
        ("http://h:/v1", "http://h/v1/chat/completions"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1/chat/completions"),
        ("http://[2001:DB8:0:0::1]", "http://[2001:db8::1]/v1/chat/completions"),
        ("http://xn--bcher-kva.example/v1", "http://xn--bcher-kva.example/v1/chat/completions"),
        ("http://10.0.0.7:8000", "http://10.0.0.7:8000/v1/chat/completions"),
        ("http://model_server:8000", "http://model_server:8000/v1/chat/completions"),
        ("http://h/chat/completions", "http://h/chat/completions"),
    ],
)
def test_a_longer_prefix_is_kept(base_url: str, url: str) -> None:
    endpoint = Endpoint.parse(base_url)
    assert endpoint.url == url
    assert Endpoint.parse(endpoint.url) == endpoint


@pytest.mark.parametrize(
    ("base_url", "why"),
    [
        ("", "empty"),
        ("h:8000/v1", "must look like"),
        ("//h/v1", "must look like"),
        ("file:///etc/passwd", "http or https"),
        ("ftp://h/v1", "http or https"),
        ("http://", "no host"),
        ("http:///v1", "no host"),
        ("http://:8000/v1", "no host"),
        ("http://h:0/v1", "port"),
        ("http://h:65536/v1", "port"),
        ("http://h:1" + "0" * 5000, "port"),
        ("http://h:1:2/v1", "no host"),
        ("http://h/v1?key=1", "query"),
        ("http://h/v1?", "query"),
        ("http://h/v1#x", "fragment"),
        (" http://h/v1", "white space"),
        ("http://h/v1\n", "white space"),
        ("http://h\t/v1", "white space"),
        ("http://h/\x00v1", "control"),
        ("http://h/v\u200b1", "control"),
        ("http://bücher.example/v1", "xn--"),
        ("http://h/v1/v1", "twice"),
        ("http://h/v1/v1/chat/completions", "twice"),
        ("http://h/v1/chat/completions/chat/completions", "before its end"),
        ("http://h//v1", "empty part"),
        ("http://h/v1//chat/completions", "empty part"),
        ("http://h/a%2Fb", "rewritten"),
        ("http://h/a\\b", "rewritten"),
        ("http://h/a/../v1", "dots"),
        ("http://h/./v1", "dots"),
        ("http://h/v1/chat", "another call"),
        ("http://h/v1/completions", "another call"),
        ("http://h/v1/models", "another call"),
        ("http://h/v1/responses", "another call"),
        ("http://[::1/v1", "no host"),
        ("http://[::g]/v1", "IPv6"),
        ("http://[fe80::1%eth0]/v1", "zone"),
        ("http://-h/v1", "not a host's name"),
        ("http://h..example/v1", "not a host's name"),
        ("http://h$/v1", "not a host's name"),
        ("http://xn--a.example/v1", "neither"),
        ("http://999.1.1.1/v1", "neither"),
        ("http://h/sk-abcdefghij0123456789/v1", "like a key"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_with_the_reason(base_url: str, why: str) -> None:
    with pytest.raises(EndpointError, match=why):
        Endpoint.parse(base_url)


@pytest.mark.parametrize(
    "base_url",
    [
        "http://me:hunter2-hunter2@h/v1",
        "http://hunter2-hunter2@h/v1",
        "http://me:hunter2-hunter2/x@h/v1",
        "http://a:1/@h",
    ],
)
def test_user_info_is_refused_and_never_repeated(base_url: str) -> None:
    with pytest.raises(EndpointError, match="user name or password") as caught:
        Endpoint.parse(base_url)
    assert "hunter2" not in str(caught.value)


PATHS = st.lists(st.text("abz019._~!$&'()*+,;=:-", min_size=1, max_size=8), max_size=4).map("/".join)


@given(st.sampled_from(["http", "https"]), st.integers(1, 65535), PATHS, st.sampled_from(["", "/"]))
def test_what_is_accepted_is_sent_unchanged_and_reads_the_same_again(
    scheme: str, port: int, path: str, slash: str
) -> None:
    try:
        endpoint = Endpoint.parse(f"{scheme}://example.test:{port}/{path}{slash}")
    except EndpointError:
        return
    assert Endpoint.parse(endpoint.url) == endpoint
    assert str(httpx.URL(endpoint.url)) == str(yarl.URL(endpoint.url)) == endpoint.url
    assert endpoint.path.endswith("/chat/completions")
    assert "//" not in endpoint.path


@given(st.text(max_size=60))
def test_any_text_at_all_is_parsed_or_refused(text: str) -> None:
    for base_url in (text, f"http://{text}", f"http://h/{text}"):
        try:
            Endpoint.parse(base_url)
        except EndpointError:
            continue
