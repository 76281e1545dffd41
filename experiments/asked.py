"""Does a system that answers questions about an image need attention?

    python launch.py sweep experiments/asked.py --dir=runs/asked
    python launch.py sweep experiments/asked.py:relations --dir=runs/relations
    python launch.py sweep experiments/asked.py:FOLDER --dir=runs/asked-easy

A network of convolutions gives 8 x 8 places. Without attention the answer comes from their mean, or
from all side by side, and the last state of an LSTM over the question (Santoro et al. 2017). With
it the question looks at the places: stacked attention (Yang et al. 2016), a gated look whose keys
are places with the question (Anderson et al. 2018), co-attention (Lu et al. 2016), and tokens in a
Transformer. All are told where a place lies: its row and column are two more of its channels
(`coordinates`); the Transformer, whose places look at each other, has sines of them too. All have as
many parameters, within 2 %. Without an argument Sort-of-CLEVR: 20 questions about each of 4,000 images of
six objects, which are told apart by colour; half of the questions relate one to the others, so
scores stand by kind of question. With "relations" longer training on 9,800 images, 14 of 20 questions
relational: the two without attention, and the Transformer with three layers of places, whose
attention knows rows and columns (rotary, Heo et al. 2024) or does not. With a folder its images and
questions in the form of easy-VQA.
"""

from typing import Any

from attnlab.data.files import find_file
from attnlab.experiments import Budget, Claim, Experiment, better, rows
from attnlab.records.files import expanded

HEADS: dict[str, Any] = {"name": "multihead", "heads": 4}
ADDITIVE: dict[str, Any] = {"name": "single", "score": {"name": "additive", "hidden": 64}}
DOT: dict[str, Any] = {"name": "single", "score": "dot"}


def get_experiment(argument: str = "") -> Experiment:
    """The experiment on generated images, or on those of the folder in the argument, or "relations".

    Raises:
      UserError: no such folder of easy-VQA.
    """
    if argument == "relations":
        return relations()
    compared = {
        "mean": system("cnn_lstm", pooling="mean"),
        "side by side": system("cnn_lstm", pooling="flat"),
        "stacked": system("stacked_attention", attention=ADDITIVE, hops=2),
        "bottom-up": system("bottom_up", attention=DOT),
        "co-attention": system("co_attention", image_attention=DOT, question_attention=DOT),
        "Transformer": system("cross_attention", **transformer(2, hidden=96)),
    }
    knobs = {"stacked": "system.width", "co-attention": "system.width"}
    return Experiment(
        question="Does a system that answers questions about an image need attention?",
        config="configs/visual_questions.py:cross_attention",
        base={
            **(of_files(argument) if argument else generated()),
            "schedule.peak": 2e-3,
            "schedule.warmup": 100,
        },
        compare=rows(compared),
        seeds=(0, 1, 2),
        baseline="mean",
        measure=("accuracy", "max"),
        budget=Budget(
            match="parameters", knob="system.hidden", to="Transformer", within=0.02, knobs=knobs
        ),
        claim=Claim(
            "Attention of one kind or another answers more than none",
            (
                better("Transformer", "mean"),
                better("Transformer", "side by side"),
                better("stacked", "mean"),
            ),
        ),
    )


def relations() -> Experiment:
    """The same questions, longer, and attention with and without rows and columns inside."""
    turned = {**HEADS, "positions": "rope_2d"}
    compared = {
        "mean": system("cnn_lstm", pooling="mean"),
        "side by side": system("cnn_lstm", pooling="flat"),
        "Transformer": system("cross_attention", **transformer(3)),
        "Transformer, rotary": system(
            "cross_attention", **transformer(3, hidden=96, image_attention=turned)
        ),
    }
    longer = {"examples": 9800, "relational": 14, "non_relational": 6}
    return Experiment(
        question="Does attention answer how objects stand to each other?",
        config="configs/visual_questions.py:cross_attention",
        base={
            **generated(),
            **{f"data.{name}": value for name, value in longer.items()},
            "schedule.peak": 1e-3,
            "schedule.warmup": 200,
            "training.steps": 12_000,
            "training.evaluate_every": 1000,
        },
        compare=rows(compared),
        seeds=(0, 1, 2),
        baseline="mean",
        measure=("accuracy", "max"),
        budget=Budget(
            match="parameters", knob="system.hidden", to="Transformer, rotary", within=0.02
        ),
        claim=Claim(
            "With rows and columns inside its attention a Transformer answers more than without",
            (
                better("Transformer, rotary", "Transformer"),
                better("Transformer, rotary", "mean"),
                better("Transformer, rotary", "side by side"),
            ),
        ),
    )


def transformer(layers: int, **changed: Any) -> dict[str, Any]:
    """Fields of a Transformer with so many layers of places and one of tokens."""
    return {
        "question_attention": HEADS,
        "cross_attention": HEADS,
        "image_attention": HEADS,
        "image_layers": layers,
        "image_positions": "sinusoidal_2d",
        "positions": {"name": "learned", "length": 32},
        "width": 48,
        "layers": 1,
        "dropout": 0.0,
        **changed,
    }


def system(name: str, **fields: Any) -> dict[str, Any]:
    """A system behind the same backbone."""
    backbone = {"name": "cnn", "widths": (16, 32), "pooling": "mean"}
    return {"system": {"name": name, "backbone": backbone, **fields}}


def generated() -> dict[str, Any]:
    """Sort-of-CLEVR; an image is read once for its questions."""
    return {
        "batch.size": 16,
        "batch.questions": 20,
        "training.steps": 2500,
        "training.evaluate_every": 500,
    }


def of_files(folder: str) -> dict[str, Any]:
    """The images and questions of a folder, at half their size."""
    if not (expanded(folder) / "train" / "questions.json").is_file():
        find_file(folder, "train_questions.tsv")
    return {
        "data": "easy_vqa",
        "data.directory": folder,
        "data.side": 32,
        "batch.max_length": 12,
        "batch.buckets": (12,),
        "training.steps": 1200,
        "training.evaluate_every": 300,
    }
