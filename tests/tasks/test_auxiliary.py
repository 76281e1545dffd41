"""Auxiliary losses are those of loops over queries and words, added with the weights of the config;
the baseline of sampled choices follows its rewards; mistakes are named. The estimate of the gradient
of a system's decisions by chance is that of the expected reward, and only they and their baseline
are trained by it.
"""

import functools
import types
from pathlib import Path
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab import config as configs
from attnlab.attention.alignments import losses
from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.protocol import MAPS
from attnlab.data.vocabulary import BOS, EOS, PAD
from attnlab.systems.protocol import GLIMPSES
from attnlab.systems.vision.glimpses import Glimpses
from attnlab.tasks.auxiliary import Decisions
from attnlab.tasks.pairs import Translation
from attnlab.tasks.schemas import Decided
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.step import first_state, make_step
from attnlab.training.updates import Updates, first_params
from tests.changed import changed
from tests.refusals import check_refused
from tests.tasks.tiny import SHARED, batch_of, load, loader, log_softmax, noisy

SIZES = {
    "rnnsearch": ["system.embedding=8", "system.encoder=8", "system.decoder=8", "system.maxout=8"],
    "transformer": ["system.width=8", "system.hidden=8", "system.layers=1", "system.dropout=0"],
}
HARD = ["system.attention.alignment=hard", "system.attention.score.hidden=8"]
HOPS = ["=hops", ".hops=2", ".hidden=4"]
EVERYWHERE = [f"system.{at}_attention{x}" for at in ("encoder", "decoder", "cross") for x in HOPS]
ADAM = optax.adam(1e-2, eps=1e-3)


def task_of(system: str, *overrides: str) -> Translation:
    """A tiny task on mirrored words."""
    config = configs.load(f"configs/translation.py:{system}", [*SIZES[system], *SHARED, *overrides])
    return Translation(config, load("rnnsearch").data)


def started(task: Translation, optimizer: optax.GradientTransformation = ADAM) -> tuple[Any, Any]:
    """The first state and the step."""
    state = first_state(first_params(task.init, jax.random.key(0)), optimizer, 0.0, task.carried())
    return state, make_step(task.loss, task.weight, optimizer, follow=task.follow)


def uneven(task: Translation, rows: int) -> dict[str, np.ndarray]:
    """A batch whose targets are shorter than their sources, by one word more in every row."""
    batch = batch_of(task, rows)
    lengths = np.maximum(
        (batch["target"] != PAD).sum(axis=1) - 1 - np.arange(len(batch["target"])),
        np.arange(len(batch["target"])) < rows,
    )
    return {**batch, "target": np.where(np.arange(8) < lengths[:, None], batch["target"], PAD)}


def words_before(target: np.ndarray) -> np.ndarray:
    """What the decoder reads."""
    return np.pad(target, ((0, 0), (1, 0)), constant_values=BOS)[:, :-1]


@pytest.mark.parametrize(
    ("system", "slots"),
    [
        pytest.param("rnnsearch", [f"system.attention{x}" for x in HOPS], marks=pytest.mark.full),
        ("transformer", EVERYWHERE),
    ],
)
def test_penalties_are_summed_over_real_queries_of_all_looks(system: str, slots: list[str]) -> None:
    """Against the maps, sentence by sentence: || A A^T - I ||^2 of every query, (1 - sum_t a_tj)^2
    of every source word.
    """
    task = task_of(system, *slots, "auxiliary.hops=1", "auxiliary.doubly_stochastic=0.5")
    params, batch = noisy(task, 0.3), uneven(task, 3)

    def both(params: Any) -> Any:
        variables, ids = {"params": params}, (batch["source"], words_before(batch["target"]))
        return (
            task.loss(params, batch, jax.random.key(0), numbers={"auxiliary.hops": 0.25}),
            task.system.apply(variables, *ids, mutable=[MAPS]),
            task.sums(params, batch),
        )

    (total, sums), (_, collected), plain = jax.jit(both)(params)
    overlap = uncovered = 0.0
    real = {"source": (batch["source"] != PAD).sum(1), "target": (batch["target"] != PAD).sum(1)}
    for one in task.system.maps(collected[MAPS]).values():
        for b in range(3):
            words, keys = (
                real["source" if side == "source" else "target"][b]
                for side in (one.rows, one.columns)
            )
            w = np.asarray(one.weights[b, :, :words], np.float64)
            overlap += sum(((w[:, i] @ w[:, i].T - np.eye(2)) ** 2).sum() for i in range(words))
            if (one.rows, one.columns) == ("target", "source"):
                uncovered += ((1 - w[:, :, :keys].sum(axis=1)) ** 2).sum() / 2
    assert float(sums["hops"]) == pytest.approx(overlap, rel=1e-5)
    assert float(sums["doubly_stochastic"]) == pytest.approx(uncovered, rel=1e-5)
    assert float(sums["cross_entropy"]) == pytest.approx(float(plain["loss"]), rel=1e-6)
    expected = float(plain["loss"]) + 0.25 * overlap + 0.5 * uncovered
    assert float(total) == pytest.approx(expected, rel=1e-5)


