"""Lines as prompts of a model from elsewhere: with special tokens by their names, or as messages in
its chat template.

A template is a program that somebody else wrote. It runs in jinja2's immutable sandbox, in a process
of its own with `MEMORY` bytes, for `SECONDS` at most, and gives `CHARACTERS` at most. What messages
say stays text: only the template writes special tokens.
"""

import datetime
import json
import multiprocessing
import resource
import secrets
import signal
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any, Literal

from attnlab.data.json_files import parse_json
from attnlab.data.tokenizer import Adopted, Prompt
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError

SECONDS, CHARACTERS, MEMORY = 5.0, 2**20, 2**30
_START = 120.0  # seconds until a process has begun, on a machine with much to do
Message = Mapping[str, Any]


def prompts(
    vocabulary: Vocabulary, lines: Sequence[str], kind: Literal["special", "user", "messages"]
) -> list[str]:
    """Returns the lines, each that is not blank encoded as a `Prompt`, with special tokens by name
    for the kind "special", else through the chat template of the model (a line is a user's message
    or a JSON list of messages); raises `UserError` if that fails.

    Args:
      vocabulary: a tokenizer from elsewhere.
      lines: of kind "special" with special tokens by their names; "user" each what a user says;
        "messages" each a JSON list of messages with role and content.
      kind: what lines are.

    Raises:
      UserError: a vocabulary that has been learned here, or without a chat template; no jinja2; a
        line that spells padding or holds no messages; a template that fails, takes too long or
        writes too much.
    """
    if not isinstance(vocabulary, Adopted):
        raise UserError(
            "--special and --chat are for models with a tokenizer from elsewhere; the vocabulary of"
            " this run has been learned here"
        )
    texts = [line for line in lines if line.strip()]
    if kind == "special":
        rows = [vocabulary.named(text) for text in texts]
    elif not vocabulary.chat:
        raise UserError(
            "--chat: the folder of this model had no chat template, in tokenizer_config.json or"
            " chat_template.jinja; --special takes special tokens by their names"
        )
    else:
        chats = [
            _messages(text, number) if kind == "messages" else [{"role": "user", "content": text}]
            for number, text in enumerate(texts, start=1)
        ]
        mark = f"\ue000{secrets.token_hex(8)}\ue001"
        chats = json.loads(vocabulary.marked(json.dumps(chats), mark))
        rows = [vocabulary.spelt(text, mark) for text in rendered(**vocabulary.chat, chats=chats)]
    for text, ids in zip(texts, rows, strict=True):
        if vocabulary.special.pad in ids or not ids:
            raise UserError(f"{text!r} has no token, or padding among its tokens")
    encoded = (
        Prompt(text, ids, text if kind == "special" else "")
        for text, ids in zip(texts, rows, strict=True)
    )
    return [next(encoded) if line.strip() else line for line in lines]


def rendered(
    template: str, tokens: Mapping[str, str], chats: Sequence[Sequence[Message]]
) -> list[str]:
    """Renders a chat template on each of several conversations (lists of messages), with `tokens`
    as its variables, and returns the texts; runs it in a child process with limited time and
    memory, and raises `UserError` if that fails.
    """
    if find_spec("jinja2") is None:
        raise UserError("--chat needs jinja2: pip install 'attnlab[chat]'")
    context = multiprocessing.get_context("spawn")
    parent, child = context.Pipe()
    process = context.Process(target=_serve, args=(child, template, tokens, chats), daemon=True)
    process.start()
    child.close()
    try:
        in_time = parent.poll(_START) and parent.recv() is None and parent.poll(SECONDS)
        result: list[str] | str = (
            parent.recv() if in_time else f"it took more than {SECONDS:g} s and was stopped"
        )
    except EOFError:
        result = f"it was killed, for want of {MEMORY:,} bytes of memory perhaps"
    finally:
        process.kill()
        process.join()
    if isinstance(result, str):
        raise UserError(f"the chat template of this model fails: {result}")
    return result


def _messages(line: str, number: int) -> list[Message]:
    """Parses a line of JSON as a list of chat messages and returns them, dicts without null fields;
    raises `UserError`, which names the `number` of the line, unless it is a list, not empty, of
    objects with a "role".
    """
    turns = parse_json(line, f"message {number}")
    if (
        not isinstance(turns, list)
        or not turns
        or not all(isinstance(turn, dict) and isinstance(turn.get("role"), str) for turn in turns)
    ):
        example = '[{"role": "user", "content": "..."}]'
        raise UserError(f"message {number}: expected a list of messages, {example}")
    return [{key: value for key, value in turn.items() if value is not None} for turn in turns]


def _serve(
    pipe: Connection, template: str, tokens: Mapping[str, str], chats: Sequence[Sequence[Message]]
) -> None:
    """Runs in the child process: limits its memory, sends None into the pipe as a start signal, and
    then the list of the conversations `chats` rendered by the template, or the error as a text.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the process that waits for this one
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    pipe.send(None)
    try:
        pipe.send([_render(template, tokens, chat) for chat in chats])
    except Exception as error:
        pipe.send(" ".join(f"{type(error).__name__}: {error}".split())[:200])


def _render(template: str, tokens: Mapping[str, str], messages: Sequence[Message]) -> str:
    """Renders a chat template, with `tokens` as its variables, on the messages of one conversation
    in a sandbox, with the prompt for the next answer at the end; raises `ValueError` above
    `CHARACTERS` characters.
    """
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The tag that says which parts an assistant has written; they are text as all others."""

        tags = {"generation"}

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: Any, **options: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **options})

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    variables = {"tools": None, "documents": None, "add_generation_prompt": True, **tokens}
    text = ""
    for piece in environment.from_string(template).generate(messages=messages, **variables):
        text += piece
        if len(text) > CHARACTERS:
            raise ValueError(f"more than {CHARACTERS:,} characters")
    return text
