"""A language model of ours in the evaluation harness that people use, `lm-eval` of EleutherAI (extra
`[harness]`), on any of its tasks: `evaluate(run, ["my_task"], include="folder")`.

Texts become ids as `transformers` makes them of the same folder, special tokens by their names; what
is scored is as in `attnlab.tasks.scoring`.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from attnlab.api.trained import Run
from attnlab.data.batching import evaluation_batches
from attnlab.data.columns import Examples, Packed
from attnlab.data.tokenizer import Adopted
from attnlab.decoding.settings import validate
from attnlab.errors import UserError, nearest
from attnlab.tasks.decoders import continuing, ending
from attnlab.tasks.language_modelling import LanguageModelling
from attnlab.tasks.scoring import Row, score_rows, widths_of, window_of

_MOST = 256  # tokens of an answer where a task does not say, as in the harness's own back end
_NO_END = 2**20  # tokens that a model reads which has no longest text


class AnswersHarness:
    """A run as the harness asks for a model; behind it stands `TemplateLM` of `lm_eval`, see
    `harness_model`.

    Args:
      run: of a language model.

    Attributes:
      max_length: the tokens that it reads at once.

    Raises:
      UserError: a run of another task.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        if not isinstance(run.task, LanguageModelling):
            raise UserError(
                f"the harness asks language models; the run is of task={run.config.task}"
            )
        self.run, self.task = run, run.task
        self.vocabulary = run.task.data.vocabulary
        self.max_length = window_of(run.task) or _NO_END

    @property
    def eot_token_id(self) -> int:
        """The id of what ends a text."""
        return self.task.special.eos

    @property
    def prefix_token_id(self) -> int:
        """The id of what is read before a text."""
        return self.task.first_id

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **options: Any
    ) -> list[int]:
        """Returns the token ids of a text; the special ids of an adopted tokenizer are put around
        it if `add_special_tokens`, or if that is None and the text does not begin with BOS; any
        other vocabulary ignores `add_special_tokens`.
        """
        if not isinstance(self.vocabulary, Adopted):
            return list(map(int, self.vocabulary.encode_all([string])[0]))
        begun = string.startswith(self.vocabulary.tokens([self.prefix_token_id])[0])
        around = not begun if add_special_tokens is None else add_special_tokens
        return self.vocabulary.named(string, around=around)

    def _loglikelihood_tokens(
        self, requests: Sequence[Any], disable_tqdm: bool = False, **options: Any
    ) -> list[tuple[float, bool]]:
        """Returns, for each request (text, ids of the context, ids of the continuation), log P of
        the continuation and whether greedy search would write it.
        """
        rows = [Row(np.array([*before, *ids], np.int32), len(ids)) for _, before, ids in requests]
        scored = score_rows(self.task, self.run.params, rows)
        return [(float(log_probs.sum()), bool(likeliest.all())) for log_probs, likeliest in scored]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Returns log P of each request's whole text, in windows as long as the model reads."""
        texts = (self.tok_encode(request.args[0]) for request in requests)
        rows = [("", [self.prefix_token_id], ids) for ids in texts]
        return [log_prob for log_prob, _ in self._loglikelihood_tokens(rows)]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Returns, for each request in order, the text that the model writes after the request's
        context, up to the first of the stop texts, or the most tokens, in its options.
        """
        answers = [""] * len(requests)
        kinds = [repr(request.args[1]) for request in requests]
        for kind in dict.fromkeys(kinds):
            numbers = [number for number, other in enumerate(kinds) if other == kind]
            given = requests[numbers[0]].args[1]
            texts = self._generate_all([requests[number].args[0] for number in numbers], given)
            for number, text in zip(numbers, texts, strict=True):
                answers[number] = text
        return answers

    def _generate_all(self, contexts: Sequence[str], given: Mapping[str, Any]) -> list[str]:
        """Returns the model's answer to each text of `contexts`, written with the same generation
        options of `lm_eval` (`given`: most tokens, stop texts, sampling).
        """
        from lm_eval.models.utils import normalize_gen_kwargs

        options = dict(normalize_gen_kwargs(dict(given), _MOST))
        most, temperature = int(options.pop("max_gen_toks")), options.pop("temperature", 1.0)
        if options.pop("do_sample"):
            options |= {"method": "sample", "temperature": temperature}
        else:
            options["method"] = "greedy"
        options |= {"max_ratio": 0.0, "max_extra": most, "batch": self.task.at_once}
        options["stop"] = tuple(filter(None, options.pop("until")))
        settings = validate(options, weights=False)
        room = max(self.max_length - most, 1)
        ids = [self.tok_encode(text)[-room:] or [self.prefix_token_id] for text in contexts]
        source = Packed(ids, self.task.special.pad)
        batches = evaluation_batches(
            Examples(source=source), size=settings.batch, buckets=widths_of(source.lengths)
        )
        decode = self.vocabulary.decode
        ended = ending(settings, decode)
        decoder = continuing(self.task.system, settings, self.task.special, ended)
        written = decoder(self.run.params, batches)
        return [settings.cut(decode(best[0].tokens)) for best in written]


def harness_model(run: Run) -> Any:
    """Returns an `lm_eval` model, to be given to that library's functions, that answers with a run
    of a language model; raises `UserError` for another task or without `lm_eval`.

    Raises:
      UserError: a run of another task, or `lm_eval` is not installed.
    """
    if find_spec("lm_eval") is None:
        raise UserError("the harness needs lm-eval: pip install 'attnlab[harness]'")
    from lm_eval.api.model import TemplateLM

    return type("HarnessModel", (AnswersHarness, TemplateLM), {})(run)


def evaluate(
    run: Run, tasks: Sequence[str], include: str | None = None, **options: Any
) -> dict[str, Any]:
    """Evaluates a run on tasks of `lm_eval`, by name, and returns the dictionary of its
    `simple_evaluate`: "results" by task, "configs", "samples" and others; raises `UserError` for an
    unknown task.

    Args:
      run: of a language model.
      tasks: their names.
      include: a folder with tasks of one's own (YAML files), read before those of the harness.
      options: of `lm_eval.simple_evaluate`: `num_fewshot`, `limit`, `apply_chat_template`, ...

    Raises:
      UserError: a run of another task, or a task that is not known.
    """
    model = harness_model(run)
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=include)
    if unknown := [name for name in tasks if name not in manager.all_tasks]:
        raise UserError(f"no task {unknown[0]!r}; {nearest(unknown[0], manager.all_tasks)}")
    results: dict[str, Any] = simple_evaluate(
        model=model, tasks=list(tasks), task_manager=manager, **options
    )
    return results
