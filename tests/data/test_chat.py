"""Chats by templates: the ids of `apply_chat_template` of transformers, text that stays text, and
bounds on what a template may do.
"""

import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from attnlab.commands import generate
from attnlab.data import chat
from attnlab.data.tokenizer import Adopted, Prompt
from attnlab.data.vocabulary import Vocabulary
from tests.data.test_tokenizer import IDS, KINDS, adopted, of_kind
from tests.refusals import check_refused

pytestmark = pytest.mark.skipif(find_spec("jinja2") is None, reason="jinja2 is not installed")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] +"
    " '<|im_end|>' + '\\n' }}{% endfor %}\n{% if add_generation_prompt %}\n"
    "{{ '<|im_start|>assistant\\n' }}\n{% endif %}\n"
)
GOLDEN = {
    "BPE": "1 4 23 21 13 20 6 14 13 16 16 18 5 6 4 11 21 21 15 21 22 11 17 22 6 6",
    "Unigram": "1 4 25 23 21 13 20 6 14 13 16 16 18 5 25 6 4 25 11 21 21 15 21 22 11 17 22 6 6",
    "WordLevel": "1 4 3 31 5 4 3",
    "WordPiece": "1 4 3 31 5 4 3",
}
"""What transformers 5.24 gives for "hello" as a user's message."""
BLANK = 25  # the id of a blank in the Unigram


def ids_of(line: str, folder: Path, messages: bool = False) -> list[int]:
    (actual,) = chat.prompts(adopted(folder), [line], "messages" if messages else "user")
    assert isinstance(actual, Prompt) and (actual, actual.context) == (line, "")
    return actual.ids


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_reference(kind: str, tmp_path: Path) -> None:
    folder = of_kind(kind, tmp_path, chat_template=TEMPLATE)
    expected = [*map(int, GOLDEN[kind].split())]
    assert ids_of("hello", folder) == expected
    message = json.dumps([{"role": "user", "content": "hello", "name": None}])
    assert chat._messages(message, 1) == [{"role": "user", "content": "hello"}]
    assert ids_of(message, folder, True) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_user_says_stays_text(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the template writes special tokens, each as often as in an innocent chat; it is rendered
    in this process.
    """

    def rendered(template: str, tokens: Any, chats: Any) -> list[str]:
        return [chat._render(template, tokens, messages) for messages in chats]

    monkeypatch.setattr(chat, "rendered", rendered)
    folder = of_kind(kind, tmp_path, chat_template=TEMPLATE)
    lines = ["hello", "<|im_end|>", "hello<|im_start|> <pad>", "</s>"]
    actual: Any = chat.prompts(adopted(folder), lines, "user")
    innocent = actual[0].ids
    for line in actual[1:]:
        for name in {*IDS} - {"<unk>"}:
            assert line.ids.count(IDS[name]) == innocent.count(IDS[name]), (line, name)
        if kind == "Unigram":  # nor is a blank put before what stands behind such a name
            assert line.ids.count(BLANK) == innocent.count(BLANK) + line.count(" ")


def test_where_a_template_stands(tmp_path: Path) -> None:
    """In a file of its own, in tokenizer_config.json, or there for each purpose; kept with a run."""
    folder = of_kind("BPE", tmp_path / "one", chat_template=TEMPLATE)
    expected = ids_of("hello", folder)
    listed = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    assert ids_of("hello", of_kind("BPE", tmp_path / "two", chat_template=listed)) == expected
    apart = of_kind("BPE", tmp_path / "three")
    check_refused("--chat: the folder of this model had no chat template", ids_of, "hello", apart)
    (apart / "chat_template.jinja").write_text(TEMPLATE)
    vocabulary = adopted(apart)
    vocabulary.save(tmp_path / "kept.json")
    kept = Vocabulary.load(tmp_path / "kept.json")
    assert isinstance(kept, Adopted) and chat.prompts(kept, ["hello"], "user")[0].ids == expected  # type: ignore[attr-defined]
    (folder / "chat_template.jinja").write_text("another")
    check_refused(r"has another chat_template than chat_template\.jinja", adopted, folder)
    words = "chat_template is no text"
    check_refused(words, adopted, of_kind("BPE", tmp_path / "four", chat_template=3))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "more than 1 s"),
        ("{{ 'x' * 10**10 }}", "MemoryError|want of 1,073,741,824 bytes"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ raise_exception('no system') }}", "TemplateError: no system"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ nothing + 'x' }}", "UndefinedError"),
    ],
)  # fmt: skip
def test_a_template_has_bounds(template: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "SECONDS", 1.0)
    began = time.monotonic()
    words = f"the chat template of this model fails: .*({words})"
    check_refused(words, chat.rendered, template, {}, [[{"role": "user", "content": "hello"}]])
    assert time.monotonic() - began < 50


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ ''.__class__.__mro__ }}", "attribute '__class__' of 'str' object is unsafe"),
        ("{{ messages.append(1) }}", "attribute 'append' of 'list' object is unsafe"),
        ("{% for a in range(50000) %}{{ 'x' * 99 }}{% endfor %}", "more than 1,048,576 characters"),
    ],
)
def test_a_template_changes_nothing_and_sees_what_it_is_given(template: str, words: str) -> None:
    """In this process, where it needs no bound on time or memory."""
    with pytest.raises(Exception, match=words):
        chat._render(template, {}, [{"role": "user", "content": "hello"}])


def test_what_renders_templates_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Path(generate.__file__).read_text()  # the help has the bounds
    assert f"{chat.SECONDS:g} s and may write {chat.CHARACTERS:,} characters" in text
    monkeypatch.setattr(chat, "find_spec", lambda name: None)
    words = r"--chat needs jinja2: pip install 'attnlab\[chat\]'"
    check_refused(words, chat.rendered, TEMPLATE, {}, [])


def test_what_templates_count_on() -> None:
    """Tags, filters and functions of transformers; white space as there."""
    template = (
        "{% generation %}\n{{ messages[0] | tojson }}{% endgeneration %}\n"
        "  {% for m in messages %}\n{{ strftime_now('%Y')[:2] }}{% break %}{% endfor %}"
    )
    assert chat.rendered(template, {}, [[{"content": "ä"}]]) == ['{"content": "ä"}20']


@pytest.mark.parametrize("line", ["hello", "[]", "[3]", '[{"content": "x"}]', '{"role": "user"}'])
def test_what_holds_no_messages(line: str, tmp_path: Path) -> None:
    folder = of_kind("BPE", tmp_path, chat_template=TEMPLATE)
    words = "message 1: (no JSON|expected a list of messages)"
    check_refused(words, chat.prompts, adopted(folder), [line], "messages")


def test_lines_with_names_of_special_tokens(tmp_path: Path) -> None:
    vocabulary = adopted(of_kind("BPE", tmp_path))
    actual: Any = chat.prompts(vocabulary, ["hello<|im_end|>", ""], "special")
    assert actual[0].ids[-1] == 5 and actual[0].context == "hello<|im_end|>" and actual[1] == ""
    words = "'<pad>' has no token, or padding among"
    check_refused(words, chat.prompts, vocabulary, ["<pad>"], "special")
    own = Vocabulary.train(["a b a b"], "word")
    words = "the vocabulary of this run has been learned here"
    check_refused(words, chat.prompts, own, ["a"], "special")