@pytest.mark.full
def test_a_weighted_penalty_falls() -> None:
    task = task_of("transformer", *EVERYWHERE, "auxiliary.hops=1.0")
    state, step = started(task)
    batch = {name: jnp.asarray(rows) for name, rows in batch_of(task).items()}
    _, metrics = jax.jit(lambda x: jax.lax.scan(lambda s, _: step(s, batch), x, length=40))(state)
    assert metrics["hops"][-1] < 0.7 * metrics["hops"][0]


def test_without_weights_nothing_is_added() -> None:
    task = task_of("transformer", *(one.replace(".hops=2", ".hops=1") for one in EVERYWHERE))
    assert task.auxiliary.collections == [] and task.carried() is None


def choices(system: Any, samples: Any, source: np.ndarray) -> dict[str, np.ndarray]:
    """log p and entropy [B,T] of what was sampled; the encoder's stand at the first step."""
    actual: dict[str, np.ndarray] = {one: np.zeros(source.shape) for one in ("log_prob", "entropy")}
    for path, (look,) in jax.tree_util.tree_leaves_with_path(
        samples, is_leaf=lambda x: isinstance(x, tuple)
    ):
        per_query = np.asarray(look, np.float64).reshape(*look.shape[:2], -1).sum(axis=1)
        if path[0].key.startswith("encoder"):
            actual[path[-1].key][:, 0] += (per_query * (source != PAD)).sum(axis=1)
        else:
            actual[path[-1].key] += per_query
    return actual


SLOTS = [f"system.{slot}_attention.alignment=hard" for slot in ("encoder", "cross")]


@pytest.mark.parametrize(
    ("system", "reward", "slots"), [("rnnsearch", "to_go", HARD), ("transformer", "total", SLOTS)]
)
def test_the_term_of_sampled_choices(system: str, reward: str, slots: list[str]) -> None:
    """-sum over real words of w (R - b) log p + e H, R by a loop over words; and what the baseline
    is told.
    """
    weights = (f"reinforce.reward={reward}", "reinforce.weight=0.5", "reinforce.entropy=0.25")
    task = task_of(system, *slots, *weights)
    batch, key = uneven(task, 5), jax.random.key(4)
    params, width = noisy(task, 0.3), {"to_go": 8, "total": 1}[reward]
    carried = {"baseline": jnp.linspace(-9.0, -2.0, width)}
    begun = Updates.of(task.config).state_like(task).carried
    for baselines in (task.carried(), begun):
        assert jax.tree.map(jnp.shape, baselines) == {"baseline": (width,)}

    def both(params: Any) -> Any:
        ids = (batch["source"], words_before(batch["target"]))
        rngs = {"dropout": key, "sample": jax.random.fold_in(key, 1)}
        return task.loss(params, batch, key, carried=carried), task.system.apply(
            {"params": params}, *ids, rngs=rngs, mutable=[SAMPLES]
        )

    (total, sums), (logits, collected) = jax.jit(both)(params)
    chosen = choices(task.system, collected[SAMPLES], batch["source"])
    words = np.take_along_axis(log_softmax(logits), batch["target"][..., None], -1)[..., 0]
    term, entropy, rewards, rows = 0.0, 0.0, np.zeros(width), np.zeros(width)
    for b in range(5):
        length = int((batch["target"][b] != PAD).sum())
        for t in range(length):
            at = t if width > 1 else 0
            reached = words[b, at:length].sum()
            if width > 1 or t == 0:
                rewards[at], rows[at] = rewards[at] + reached, rows[at] + 1
            entropy += chosen["entropy"][b, t]
            term -= (
                0.5 * (reached - float(carried["baseline"][at])) * chosen["log_prob"][b, t]
                + 0.25 * chosen["entropy"][b, t]
            )
    assert float(total - sums["cross_entropy"]) == pytest.approx(term, rel=1e-4)
    assert float(sums["choice_entropy"]) == pytest.approx(entropy, rel=1e-5)
    np.testing.assert_allclose(sums["tracked"]["rewards"], rewards, rtol=1e-5)
    np.testing.assert_array_equal(sums["tracked"]["rows"], rows)
    after, before = (one["baseline"] for one in (task.follow(carried, sums["tracked"]), carried))
    expected = np.where(rows > 0, 0.9 * before + 0.1 * rewards / np.maximum(rows, 1), before)
    np.testing.assert_allclose(after, expected, rtol=1e-5)


