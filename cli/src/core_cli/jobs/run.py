"""Runs all rows block by block, writes the results and prints a summary."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import click

from core.kit.support import compares_sentences
from core.system import outputs
from core_cli import exits, interrupts, output, reports, suggestions
from core_cli.jobs import identity, job
from core_cli.jobs.gold import Gold
from core_cli.jobs.job import Job
from core_cli.jobs.summary import Failures, Summary
from core_cli.loading import Loaded, explain, load
from core_cli.rows import checks, input, joining, preview, requests, stdout
from core_cli.rows.asker import Asker, Identities, Known, RowAsker, blocks
from core_cli.values import Answered, Ask, Cost
from core_cli.writing.answers import Layout
from core_cli.writing.encoders import encoder
from core_tasks import svg

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core.protocols import Capability, TextModel
    from core_cli.flags import RowFlags
    from core_cli.jobs.gold import ManyGold
    from core_cli.jobs.summary import AnswerMetrics
    from core_cli.reading.row import Fields
    from core_cli.values import Kind
    from core_tasks.template import Template

# A resumed job lacks the prefix cache of earlier blocks, which changes the last digits.
_STEADY = {"prefix_cache": 0}


@dataclass(frozen=True, slots=True)
class RowJob:
    """The work of a command on each row.

    ``ask`` returns a model's operation, ``generate`` the one for batch requests, ``fitted`` the
    options adapted to the backend. ``room`` returns the number of context tokens that a shortened
    prompt leaves free. ``question`` identifies a task, head or evaluation beyond the flags, and
    ``shown`` turns a row's prompt into its prompt, ``around`` into the longest one that is run.
    ``labelled`` has the labels, and how they are joined to such a prompt; None without labels.
    ``gold`` compares the answers with a field of the input, ``marks`` in another way.

    ``fields`` name the fields of a row, and ``asker`` handles rows that need more than the text.
    ``block`` is the number of rows per block; by default blocks grow. ``steady`` disables caches
    between calls, so that measurements are independent. ``instead`` is a capability that serves as
    well as ``needed``.
    """

    command: str
    needed: Capability
    config: GenerateConfig
    kind: Kind
    ask: Callable[[Loaded], Ask]
    generate: Callable[[Loaded], Ask]
    fitted: Callable[[Loaded, GenerateConfig], GenerateConfig] = lambda loaded, config: config
    room: Callable[[Loaded], int] = lambda loaded: 1
    question: str | None = None
    shown: Callable[[str], str] = str
    around: Callable[[str], str] | None = None
    labelled: GenerateConfig | None = None
    gold: Callable[[str], Gold | ManyGold] = Gold
    marks: AnswerMetrics | None = None
    fields: Fields | None = None
    asker: Callable[[Loaded], RowAsker] | None = None
    block: int | None = None
    steady: bool = False
    instead: Capability | None = None


def run(flags: RowFlags, row_job: RowJob) -> None:
    """Run all rows and write the results to stdout, or as a job to a file.

    Raises `CommandFailed` when some rows failed.
    """
    template = checks.template_of_rows(flags)
    if flags.output is not None:
        job.check_input(flags.file or "-")
    with ExitStack() as stack:
        rows = stack.enter_context(input.opened(flags, template, row_job.fields))
        if rows.form == requests.FORM:
            checks.refuse_for_requests(flags)
        work = _job(stack, flags, template, row_job)
        if work is not None and work.finished:
            work.tidy()
            output.say(f"{work.path} is already complete.")
            return

        if work is None and flags.file not in (None, "-") and input.is_empty(rows):
            output.warn(f"no prompts in {flags.file}")
            return  # without a wait for the model

        stack.enter_context(interrupts.terminating())
        with output.loading(flags.model, _progress_of(flags)):
            usual = _STEADY if row_job.steady or work is not None else None
            needs = row_job.needed, usual, row_job.instead
            loaded = load(flags.need_model(), flags.load_config(), *needs)
        stack.enter_context(loaded.model)
        if flags.verbose:
            explain(loaded)
        if work is not None:
            work.know(loaded)

        asker = _asker(flags, loaded, template, row_job, rows)
        if flags.show_prompt:
            sentences = compares_sentences(loaded.model)
            preview.show(asker, rows.rows, row_job.shown, row_job.labelled, sentences=sentences)
        elif flags.dry_run:
            preview.estimate(asker, rows.rows, loaded)
        else:
            with _unlikely_labels_unlogged():
                _Run(flags, row_job, asker, rows, work, loaded.model).run()


def _job(
    stack: ExitStack, flags: RowFlags, template: Template | None, row_job: RowJob
) -> Job | None:
    if flags.output is None:
        return None
    source = None if template is None else template.source
    form = flags.output_form
    facts = {
        "to": form,
        "task": row_job.question,
        **identity.identity(row_job.command, flags, source, row_job.config),
    }
    return stack.enter_context(job.opened(flags, facts))


def _asker(
    flags: RowFlags,
    loaded: Loaded,
    template: Template | None,
    row_job: RowJob,
    rows: input.Input,
) -> RowAsker:
    if row_job.asker is not None:
        return row_job.asker(loaded)
    if rows.form == requests.FORM:
        created = 0 if rows.name == "stdin" else int(os.stat(rows.name).st_mtime)
        chat = flags.uses_template()
        return requests.RequestAsker(
            loaded, row_job.generate(loaded), row_job.config, chat, created
        )
    config = row_job.fitted(loaded, row_job.config)
    # With a task or head, the labels follow its prompt, not the row's.
    labels = bool(config.labels) and row_job.question is None
    room = row_job.room(loaded)
    maker = input.prompt_maker(
        flags, loaded, template, config, room, labels=labels, question=row_job.around
    )
    # Duplicate prompts have equal answers unless tokens are sampled.
    known = Known() if flags.dedupe and config.temperature == 0 else None
    return Asker(loaded.model, row_job.ask(loaded), row_job.kind, maker, config, known)


def _progress_of(flags: RowFlags) -> bool | None:
    """Return whether to show progress; the output of a job does not use the terminal."""
    if flags.progress is None and flags.output is not None:
        return sys.stderr.isatty()
    return flags.progress


@contextmanager
def _unlikely_labels_unlogged() -> Iterator[None]:
    """Silence the log about unlikely labels: the summary reports them with numbers."""
    logger = logging.getLogger("core_runtime.label_mass")
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


class _Run:
    """The run over the rows of one input."""

    def __init__(
        self,
        flags: RowFlags,
        row_job: RowJob,
        asker: RowAsker,
        rows: input.Input,
        work: Job | None,
        model: TextModel,
    ) -> None:
        self._flags, self._row_job, self._asker, self._model = flags, row_job, asker, model
        self._rows, self._job = rows, work
        self._layout = Layout(asker.kind, flags.keep, alone=rows.form == requests.FORM)
        self._form = flags.to or ("jsonl" if flags.as_json or self._layout.alone else None)
        self._failures = Failures(explained=work is not None or self._form is None)
        gold = None if flags.gold is None else row_job.gold(flags.gold)
        self._summary = Summary(
            row_job.config.labels, row_job.marks or gold, suggestions.calibrate_command(flags)
        )
        self._count = input.RowCount(rows.share)
        self._progress = output.Progress(self._count.text, _progress_of(flags))
        self._stop = interrupts.Stop(self._say_that_it_stops)
        self._identities = Identities()

    def run(self) -> None:
        """Answer all rows, then print a summary."""
        with self._progress:
            try:
                self._to_stdout() if self._job is None else self._to_file(self._job)
            except (click.ClickException, exits.CommandFailed):
                raise  # resuming would end the same
            except (KeyboardInterrupt, Exception) as error:
                self._progress.clear()
                if not isinstance(error, BrokenPipeError):
                    self._say_how_to_go_on()
                raise
        self._failures.end()
        self._conclude()

    def _to_stdout(self) -> None:
        sink = stdout.sink(self._layout, self._form)
        for block in blocks(self._rows.rows, self._rows.more_waits, self._row_job.block):
            output.check_reader()
            with interrupts.noted(self._stop):
                start = time.perf_counter()
                answered_rows, cost = self._asker.answered(block, self._stop.asked)
                done = self._done(answered_rows)
                self._progress.clear()
                sink.write(done)
                self._note(done, cost, time.perf_counter() - start)
            self._stop.raise_asked()
        sink.end()

    def _done(self, rows: list[Answered]) -> list[Answered]:
        """Return the rows that were answered before the user stopped the run.

        Rows run by length, so that the finished ones end at the first cancelled row.
        """
        if not self._stop.asked.is_set():
            return rows
        return list(takewhile(lambda row: not row.cancelled, rows))

    def _to_file(self, work: Job) -> None:
        """Write complete blocks only: a signal waits for the block's end, a second one drops it."""
        coder = encoder(work.form, self._layout)
        never = threading.Event()
        if work.form == "text":
            self._asker.forget()  # a line of text is too little to restore an answer

        with work.opened(coder) as writer:
            # Blocks in the journal are read back, the others are computed.
            rest = blocks(self._rows.rows, size=self._row_job.block)
            self._count.skip(writer.recall(rest, self._asker, self._summary, self._identities))
            for block in rest:
                self._stop.raise_asked()  # not after the last block, when the output is complete
                with interrupts.noted(self._stop):
                    start = time.perf_counter()
                    answered_rows, cost = self._asker.answered(block, never)
                    seconds = time.perf_counter() - start
                    writer.write(answered_rows, cost, seconds)
                    self._note(answered_rows, cost, seconds)
            writer.end()
        work.finish(self._layout.columns(()))

    def _note(self, rows: Sequence[Answered], cost: Cost, seconds: float) -> None:
        self._progress.clear()
        self._failures.add(rows)
        self._identities.note(row.row for row in rows)
        counted = [self._asker.kind.counted(row.answer) for row in rows]
        self._summary.add([row.row for row in rows], counted)
        self._summary.spend(cost, seconds)
        self._count.add(len(rows), self._summary.failed, self._summary.counts)
        self._progress.show()

    def _say_that_it_stops(self) -> None:
        when = "" if self._job is None else " after this block of rows"
        output.say(f"Stopping{when}; Ctrl-C again leaves at once.")

    def _say_how_to_go_on(self) -> None:
        done = output.counted(self._count.done, "row")
        if self._job is None:
            output.say(f"Interrupted: {done} written, in input order.")
        else:
            command = suggestions.resume_command()
            output.say(f"Interrupted: {done} written to {self._job.path}. Resume with:\n{command}")

    def _conclude(self) -> None:
        """Print the summary, write the report, and raise for failed rows."""
        self._summary.doubts.joining = self._joining()
        if not self._summary.rows:
            output.warn(f"no prompts in {self._rows.name}")
        elif self._job is not None or self._flags.verbose or self._summary.gold:
            self._summary.tell()
        else:
            self._summary.tell_doubts()
        if isinstance(self._summary.gold, Gold):
            self._say_what_to_try(self._summary.gold)
        if self._flags.report:
            self._write_report(self._flags.report)
        if self._flags.plot:
            gold = self._summary.gold
            assert isinstance(gold, Gold)  # --plot is rejected for multi-label tasks
            outputs.write(self._flags.plot, gold.picture(), svg.KIND)
        if self._summary.failed:
            rows = output.counted(self._summary.rows, "row")
            message = f"{self._summary.failed} of {rows} failed."
            raise exits.CommandFailed(message, exits.ROWS_FAILED)

    def _say_what_to_try(self, gold: Gold) -> None:
        """Print what to try next if the accuracy is not shown to be better than guessing."""
        from core_cli import yardsticks

        interval = gold.agreement.to_dict()["accuracy_interval"]
        of = "head" if self._flags.head else "prompt"
        if interval is not None:
            yardsticks.say_next(gold.baseline, interval[0], self._flags, of=of)

    def _write_report(self, file: str) -> None:
        """Write the summary to the file of ``--report``, replacing an earlier one."""
        facts = {
            "command": self._row_job.command,
            "model": self._flags.model,
            "backend": self._asker.backend,
            "input": self._flags.file or "-",
            "output": self._flags.output or "-",
            "labels": list(self._row_job.config.labels),
            **self._summary.to_dict(),
        }
        reports.save(file, facts)

    def _joining(self) -> str | None:
        """Return advice on joining labels to prompts, if that makes unlikely ones likelier."""
        rendered = [self._asker.prompt(row) for row in self._summary.doubts.rows]
        prompts = [self._row_job.shown(prompt) for prompt in rendered if isinstance(prompt, str)]
        if self._row_job.labelled is None or not prompts:
            return None
        return joining.advice(self._model, prompts, self._row_job.labelled)
