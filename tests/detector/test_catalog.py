"""The catalog is consistent, names only settings that exist, and its signatures tell the known faults apart."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest

from detector.catalog import (
    CATALOG_FILE,
    CATEGORIES,
    VARIABLE,
    Catalog,
    load_catalog,
    parse_catalog,
    render_markdown,
)
from detector.knobs import load_knobs
from features.errors import CatalogError

PROMISED = """
communication/collective-stall communication/collective-timeout communication/nccl-error
communication/nccl-remote-error communication/socket-fallback communication/network-bandwidth
communication/network-loss communication/network-delay communication/network-partition
communication/network-contention communication/small-collectives communication/link-error
compute/slow-rank compute/all-ranks-slow compute/gpu-throttled compute/gpu-fault compute/gpu-contention
compute/application-gpu-fault compute/workload-imbalance
io/slow-data-loading io/slow-data-loading-all io/uneven-shards io/uneven-batches io/disk-contention io/slow-checkpoint
io/dataloader-death
resource/cpu-contention resource/cpu-quota resource/gpu-lost
memory/leak memory/host-oom memory/cuda-oom memory/swapping memory/shm-exhausted
numerical/nan numerical/loss-divergence numerical/corrupt-shard numerical/desync-weights numerical/desync-gradients
numerical/desync-init
process/rank-killed process/rank-exception process/hung process/launcher-terminated
configuration/misconfiguration configuration/collective-mismatch configuration/network-interface
configuration/unknown-setting configuration/cpu-oversubscription
"""

# What incidents of each kind look like when telemetry, log and timeline are there.
LOOKS = [
    (
        "compute/slow-rank",
        "one_rank_slow=1 wait_on_others=1 local_forward=0.9 local_backward=0.1 negotiate_long=0.9 one_rank_last=1 cpu_high=0.3",
    ),
    ("compute/slow-rank", "one_rank_slow=0.8 wait_on_others=0.9 local_forward=1"),
    (
        "resource/cpu-quota",
        "one_rank_slow=1 wait_on_others=0.8 local_forward=0.4 local_backward=0.4 phases_even=1 cpu_low=0.9 negotiate_long=0.5",
    ),
    (
        "resource/cpu-quota",
        "one_rank_slow=1 wait_on_others=0.9 local_forward=0.5 local_backward=0.4 phases_even=1 cpu_low=0.8 status_stopped=0.9",
    ),
    ("io/slow-data-loading", "one_rank_slow=1 wait_on_others=1 local_data=1 negotiate_long=0.3"),
    ("io/slow-data-loading", "one_rank_slow=1 wait_on_others=1 local_data=0.95 one_rank_last=1 workers_idle=0.8"),
    ("io/slow-data-loading-all", "all_ranks_slow=1 local_data=0.95"),
    ("io/disk-contention", "iowait=1 disk_busy=1 local_data=0.9 all_ranks_slow=0.8 workers_idle=0.4"),
    ("io/slow-shared-storage", "iowait=0.8 local_data=0.9 all_ranks_slow=0.8 workers_idle=0.9 gpu_util_low=0.7"),
    (
        "resource/cpu-contention",
        "foreign_cpu=1 host_cpu_full=0.8 cpu_stolen=0.8 all_ranks_slow=0.8 phases_even=1 sync_all=0.5",
    ),
    ("process/hung", "status_stopped=1 cycle_gap=1 no_progress=1 cpu_low=0.9"),
    ("communication/collective-stall", "negotiate_open=1 cycle_gap=-1 no_progress=1 log_stall_warning=1"),
    ("communication/collective-stall", "negotiate_open=1 cycle_gap=-1 no_progress=1"),
    ("communication/collective-timeout", "log_watchdog_timeout=1 no_progress=1 progress_ended=1 negotiate_open=1"),
    (
        "process/rank-killed",
        "log_exit_killed=1 process_gone=1 progress_ended=1 log_connection_reset=1 log_cascade_exception=1",
    ),
    ("process/rank-killed", "log_connection_reset=1 process_gone=1 progress_ended=1"),
    (
        "process/rank-exception",
        "log_exception=1 log_cascade_exception=1 progress_ended=1 log_exit_other=1 log_dataloader_death=1",
    ),
    ("io/dataloader-death", "workers_gone=1 log_dataloader_death=1 log_exception=1 progress_ended=1"),
    ("memory/host-oom", "log_oom_host=1 log_exit_killed=1 process_gone=1 progress_ended=1 host_memory_low=0.9"),
    ("memory/leak", "rss_growth=1"),
    ("communication/network-bandwidth", "net_throughput_low=0.9 transfer_long=1 sync_all=1 negotiate_long=0.6"),
    ("communication/network-loss", "net_retransmits=1 transfer_long=0.8 sync_all=0.8 net_throughput_low=0.5"),
    (
        "communication/network-delay",
        "transfer_long=1 sync_all=1 net_throughput_low=0.9 small_transfers_slow=1 negotiate_long=0.7",
    ),
    ("communication/network-partition", "net_silence=1 no_progress=1 cycle_gap=1 net_retransmits=0.5 sync_all=0.5"),
    ("numerical/nan", "loss_nan=1 log_nan=1"),
    ("numerical/nan", "loss_nan=1"),
    ("numerical/corrupt-shard", "loss_diverges_one_rank=1"),
    ("numerical/desync-weights", "param_norm_desync=1 loss_diverges_one_rank=0.6"),
    ("numerical/desync-init", "param_norm_desync=1 param_desync_from_start=1 whole_run=1"),
    (
        "io/uneven-batches",
        "batch_uneven=1 one_rank_slow=1 wait_on_others=1 whole_run=1 phases_even=1 local_forward=0.5 local_backward=0.5",
    ),
    ("io/uneven-shards", "log_exhausted=1 join_seen=1"),
    (
        "io/slow-checkpoint",
        "at_checkpoint=1 checkpoint_long=1 periodic=1 negotiate_long=1 wait_on_others=0.8 no_progress=0.5",
    ),
    ("configuration/rank0-only-work", "validation_long=1 periodic=1 negotiate_long=1 wait_on_others=0.8"),
    ("configuration/misconfiguration", "cycle_bound=1 whole_run=1 small_collectives=1"),
    ("configuration/collective-mismatch", "log_mismatch=1 negotiate_open=1 no_progress=1 cycle_gap=-1"),
    ("memory/shm-exhausted", "log_shm_exhausted=1 log_dataloader_death=1 progress_ended=1"),
]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def text() -> str:
    return CATALOG_FILE.read_text(encoding="utf-8")


def test_every_promised_cause_is_there(catalog: Catalog) -> None:
    assert set(PROMISED.split()) <= set(catalog.causes)


def test_every_category_has_causes(catalog: Catalog) -> None:
    assert {cause.category for cause in catalog.causes.values()} == set(CATEGORIES) == set(catalog.categories)


def test_a_cause_is_found_by_its_parts(catalog: Catalog) -> None:
    cause = catalog.causes["io/slow-data-loading"]
    assert (cause.category, cause.name) == ("io", "slow-data-loading")


def test_every_action_is_used(catalog: Catalog) -> None:
    assert {fix.action for cause in catalog.causes.values() for fix in cause.fixes} == set(catalog.actions)


def test_every_setting_of_a_fix_exists_and_is_not_read_at_build_time_only(catalog: Catalog) -> None:
    knobs = load_knobs().knobs
    named = {setting for cause in catalog.causes.values() for fix in cause.fixes for setting in fix.settings}
    assert {knobs[setting].kind for setting in named} <= {"env", "flag", "api", "sysctl", "file", "boot"}


def test_prose_names_no_variable_that_nobody_reads(catalog: Catalog) -> None:
    knobs = load_knobs().knobs
    for cause in catalog.causes.values():
        prose = [cause.meaning, *cause.evidence_text]
        prose += [part for fix in cause.fixes for part in (fix.text, fix.why, fix.verify, fix.undo)]
        for name in VARIABLE.findall(" ".join(prose)):
            assert name in knobs, f"{cause.id}: {name}"


def test_every_word_of_the_vocabulary_but_descriptive_ones_separates_some_cause(catalog: Catalog) -> None:
    used = {word for cause in catalog.causes.values() for word in cause.evidence}
    assert set(catalog.vocabulary) - used <= {"local_optimizer", "workers_busy", "gpu_util_low_one"}


def test_the_matrix_holds_the_signatures(catalog: Catalog) -> None:
    ids, names, rows = catalog.signature_matrix()
    assert (ids, names) == (list(catalog.causes), list(catalog.vocabulary))
    assert len(rows) == len(ids)
    for cause_id, row in zip(ids, rows, strict=True):
        strengths = {name: value for name, value in zip(names, row, strict=True) if value != 0}
        assert strengths == catalog.causes[cause_id].evidence


def cosine(a: dict[str, float], b: dict[str, float]) -> float:
    lengths = math.sqrt(sum(x * x for x in a.values()) * sum(x * x for x in b.values()))
    return sum(x * b.get(word, 0.0) for word, x in a.items()) / lengths


def test_no_two_causes_look_alike(catalog: Catalog) -> None:
    alike = {
        (one.id, other.id): cosine(one.evidence, other.evidence)
        for one, other in itertools.combinations(catalog.causes.values(), 2)
    }
    assert max(alike.values()) < 0.75, max(alike, key=lambda pair: alike[pair])


@pytest.mark.parametrize(("cause", "words"), LOOKS, ids=[f"{n}-{cause}" for n, (cause, _) in enumerate(LOOKS)])
def test_a_known_fault_is_nearest_to_its_own_signature(catalog: Catalog, cause: str, words: str) -> None:
    seen = {name: float(value) for name, value in (pair.split("=") for pair in words.split())}
    assert set(seen) <= set(catalog.vocabulary)
    ranked = sorted(catalog.causes.values(), key=lambda c: cosine(c.evidence, seen), reverse=True)
    assert ranked[0].id == cause, [(c.id, round(cosine(c.evidence, seen), 2)) for c in ranked[:3]]


# Each edit breaks one rule; the message must say where, what was expected, what was found and what to do.
BREAKS = {
    "not-toml": ("[categories]", "[categories", "catalog.toml", "valid TOML"),
    "lost-section": ("\n[evidence_vocabulary]\n", "\n[something_else]\n", "evidence_vocabulary", "restore it"),
    "category-renamed": ('io = "', 'input = "', "[categories]", "closed"),
    "category-unknown": ('id = "io/slow-checkpoint"', 'id = "storage/slow"', "storage/slow", "communication"),
    "name-missing": ('id = "io/slow-checkpoint"', 'id = "io/"', "'io/'", "category/name"),
    "twice": ('id = "io/slow-checkpoint"', 'id = "io/slow-data-loading"', "io/slow-data-loading", "once"),
    "severity": ('severity = "critical"', 'severity = "fatal"', "severity", "'fatal'"),
    "scope": ('scope = "rank"', 'scope = "galaxy"', "scope", "'galaxy'"),
    "word-unknown": ("no_progress = 1.0", "no_progres = 1.0", "no_progres", "evidence_vocabulary"),
    "too-strong": ("no_progress = 1.0", "no_progress = 1.5", "evidence.no_progress", "less than or equal to 1"),
    "action": ('action = "resume-process"', 'action = "pray"', "'process/hung', fix 1", "the set of actions is closed"),
    "setting-invented": (
        'settings = ["ionice"]',
        'settings = ["NCCL_MIN_NCOLS"]',
        "fix 1, settings",
        "use NCCL_MIN_CTAS",
    ),
    "command-invented": (
        '"export NCCL_NET=IB"',
        '"export NCCL_NETWORK=IB"',
        "settings or commands",
        "NCCL_NETWORK",
    ),
    "where-to-look": ('"timeline: ends in the', '"ends in the', "evidence_text", "timeline, steps"),
    "empty-text": ('title = "The host swaps"', 'title = ""', "memory/swapping", "title"),
    "no-source": (
        'source = "https://github.com/benfred/py-spy"',
        "",
        "fixes.0.source",
        "found nothing",
    ),
    "no-verify": ('verify = "TracerPid is 0 and cgroup.freeze is 0."', "", "fixes.2.verify", "found nothing"),
    "no-undo": ('undo = "systemctl disable --now nvidia-fabricmanager"', "", "fixes.0.undo", "found nothing"),
    "extra-field": ('scope = "run"', 'scope = "run"\ncolour = "red"', "colour", "the fields are: id, title"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_catalog_is_refused_with_place_and_remedy(text: str, name: str) -> None:
    before, after, place, says = BREAKS[name]
    assert before in text
    with pytest.raises(CatalogError) as caught:
        parse_catalog(text.replace(before, after, 1), load_knobs())
    message = str(caught.value)
    assert place in message, message
    assert says in message, message
    assert "\nhint: " in message, message


def test_a_signature_that_only_denies_is_refused(text: str) -> None:
    start = text.index('id = "memory/leak"')
    end = text.index("[[cause.fixes]]", start)
    denying = re.sub(r"(?m)^\w+ = [0-9.]+\n", "", text[start:end])
    assert denying != text[start:end]
    only = text[:start] + denying + text[end:]
    with pytest.raises(CatalogError, match=r"memory/leak.*at least one positive strength"):
        parse_catalog(only, load_knobs())


def test_loading_reads_the_file_once() -> None:
    assert load_catalog() is load_catalog()


def test_a_loaded_cause_cannot_be_changed(catalog: Catalog) -> None:
    with pytest.raises(ValueError, match="frozen"):
        catalog.causes["memory/leak"].severity = "info"


def test_the_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "catalog.md"
    assert page.read_text(encoding="utf-8") == render_markdown(), "python -m detector.catalog > docs/catalog.md"


def test_the_page_shows_every_cause_and_fix(catalog: Catalog) -> None:
    page = render_markdown()
    for cause in catalog.causes.values():
        assert f"### {cause.id}\n" in page
        assert all(fix.verify in page and fix.source in page for fix in cause.fixes)