@pytest.mark.full
def test_the_baseline_survives_a_restart_to_the_last_bit(tmp_path: Path) -> None:
    task = task_of("rnnsearch", *HARD)
    state, step = started(task)
    step, batches = jax.jit(step), task.batches(1)
    state, _ = step(state, batches(0))
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, jax.device_get(state), {})
    restored = checkpoints.restore(jax.eval_shape(lambda: state))
    checkpoints.close()
    assert restored is not None
    there, here = (step(state, batches(1))[0] for state in (restored.tree, state))
    jax.tree.map(np.testing.assert_array_equal, there, here)
    higher = {**state.carried, "baseline": state.carried["baseline"] + 1.0}
    other = step(state.replace(carried=higher), batches(1))[0]
    leaves = zip(*map(jax.tree.leaves, (other.params, here.params)), strict=True)
    assert any((mine != theirs).any() for mine, theirs in leaves)  # it matters


@pytest.mark.full
def test_hard_attention_learns_where_to_look_by_its_rewards() -> None:
    """A decoder of 8 units copies 7 letters; without the term of its choices it looks anywhere for
    ever.
    """
    # Its own letters, not those of the task's data, whose frequencies its output bias must not
    # start from.
    task = task_of("rnnsearch", *HARD, "system.embedding=16", "training.output_bias=zeros")
    steps = 900
    rng = np.random.default_rng(1)
    ids = np.concatenate(
        [rng.integers(4, 9, (steps, 32, 7)), np.full((steps, 32, 1), EOS)], axis=2
    ).astype(np.int32)
    state, step = started(task, optax.adam(1e-2))

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, None, 0))
    def run(state: Any, ids: Any, weight: Any) -> Any:
        # An argument, so that one program runs both at once.
        task.auxiliary.sampling = types.SimpleNamespace(
            reward="to_go", weight=weight, entropy=1e-3 * weight, decay=0.9
        )
        return jax.lax.scan(lambda s, x: step(s, {"source": x, "target": x}), state, ids)[1]

    sums = run(state, ids, np.array([1.0, 0.0], np.float32))
    rewarded, alone = (
        jax.tree.map(lambda x, row=row: float(np.asarray(x)[row, -150:].sum()), sums)
        for row in (0, 1)
    )
    right, chance = (one["correct"] / one["tokens"] for one in (rewarded, alone))
    assert right > chance + 0.05, (right, chance)
    open_ = np.log(8)  # the entropy of looking anywhere
    assert rewarded["choice_entropy"] / rewarded["tokens"] < 0.6 * open_
    assert alone["choice_entropy"] / alone["tokens"] == pytest.approx(open_, rel=1e-4)


@pytest.mark.quick
def test_a_name_of_ones_own_in_a_config_file_is_checked() -> None:
    given = [*SIZES["transformer"], *EVERYWHERE]
    config = configs.load("configs/translation.py:transformer", given)
    config = changed(config, auxiliary__hopps=1.0)
    check_refused("auxiliary.hopps=1.0: .*did you mean 'hops'", Translation.check, config)


TINY = {"glimpses": 2, "size": 2, "scales": 1, "hidden": 3, "width": 4, "cell": "tanh"}
SMALL = [
    *("data.examples=20", "data.valid=6", "data.test=2", "data.label=shape", "data.side=12"),
    *("batch.size=8", "system.hidden=16", "system.width=8", "system.size=3", "system.scales=2"),
    "system.glimpses=2",
]


