"""The flags of `sweep`, some of which `work` has too, and the meaning of their values."""

import argparse

from attnlab.errors import UserError
from attnlab.experiments.define import default_directory as default_directory
from attnlab.experiments.run import Part, WorkOptions, ray, slots, slurm
from attnlab.flags import add_flags, add_number
from attnlab.records import tracking

EPILOG = """\
An experiment file defines get_experiment(argument) -> attnlab.experiments.Experiment; experiments/quickstart.py is a short one.
Every candidate and seed is a trial in DIR/trials, trained in a process of its own: a GPU each where there are some, else a core
each. Ctrl-C once lets trials save and stops, twice kills them. Nothing that is done is run again.
Another machine joins by 'work DIR'; 'status DIR' shows how far all is, and 'stop DIR TRIAL' ends one trial for good.
--config.a.b=value changes a setting of all variants; what the command line changes is part of the experiment.

Without a file, --config names the config, and the flags below what is compared and tuned; the experiment is written to DIR as a file:
  sweep --config=configs/translation.py:rnnsearch --grid system.attention.score=dot,additive --tune schedule.peak=1e-3,3e-3 --seeds=5
A value with a comma of its own stands in brackets: --grid "batch.buckets=(16,32),(64,)"."""
STACK = (
    "train trials that differ in seed or numbers only as one program (auto: where trials have GPUs)"
)
DEVICES = (
    "GPUs of a trial, or devices that XLA makes of its cores (default: the largest parallel.devices"
    " of the configs, else one GPU)"
)
SLOTS = "trials at a time (default: one a GPU, else one a core or --cores-per-trial)"
CORES = (
    "cores of a trial on CPUs, kept in the plan: they decide how sums round (default:"
    " cores by slots, of the machine that plans)"
)
LEAVING = (
    "seconds that a trial that is asked to leave has to save, more while it compiles; then it is"
    f" killed (default: {WorkOptions.grace:g})"
)
TIMEOUT = (
    "a trial that takes longer, all its attempts together, is stopped and has failed (default:"
    " none)"
)

KEEP = "what stays of a trial that is done: all states (default), the one used, or its parameters"
VARIED = {
    "--grid=KEY=V,V": "compared: every combination is a row of the report; up to 10,000, with --tune",
    "--without=KEY,KEY": (
        "compared: the whole, it without each of these settings, and without all; KEY=V puts V there"
    ),
    "--tune=KEY=V,V": "tried for every row; validation chooses",
    "--search=KEY=RANGE": "searched for every row: log_uniform(1e-4,1e-2)",
}
MEASURE = "what is reported (default: by the task, such as accuracy or bleu)"
SEEDS = (
    "so many, from 0, 1 to 1,000, or a list of 0 to 4,294,967,295: 0,1,2 (the seed 7 alone: 7,);"
    " instead of the file's"
)
OF_MACHINE = {
    "--accept-cores": "run trials on fewer cores than planned: slow, and the report says it"
}
OF_PART = {
    "--only=GLOB[,GLOB]": "run only these variants, candidates or trials now; chosen is among all",
    "--skip=GLOB[,GLOB]": "do not run these now",
}
EXECUTORS = ("local", "slurm", "ray")
OF_FAILED = {
    "--retry-failed": "run trials again that have failed",
    "--accept-failed": "choose without trials that have failed, and record it",
}
OF_PLAN = {
    "--no-final": "stop before anything is chosen and the test split is read",
    "--dry-run": "show the plan, run and write nothing; a sweep that follows need not plan again",
    "--accept-unmatched": "train variants that miss the experiment's budget, and record it",
    "--change-plan": "leave out trials that have begun, where file or command line now do",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `sweep` to its parser, such as the experiment, its folder, seeds,
    resources, and options of SLURM and Ray.
    """
    from attnlab.commands import session

    parser.add_argument("file", nargs="?", metavar="FILE.py[:ARGUMENT]", help="the experiment")
    group = parser.add_argument_group("an experiment without a file")
    add_flags(group, {"--config=FILE.py:ARGUMENT": "the config of all"})
    add_flags(group, VARIED, action="append", default=[])
    meaning = "settings that a search tries for each row (default: 16)"
    add_number(group, "--trials", 1, 10**5, meaning)
    add_flags(group, {"--pruner=halving": "stop settings of a search early"})
    add_flags(group, {"--measure=NAME": MEASURE}, default="")
    add_flags(parser, {"--dir=DIR": "where the sweep is kept (default: runs/<name of the file>)"})
    add_flags(parser, {"--seeds=N": SEEDS})
    add_number(parser, "--cores-per-trial", 1, slots.MOST_SLOTS, CORES)
    add_running(parser)
    add_flags(parser, OF_FAILED)
    meaning = "where trials run (default: local)"
    parser.add_argument("--executor", choices=EXECUTORS, default="local", help=meaning)
    parser.add_argument("--stack", choices=("auto", "on", "off"), default="auto", help=STACK)
    parser.add_argument("--keep", choices=("all", "best", "best-params"), help=KEEP)
    add_flags(parser, OF_PLAN)
    session.add_acceptance(parser)
    slurm.add_arguments(parser)
    ray.add_arguments(parser)
    parser.epilog = EPILOG


def add_running(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that choose which trials run, with which resources and time limits, and who
    tracks them, for `sweep` and `work`.
    """
    add_number(parser, "--slots", 1, slots.MOST_SLOTS, SLOTS)
    add_flags(parser, OF_MACHINE)
    add_number(parser, "--devices-per-trial", 1, slots.MOST_SLOTS, DEVICES)
    add_flags(parser, OF_PART)
    add_number(parser, "--trial-timeout", 0.001, 1e6, TIMEOUT, metavar="MINUTES")
    add_number(parser, "--grace", 0.1, 86400.0, LEAVING, metavar="SECONDS")
    tracking.add_flag(parser)


def work_options(arguments: argparse.Namespace) -> WorkOptions:
    """Returns the `WorkOptions` of a worker (trials to run, time limit and grace in seconds,
    whether fewer cores than planned are accepted) from the flags of `add_running`.
    """
    minutes = arguments.trial_timeout
    return WorkOptions(
        Part.of(arguments.only, arguments.skip),
        limit=None if minutes is None else 60 * minutes,
        grace=WorkOptions.grace if arguments.grace is None else arguments.grace,
        accept_cores=arguments.accept_cores,
    )


def seeds(listed: str | None) -> tuple[int, ...]:
    """Parses `--seeds` to a tuple: "0,1,2" gives these seeds, "7," the seed 7 alone, a single
    number N (at most 1000) the seeds 0 to N - 1, None gives (); raises `UserError` for anything
    else.

    Raises:
      UserError: neither a number of at least 1 nor whole numbers with commas between.
    """
    if listed is None:
        return ()
    try:
        numbers = tuple(int(number) for number in listed.removesuffix(",").split(","))
    except ValueError:
        raise UserError(
            f"--seeds={listed}: expected a number of seeds, or whole numbers with commas between,"
            " such as 0,1,2"
        ) from None
    if "," in listed:
        return numbers
    if not 1 <= numbers[0] <= 1000:
        raise UserError(
            f"--seeds={listed}: expected how many, from 1 to 1000; the seed {listed} alone is"
            f" --seeds={listed},"
        )
    return tuple(range(numbers[0]))
