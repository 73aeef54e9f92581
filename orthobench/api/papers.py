"""Reproduce papers: the runs of their tables and figures, small versions of the figures, and studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orthobench.analysis.claims import ClaimCounts, ClaimResult, check_small, count_claims, refuse_wrong_claims
from orthobench.api.sweeps import seed_list, train, with_jobs
from orthobench.display.display import Display
from orthobench.errors import UsageError
from orthobench.options.arguments import AtLeastZero, Database, File, Label, Name, Number, Preset, Seeds, Texts
from orthobench.options.checked import checked
from orthobench.options.run_options import RunOptions
from orthobench.papers import Artifact, Paper, Study, find_paper, find_study, papers
from orthobench.planning.listed import runs_in
from orthobench.planning.paper import resolve_experiments, restrict, small_runs, study_runs
from orthobench.planning.sweep_runs import with_seeds
from orthobench.plugins import Catalog
from orthobench.reporting import write_study
from orthobench.session.session import SweepResult, open_session
from orthobench.session.study_session import train_study
from orthobench.settings.filters import parse_conditions as parse_conditions
from orthobench.system.kinds import refuse_other_kinds
from orthobench.training.device import pick_device


@checked
def reproduce(
    paper: Name,
    *,
    table: Label | None = None,
    figure: Label | None = None,
    models: Texts | None = None,
    where: Mapping[str, Any] | None = None,
    scale: Number = 1.0,
    seeds: Seeds = 1,
    db: Database | None = None,
    jobs: AtLeastZero | None = None,
    options: RunOptions | None = None,
    dry_run: bool = False,
    display: Display | None = None,
) -> SweepResult:
    """Train the runs of a paper, or of one of its tables or figures, with the paper's settings.

    Args:
        paper: the key of the paper, such as "helfrich2018".
        table: the number or name of a table.
        figure: the number or name of a figure.
        models: restrict to these models.
        where: restrict to runs with these settings; `task` counts as a setting, and commas separate alternatives.
        scale: factor on epochs, lengths and data. Scaled runs are never shown as runs of the paper.

    Raises:
        UsageError: the paper has no such table, figure, model or setting, its file has a wrong claim, or as for
            `sweep`.
        StorageError: the database cannot be written.
        Stopped: the user pressed Ctrl-C; the same call resumes the runs.
    """
    options = with_jobs(options, jobs)
    source = find_paper(paper)
    refuse_wrong_claims(source)  # before any training, after which the report needs them
    experiments = restrict(source, table, figure, models, where)
    runs = resolve_experiments(Catalog(options.plugins), experiments, seed_list(seeds), scale)
    return train(runs, db, options, dry_run, display)


@checked
def reproduce_file(
    path: File,
    *,
    db: Database | None = None,
    jobs: AtLeastZero | None = None,
    options: RunOptions | None = None,
    dry_run: bool = False,
    display: Display | None = None,
) -> SweepResult:
    """Train the runs that a TOML file lists, in the order of the file: of papers, studies and tasks.

    Entries for a GPU are left out on a CPU.

    Raises:
        UsageError: the file is invalid, or as for `reproduce`.
        StorageError: the database cannot be written.
        Stopped: the user pressed Ctrl-C; the same call resumes the runs.
    """
    options = with_jobs(options, jobs)
    runs = runs_in(path, Catalog(options.plugins), pick_device(options.device).type)
    return train(runs, db, options, dry_run, display)


@dataclass(frozen=True)
class SmallResult:
    """The results of the small versions of figures.

    Attributes:
        sweep: the result of their runs.
        figures: for each figure the paper, the description, and the result of each claim.
    """

    sweep: SweepResult
    figures: list[tuple[Paper, Artifact, list[ClaimResult]]]

    @property
    def claim_results(self) -> list[ClaimResult]:
        return [result for _, _, results in self.figures for result in results]

    @property
    def claim_counts(self) -> ClaimCounts:
        return count_claims(self.claim_results)

    @property
    def claims_held(self) -> bool:
        """Whether all claims held for the seeds that were trained."""
        return all(result.conclusion == "held" for result in self.claim_results)


@checked
def reproduce_small(
    paper: Name | None = None,
    *,
    seeds: Seeds = 1,
    db: Database | None = None,
    jobs: AtLeastZero | None = None,
    options: RunOptions | None = None,
    dry_run: bool = False,
    display: Display | None = None,
) -> SmallResult:
    """Train small versions of the papers' figures, and check their claims; this takes about five minutes on two cores.

    Args:
        paper: restrict to the figures of this paper.

    Raises:
        UsageError: the paper is unknown or has no small figures, its file has a wrong claim, or as for `sweep`.
        StorageError: the database cannot be written.
        Stopped: the user pressed Ctrl-C; the same call resumes the runs.
    """
    options = with_jobs(options, jobs)
    catalog = Catalog(options.plugins)
    selected = [find_paper(paper)] if paper else papers()
    figures = [(source, artifact) for source in selected for artifact in source.artifacts() if artifact.small]
    if not figures:
        raise UsageError(f"{paper} has no small versions of figures: use `orthobench reproduce {paper}`")
    for source in selected:
        refuse_wrong_claims(source)  # before any training
    seeds = seed_list(seeds)
    runs = [with_seeds(small_runs(catalog, source, artifact), seeds) for source, artifact in figures]
    unique = {run.config.spec.key: run for own in runs for run in own}
    with open_session(db, options, display, dry_run, [[run.config for run in unique.values()]]) as session:
        result = session.sweep(list(unique.values()), dry_run)
        if dry_run:
            return SmallResult(result, [])
        checked = [
            (source, artifact, check_small(session.open_store, artifact, [run.config.spec.key for run in own]))
            for (source, artifact), own in zip(figures, runs, strict=True)
        ]
    return SmallResult(result, checked)


@dataclass(frozen=True)
class StudyResult:
    """The result of a study.

    Attributes:
        study: the description of the study.
        sweep: the result of its runs; None if the study computes or measures instead of training.
        page: the file with the figures; None in a dry run.
    """

    study: Study
    sweep: SweepResult | None
    page: Path | None


@checked
def study(
    name: Name,
    *,
    preset: Preset = "paper",
    seeds: Seeds = 1,
    out: File | None = None,
    db: Database | None = None,
    jobs: AtLeastZero | None = None,
    options: RunOptions | None = None,
    dry_run: bool = False,
    display: Display | None = None,
) -> StudyResult:
    """Run a paper's study of what happens inside models, and write the page with its figures.

    Args:
        name: the name of the study, such as "orthogonality".
        out: the page; None for reports/study-NAME.html.

    Raises:
        UsageError: the study is unknown, or as for `sweep`.
        StorageError: the database or the page cannot be written.
        Stopped: the user pressed Ctrl-C; the same call resumes the runs.
    """
    options, description = with_jobs(options, jobs), find_study(name)
    catalog = Catalog(options.plugins)
    runs, figures = study_runs(description, catalog, preset, seed_list(seeds))
    page = out or Path("reports") / f"study-{description.name}.html"
    refuse_other_kinds(page, "HTML")  # before any training
    with open_session(db, options, display, dry_run, [[run.config for run in runs]]) as session:
        if dry_run:
            planned = session.sweep(runs, dry_run, estimate=True) if runs else None
            return StudyResult(description, planned, None)
        result = train_study(session, description, catalog, preset, runs, figures)
        page = write_study(session.open_store, page, description)
    return StudyResult(description, result, page)