@pytest.mark.full
def test_the_estimate_is_the_gradient_of_the_expected_reward() -> None:
    """Of a decision in two dimensions, against an integral over all places, some of them clipped;
    reward is the log-likelihood of class 0.
    """
    system = Glimpses(classes=2, deviation=0.3, **TINY)  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    image = jnp.asarray(rng.normal(size=(1, 6, 6, 1)), jnp.float32)
    shapes = jax.eval_shape(system.init, jax.random.key(0), image)["params"]
    params = jax.tree.map(lambda one: rng.normal(size=one.shape).astype(np.float32), shapes)
    terms = Decisions(Decided(reward="log_likelihood"))

    def reward(params: Any, **how: Any) -> Any:
        logits, aside = system.apply({"params": params}, image, **how, mutable=[SAMPLES, GLIMPSES])
        return jax.nn.log_softmax(logits)[:, 0], aside

    def estimate(key: jax.Array) -> jax.Array:
        def added(bias: jax.Array) -> jax.Array:
            location = {**params["location"], "bias": bias}
            got, aside = reward({**params, "location": location}, rngs={"sample": key})
            return terms(aside, carried=None, reward=got, real=jnp.ones(1, bool))[0]

        return -jax.grad(added)(params["location"]["bias"])

    def at(place: jax.Array) -> jax.Array:
        """The reward of looking at a place: the one that a bias alone leads to."""
        bias = jnp.where(jnp.abs(place) >= 1, jnp.sign(place) * 20, jnp.arctanh(place))
        forced = {"kernel": jnp.zeros_like(params["location"]["kernel"]), "bias": bias}
        return reward({**params, "location": forced})[0][0]

    grid = np.arange(-2.6, 2.6, 0.05)
    places = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    rewards = np.asarray(jax.jit(jax.vmap(at))(places.astype(np.float32)), np.float64)
    mean = np.asarray(reward(params)[1][GLIMPSES]["locations"][0][0, 1], np.float64)
    density = np.exp(-np.square((places - mean) / 0.3).sum(axis=1) / 2) / (2 * np.pi * 0.3**2)
    assert density.sum() * 0.05**2 == pytest.approx(1, abs=1e-3)
    slope = (rewards * density) @ ((places - mean) / 0.3**2) * 0.05**2  # for the mean
    exact = slope * (1 - mean**2)  # for the bias
    keys = jax.random.split(jax.random.key(1), 40_000)
    actual = np.asarray(jax.jit(jax.vmap(estimate))(keys), np.float64)
    error = actual.std(axis=0) / len(actual) ** 0.5
    assert (np.abs(actual.mean(axis=0) - exact) < 4 * error).all()
    assert (np.abs(exact) > 12 * error).any()


def test_the_baseline_follows_the_reward_and_padding_counts_for_nothing() -> None:
    rng = np.random.default_rng(0)
    log_prob, baseline = rng.normal(size=(2, 3, 4))
    rewards, valid = np.array([[1.0], [0.0], [5.0]]), np.array([True, True, False])

    def both(log_prob: jax.Array, baseline: jax.Array) -> Any:
        return losses.with_baseline(log_prob, jnp.asarray(rewards), baseline, jnp.asarray(valid))

    off = (rewards - baseline) * valid[:, None]
    choices, squares = both(log_prob, baseline)
    assert float(choices) == pytest.approx(-(off * log_prob).sum(), rel=1e-5)
    assert float(squares) == pytest.approx(np.square(off).sum(), rel=1e-5)
    of_choices, of_squares = (
        jax.grad(lambda *given, n=n: both(*given)[n], argnums=(0, 1))(log_prob, baseline)
        for n in (0, 1)
    )
    np.testing.assert_allclose(of_choices[0], -off, rtol=1e-5)
    np.testing.assert_allclose(of_squares[1], -2 * off, rtol=1e-5)
    assert not np.any(of_choices[1]) and not np.any(of_squares[0])


loaded = loader("image_classification.py:glimpses", SMALL)


def test_rewards_train_where_to_look_and_the_labels_all_else() -> None:
    task, plain = loaded(), loaded("decisions.weight=0", "decisions.baseline=0")
    liked = loaded("decisions.reward=log_likelihood")
    params = noisy(task, 0.3)
    batch = {name: rows.copy() for name, rows in task.batches(1)(0).items()}
    batch["label"][6:] = 0

    @jax.jit
    def run(params: Any, batch: Any) -> Any:
        given = (params, batch, jax.random.key(0))
        both = [jax.value_and_grad(one.loss, has_aux=True)(*given) for one in (task, plain)]
        return *both, liked.loss(*given)[1]

    ((loss, sums), full), ((bare, other), alone), third = run(params, batch)
    full, alone = (flax.traverse_util.flatten_dict(one) for one in (full, alone))
    for path, one in full.items():
        decides = path[0] in ("location", "expected")
        assert np.any(alone[path]) != decides, path
        assert np.any(np.asarray(one) != np.asarray(alone[path])) == decides, path
    assert float(bare) == float(sums["cross_entropy"]) != float(loss)
    assert float(sums["reward"]) == float(sums["correct"]) <= 6
    assert float(third["reward"]) == pytest.approx(-float(other["cross_entropy"]), rel=1e-5)
    garbled = {**batch, "image": np.where(np.arange(8)[:, None, None, None] < 6, batch["image"], 7)}
    ((again, _), _), *_ = run(params, garbled)
    assert float(again) == pytest.approx(float(loss), rel=1e-5)
    assert task.evaluate(params, "valid") == plain.evaluate(params, "valid")
    assert task.carried() is None
