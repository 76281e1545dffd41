"""Systems say between what their maps lie; a map is a distribution over what is no padding.

Of captioners, language models and sequence-to-sequence systems the checks of their kind ask it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from attnlab.systems import SYSTEMS
from attnlab.tasks.maps import maps_of, recorded
from tests.layers.test_sensitivity import differences
from tests.systems import classifiers, image_systems, language_models, visual_answerers
from tests.systems.own import FIRST, read
from tests.systems.tiny import by_rows, drawn, make, seldom, wide

READERS = {
    "readers/encoder/attention": ("source", "source"),
    "readers/decoder/attention": ("target_in", "target_in"),
}
BOTH = {"attention": ("hops", "source"), "attention_1": ("hops", "target_in")}
SIDES: dict[str, tuple[Any, dict[str, tuple[str, str]]]] = {
    "attention_pooling": (classifiers, BOTH),
    "attention_pooling-multihead": (classifiers, BOTH),
    "self_attentive": (classifiers, BOTH),
    "lstmn_pair-deep": (
        classifiers,
        {**READERS, "readers/decoder/inter_attention": ("target_in", "source")},
    ),
    "lstmn_pair-shallow": (
        classifiers,
        {**READERS, "readers/inter_attention": ("target_in", "source")},
    ),
    "detr": (
        image_systems,
        {
            "encoder_0/self_attention": ("image", "image"),
            **{f"decoder_{layer}/self_attention": ("queries", "queries") for layer in (0, 1)},
            **{f"decoder_{layer}/cross_attention": ("queries", "image") for layer in (0, 1)},
        },
    ),
    "vit": (image_systems, {f"layer_{n}/attention": ("image", "image") for n in (0, 1)}),
    "cnn_lstm": (visual_answerers, {}),
    "stacked_attention": (
        visual_answerers,
        {f"attention_{hop}": ("hops", "image") for hop in (0, 1)},
    ),
    "co_attention": (
        visual_answerers,
        {
            f"{level}/{side}_attention": ("hops", side)
            for level in ("word", "phrase", "sentence")
            for side in ("image", "question")
        },
    ),
    "bottom_up": (visual_answerers, {"attention": ("hops", "image")}),
    "cross_attention": (
        visual_answerers,
        {
            "image_0/self_attention": ("image", "image"),
            **{
                f"question_{layer}/{of}_attention": ("joined", key)
                for layer in (0, 1)
                for of, key in (("self", "joined"), ("cross", "image"))
            },
        },
    ),
}
"""By setting: its room, and query and key of every map."""
PLACES = {"detr": 9, "vit": 7}  # of an image, the class token among them; others have 3 x 4
ROWS = {"self_attentive": 3, "attention_pooling-multihead": 2}  # of a hop or head for each
DEFAULT = ("self_attentive", "lstmn_pair-deep", "stacked_attention", "detr", "vit")


@pytest.mark.parametrize("name", seldom(SIDES, *DEFAULT))
def test_maps_lie_between_what_they_name(name: str) -> None:
    """A row for each look, hop or head; a text without a token is looked at nowhere."""
    room, sides = SIDES[name]
    system, given = make(room.SPECS[name]), read(room, room.SPECS[name], 2)
    params = room.parameters(system, *given)
    look = jax.jit(functools.partial(system.apply, mutable=[MAPS]))
    maps = system.maps(look({"params": params}, *given)[1].get(MAPS, {}))
    assert {key: (one.rows, one.columns) for key, one in maps.items()} == sides
    texts = dict(zip(("source", "target_in"), given, strict=False)) if room is classifiers else {}
    if room is visual_answerers:
        joined = np.pad(given[1], ((0, 0), (1, 0)), constant_values=1)
        texts = {"question": given[1], "joined": joined}
        assert system.grid(visual_answerers.SHAPE) == visual_answerers.GRID
    lengths = {"image": PLACES.get(name, 12), "queries": 3, "hops": ROWS.get(name, 1)}
    lengths |= {key: ids.shape[1] for key, ids in texts.items()}
    for map_name, one in maps.items():
        weights = np.asarray(one.weights)
        assert weights.shape[0::2] == (len(given[0]), lengths[one.rows]), map_name
        assert weights.shape[3] == lengths[one.columns], map_name
        real = (
            texts[one.columns] != 0 if one.columns in texts else np.ones(weights.shape[::3], bool)
        )
        assert not weights[np.broadcast_to(~real[:, None, None], weights.shape)].any()
        if one.rows != one.columns or one.columns not in (
            "source",
            "target_in",
        ):  # a past may be empty
            sums = np.broadcast_to(real.any(axis=1)[:, None, None], weights.shape[:3])
            np.testing.assert_allclose(weights.sum(axis=-1), sums, atol=1e-6)


def one_row(name: str) -> tuple[Any, Any, list[np.ndarray]]:
    """The first setting of a system, tiny; its parameters; and one row of what it reads."""
    room, spec = FIRST[name]
    texts = max(SYSTEMS.resolve(name).texts) if room is classifiers else 0
    rows = [x[1:2] for x in read(room, spec, texts)]
    system = make(spec)
    return system, drawn(system, *rows, rule=lambda _, noise: by_rows(noise)), rows


@pytest.mark.parametrize("name", SYSTEMS.names())
def test_every_system_has_a_map(name: str) -> None:
    """Its own, or the sensitivity of its answers to each of its inputs."""
    system, params, read = one_row(name)
    maps = jax.eval_shape(functools.partial(recorded, system), params, read)
    assert maps and all(map_.weights.shape[0] == 1 for map_ in maps.values())
    if any(name.startswith("sensitivity_to") for name in maps):
        counts = [int(np.prod(x.shape[1:3] if x.ndim == 4 else x.shape)) for x in read]
        assert [map_.weights.shape[3] for map_ in maps.values()] == counts
        assert {map_.kind for map_ in maps.values()} == {"sensitivity"}
        assert ("image" in {map_.columns for map_ in maps.values()}) == (read[0].ndim == 4)


@pytest.mark.parametrize(("name", "table"), [("lstm_lm", "embed"), ("seq2seq", "embed_source")])
def test_sensitivities_of_systems_are_what_central_differences_give(
    name: str, table: str, float64: None
) -> None:
    """The embedding of a token that occurs once is moved in its table, in all directions."""
    system, params, (_, *others) = one_row(name)
    params, source = wide(params), np.arange(4, 8, dtype=np.int32)[None]
    embeddings = params[table]["embedding"]

    def largest(x: Any) -> Any:
        moved = {**params, table: {"embedding": jnp.asarray(embeddings).at[source[0]].set(x[0])}}
        return system.apply({"params": moved}, source, *others).max(axis=-1)[..., None]

    expected = differences(largest, embeddings[source], by=1e-6)
    actual = maps_of(system, params, (source, *others))["sensitivity_to/source"].weights[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6 * expected.max())


def test_a_stack_of_different_mixers_has_maps_of_all_kinds_and_the_same_logits() -> None:
    mixers = {"one": {"name": "mamba", "state": 3, "head_width": 4}, "other": "recurrent"}
    spec = {**language_models.SPECS["decoder"], "layers": 2}
    system, tokens = (
        make({**spec, "attention": {"name": "by_layer", **mixers}}),
        np.ones((2, 6), int),
    )
    params = {"params": language_models.parameters(system)}
    run = jax.jit(functools.partial(system.apply, mutable=[MAPS]))
    logits, collected = run(params, tokens)
    np.testing.assert_array_equal(logits, jax.jit(system.apply)(params, tokens))
    kinds = {name: map_.kind for name, map_ in system.maps(collected[MAPS]).items()}
    assert kinds == {"layer_0/attention": "effective", "layer_1/attention": "sensitivity"}
