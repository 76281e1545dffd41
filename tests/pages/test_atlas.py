"""The atlas: codes of weights, its files, and the page in a browser."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.pages import atlas
from attnlab.pages.atlas import AtlasExample, AtlasMap, encode_weights, write_atlas
from benchmarks.atlas import measure
from tests.pages.browser import CHROMIUM, run_in_page

STRANGE = ["</script>", '"', "<b>", "\x1b", "\n", "", "مرحبا", "你好", "&amp;", "\u2028"]
SHOWN = ["</script>", '"', "<b>", "␛", "⏎", "∅", "مرحبا", "你好", "&amp;", "␣"]
in_browser = pytest.mark.skipif(not CHROMIUM, reason="no chromium on the PATH, and no $CHROME")


def rows(*shape: int, seed: int = 0) -> np.ndarray:
    """Weights [H,Tq,Tk] whose rows sum to 1."""
    return np.random.default_rng(seed).dirichlet([0.2] * shape[-1], shape[:-1]).astype(np.float32)


def examples() -> list[AtlasExample]:
    """Three layers of a text with statistics, a signed map of another model, and an image."""
    text = [f"t{place}" for place in range(60)]
    layers = [
        AtlasMap(f"block_{layer}/self", rows(4, 60, 60, seed=layer), text, text, statistics=numbers)
        for layer in range(3)
        for numbers in [{"entropy": [3.0, float("nan"), 1.0, 2.0 + layer]}]
    ]
    signed = rows(2, 60, 60, seed=7) * np.where(np.arange(60) % 2, -1, 1).astype(np.float32)
    image = np.arange(12 * 8 * 3, dtype=np.uint8).reshape(12, 8, 3)
    places = AtlasMap("cross", rows(2, 10, 7), STRANGE, [*"c123456"], "sensitivity", grid=(3, 2))
    return [
        AtlasExample("a text", layers, "softmax"),
        AtlasExample("a text", [AtlasMap("mamba_0", signed, text, text, "effective")], "mamba"),
        AtlasExample("<i>.png", [places], image=image),
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("atlas") / "new" / "atlas.html"
    write_atlas(path, "a <title>", examples(), {"entropy": "of a row, nats"})
    return path


def strongest(example: int, layer: int, head: int, query: int) -> list[list[object]]:
    """The four strongest keys of a query of the text and their weights, within the third digit."""
    row = examples()[example].maps[layer].weights[head, query]
    keys = np.argsort(-np.abs(row))[:4]
    return [[f"t{key}", pytest.approx(float(row[key]), rel=6e-3)] for key in keys]


@pytest.mark.quick
def test_a_code_has_three_digits_of_a_weight_of_any_size() -> None:
    """Decoded by the formula in the docstring, in float64."""
    generator = np.random.default_rng(0)
    weights = 10 ** generator.uniform(-9, 4, (200, 300)) * generator.choice([-1, 1], (200, 300))
    weights[0] = 0
    largest, coded = encode_weights(weights.astype(np.float32))
    exact = weights.astype(np.float32).astype(np.float64)
    codes = np.frombuffer(coded, "<u2").reshape(exact.shape).astype(np.int64)
    sizes = largest * np.exp(2.0**-11 * ((codes & 0x7FFF) - 32767.0))
    decoded = np.where(codes & 0x7FFF, np.where(codes >= 0x8000, -sizes, sizes), 0)
    large = np.abs(exact) >= atlas.FLOOR * largest
    assert largest == np.abs(exact).max() and 0.4 < large.mean() < 0.7
    assert (np.abs(decoded / np.where(exact, exact, 1) - 1)[large] <= 2.45e-4).all()
    assert atlas.ERROR <= 2.45e-4 and atlas.FLOOR < 1.2e-7 and (codes[~large] == 0).all()
    assert encode_weights(np.zeros((2, 3), np.float32)) == (0.0, bytes(12))


def test_the_files(page: Path) -> None:
    """The exact arrays, and a page that needs nothing else and that no token breaks out of."""
    with np.load(page.with_name("maps.npz")) as arrays:
        assert (arrays["0/block_2/self"] == examples()[0].maps[2].weights).all()
        assert list(arrays["2/cross/queries"]) == STRANGE and len(arrays["2/cross/keys"]) == 7
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"https?:|//cdn|@import|url\(|\bfetch\(|innerHTML|\x1b", text)
    assert text.count("</script>") == text.count("<script") == 3 + 3 * 4 + 2 + 2 - 1
    data = json.loads(re.findall(r'id="atlas-data">(.*?)</script>', text)[0])
    assert data["texts"][data["examples"][2]["maps"][0]["queries"]] == SHOWN
    assert "a &lt;title&gt;" in text and "within 0.025&nbsp;%" in text and "maps.npz" in text
    assert all(f"<dt>{kind}</dt>" in text for kind in atlas.KINDS) and "Jain and Wallace" in text


def test_what_cannot_be_shown_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, weights = ["a", "b"], rows(1, 2, 2)
    with pytest.raises(UserError, match="map m: weights that are not finite"):
        AtlasMap("m", weights * np.nan, text, text)
    part, statistics = AtlasMap("m", weights, text, text), {"x": [1.0, 2.0]}
    for fields in ({"keys": ["a"]}, {"kind": "x"}, {"grid": (2, 2)}, {"statistics": statistics}):
        with pytest.raises(ValueError, match=r"^m: "):
            dataclasses.replace(part, **fields)
    for wrong in ([], [AtlasExample("t", [])], [AtlasExample("t", [part, part])]):
        with pytest.raises(ValueError, match=r"no examples|its maps are called"):
            write_atlas(tmp_path / "atlas.html", "t", wrong)
    monkeypatch.setattr(atlas, "LARGEST", 9)
    with pytest.raises(UserError, match=r"take fewer examples, layers, heads or tokens"):
        write_atlas(tmp_path / "atlas.html", "t", [AtlasExample("t", [part])])
    assert list(tmp_path.iterdir()) == []


@in_browser
def test_clicks_keys_and_the_address_choose(page: Path) -> None:
    seen = run_in_page(page, "return cases.choosing()", "#query=20&layer=block_2%2Fself&head=1")
    heads = "block_2/self 1 t20, block_1/self 2 t20, block_2/self 3 t20, block_2/self 3 t19, "
    heads += "block_2/self 3 t5, block_2/self 3 t12, mamba_0 1 t12, block_1/self 1 t12"
    assert [" ".join(map(str, state["head"])) for state in seen["states"]] == heads.split(", ")
    assert seen["states"][2]["strongest"][:4] == strongest(0, 2, 3, 20)
    assert seen["states"][-2]["strongest"][:4] == strongest(1, 0, 1, 12)
    assert seen["hash"] == "#query=12&example=0&layer=block_1%2Fself&head=1"
    assert (seen["focused"], seen["hits"], seen["sought"]) == ("sought", "- of 1", ["t12"])
    assert "block_1/self, head 1, query t12: " in seen["aloud"] and seen["open"]
    assert "entropy 4.00" in seen["states"][2]["numbers"]


@in_browser
def test_what_is_under_the_pointer_is_told(page: Path) -> None:
    """In the text, on the large map, and outside of it."""
    seen = run_in_page(page, "return cases.pointing()", "#query=8&layer=block_0%2Fself&head=0")
    weights = examples()[0].maps[0].weights[0]
    for name, query, key in (("text", 8, 3), ("map", 9, 7)):
        begin, number, largest, token = seen[name]
        assert begin == f"t{query} → t{key}" and token.startswith(f"t{weights[query].argmax()} ")
        assert float(number) == pytest.approx(weights[query, key], rel=6e-3)
        assert float(largest) == pytest.approx(weights[query].max(), rel=6e-3)
    assert seen["strongest"] == strongest(0, 0, 0, 9)[0]
    assert seen["outside"] == [] and seen["square"]


@in_browser
def test_order_two_models_an_image_and_strange_tokens(page: Path) -> None:
    """Heads without a number come last; a token is chosen in both models."""
    seen = run_in_page(page, "return cases.comparing()")
    assert seen["sorted"] == ["4.00", *["3.00"] * 4, "2.00", *["1.00"] * 3, *["-"] * 3]
    assert seen["beside"][1] == "mamba · a text: mamba_0, head 0" and len(seen["beside"]) == 2
    assert "example2=1&layer2=mamba_0&head2=0" in seen["hash"] and seen["asked"] == ["t4", "t4"]
    assert seen["tokens"] == SHOWN and seen["direction"] == "rtl" and seen["opaque"] == 255
    assert seen["kind"] == "sensitivity" and seen["small"] == [[7, 10]] * 2


@in_browser
def test_a_text_of_1000_tokens_has_a_window(tmp_path: Path) -> None:
    """It follows the query, and moves on the whole map."""
    text, weights = [f"t{place}" for place in range(1000)], rows(1, 1000, 1000)
    long = AtlasExample("long", [AtlasMap("self", weights, text, text)])
    write_atlas(tmp_path / "atlas.html", "long", [long])
    seen = run_in_page(tmp_path / "atlas.html", "return cases.moving()", "#query=700")
    assert [round(place / 5) for place in seen["places"]] == [14, 0, 14]
    assert seen["head"] == ["self", 0, "t701"] and seen["width"] < 800 and seen["small"] == 77
    assert seen["strongest"][0][0] == f"t{weights[0, 701].argmax()}"


@in_browser
def test_its_figures_are_measured() -> None:
    assert all(value > 0 for name, value, *_ in measure(1, 2, 40) if "search" not in name)
