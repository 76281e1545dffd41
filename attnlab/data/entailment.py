"""Made-up inference between two sentences: does the second follow from the first, contradict it, or
neither?

    anna sings and ben does not doze      ben does not sleep     entailment
    anna sings and ben does not doze      anna does not sing     contradiction
    anna sings and ben does not doze      anna sleeps            neutral

Every action has two words that mean the same. What is asked for in a neutral pair is the action of
somebody else in the first sentence half the time, so that who does what has to be kept together.
Neither sentence alone says anything about the label: persons, actions and negation are drawn in the
same way for all three.
"""

import random
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from attnlab.data.generated import Sized

LABELS = ("entailment", "neutral", "contradiction")
PERSONS = ("anna", "ben", "clara", "david", "emma", "felix", "greta", "hugo")
# Two words for one action, each as (it ...s, does not ...).
ACTIONS = (
    (("sings", "sing"), ("chants", "chant")),
    (("sleeps", "sleep"), ("dozes", "doze")),
    (("runs", "run"), ("jogs", "jog")),
    (("talks", "talk"), ("speaks", "speak")),
    (("laughs", "laugh"), ("giggles", "giggle")),
    (("waits", "wait"), ("lingers", "linger")),
)


class Clause(NamedTuple):
    """Somebody does something, or does not; numbers index the tables above, `word` one of the two
    words of the action.
    """

    person: int
    action: int
    denied: bool
    word: int

    def __str__(self) -> str:
        says, bare = ACTIONS[self.action][self.word]
        return f"{PERSONS[self.person]} {f'does not {bare}' if self.denied else says}"


@dataclass(frozen=True)
class Entailment(Sized):
    """Pairs of a premise of `clauses` clauses and a hypothesis of one; all three labels are equally
    likely.

    A premise's split follows from its own hash (90/5/5), so no premise is in two splits, whatever
    the seeds.

    Attributes:
      clauses: how many clauses a premise has; of different persons and different actions.

    Raises:
      UserError: a number of clauses out of range.
    """

    clauses: int = 2

    sentences: ClassVar[int] = 2
    limits = {"clauses": (2, len(ACTIONS) - 1)}

    def labelled(self, split: str) -> list[tuple[tuple[str, ...], str]]:
        """Draws the examples of `split` as ((premise, hypothesis), label): a text of several
        clauses, a clause, and "entailment", "neutral" or "contradiction".
        """
        draw = random.Random(f"entailment {self.seed} {split}")
        examples: list[tuple[tuple[str, ...], str]] = []
        for facts in self.apart(split, lambda: self._facts(draw), _premise):
            label = LABELS[draw.randrange(3)]
            examples.append(((_premise(facts), str(_hypothesis(facts, label, draw))), label))
        return examples

    def _facts(self, draw: random.Random) -> list[Clause]:
        """Draws the clauses of a premise, with different persons and different actions, each denied
        with probability 1/2.
        """
        persons, actions = (
            draw.sample(range(len(table)), self.clauses) for table in (PERSONS, ACTIONS)
        )
        return [
            Clause(*pair, draw.random() < 0.5, draw.randrange(2))
            for pair in zip(persons, actions, strict=True)
        ]


def _premise(facts: list[Clause]) -> str:
    return " and ".join(map(str, facts))


def _hypothesis(facts: list[Clause], label: str, draw: random.Random) -> Clause:
    """Draws a clause about a person of the premise whose clauses are `facts`: one that they imply,
    contradict or leave open, as the label says.
    """
    person, action, denied, _ = draw.choice(facts)
    word = draw.randrange(2)
    if label != "neutral":
        return Clause(person, action, denied == (label == "entailment"), word)
    mentioned = [fact.action for fact in facts if fact.action != action]
    absent = [other for other in range(len(ACTIONS)) if other != action and other not in mentioned]
    return Clause(
        person, draw.choice(mentioned if draw.random() < 0.5 else absent), draw.random() < 0.5, word
    )
