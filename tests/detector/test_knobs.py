"""Settings are told apart: those that exist, those that only look as if, and those nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from detector.knobs import (
    KNOBS_FILE,
    KnownKnob,
    Misspelling,
    Unknown,
    check_setting,
    load_knobs,
    parse_knobs,
    render_markdown,
)
from features.errors import CatalogError

MISTAKEN = {
    "HOROVOD_TIMELINE_MARKERS": "HOROVOD_TIMELINE_MARK_CYCLES",
    "NCCL_MIN_NCOLS": "NCCL_MIN_CTAS",
    "NCCL_TIMEOUT": "torch.distributed.init_process_group(timeout=)",
    "HOROVOD_FUSION_THRESHOLD_MB": "HOROVOD_FUSION_THRESHOLD",
    "NCCL_SOCKET_IFACE": "NCCL_SOCKET_IFNAME",
}


@pytest.mark.parametrize(("wrong", "right"), MISTAKEN.items())
def test_a_usual_mistake_is_put_right(wrong: str, right: str) -> None:
    answer = check_setting(wrong)
    assert isinstance(answer, Misspelling)
    assert answer.right == right
    assert answer.why
    assert isinstance(check_setting(right), KnownKnob)


@pytest.mark.parametrize("name", ["HOROVOD_CYCLE_TIME", "NCCL_IB_HCA", "TORCH_DISTRIBUTED_DEBUG", " OMP_NUM_THREADS "])
def test_a_real_setting_is_known_and_carries_no_warning(name: str) -> None:
    answer = check_setting(name)
    assert isinstance(answer, KnownKnob)
    assert answer.knob.name == name.strip()
    assert answer.warning is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("HOROVOD_GPU_ALLREDUCE", "read when the library is built"),
        ("HOROVOD_GPU_OPERATIONS", "read when the library is built"),
        ("NCCL_MIN_NCHANNELS", "deprecated (NCCL 2.17); use NCCL_MIN_CTAS"),
        ("NCCL_ASYNC_ERROR_HANDLING", "use TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        ("NCCL_BLOCKING_WAIT", "use TORCH_NCCL_BLOCKING_WAIT"),
        ("PYTORCH_CUDA_ALLOC_CONF", "use PYTORCH_ALLOC_CONF"),
        ("NCCL_CHECKS_DISABLE", "deprecated"),
    ],
)
def test_a_setting_that_does_not_do_what_is_hoped_warns(name: str, says: str) -> None:
    answer = check_setting(name)
    assert isinstance(answer, KnownKnob)
    assert answer.warning is not None
    assert says in answer.warning


def test_an_unknown_name_comes_with_its_neighbour() -> None:
    answer = check_setting("HOROVOD_CYCLETIME")
    assert isinstance(answer, Unknown)
    assert answer.nearest[0] == "HOROVOD_CYCLE_TIME"


def test_variables_know_upper_and_lower_case() -> None:
    answer = check_setting("nccl_debug")
    assert isinstance(answer, Unknown)
    assert answer.nearest[0] == "NCCL_DEBUG"


def test_a_name_like_no_other_has_no_neighbours() -> None:
    assert check_setting("COFFEE") == Unknown("COFFEE", ())


def test_no_misspelling_exists_and_each_points_at_a_setting_that_does() -> None:
    table = load_knobs()
    assert not set(table.misspellings) & set(table.knobs)
    assert {wrong.right for wrong in table.misspellings.values()} <= set(table.knobs)


def test_every_setting_says_how_to_check_and_undo_it() -> None:
    for knob in load_knobs().knobs.values():
        assert "{name}" not in knob.verify + knob.undo, knob.name
        assert knob.source.startswith(("https://", "Horovod source", "PyTorch source")), knob.name


def test_documented_facts_of_the_settings_people_ask_for() -> None:
    knobs = load_knobs().knobs
    facts = {name: (knobs[name].default, knobs[name].unit) for name in knobs}
    assert facts["HOROVOD_FUSION_THRESHOLD"] == (str(128 * 1024 * 1024), "bytes")
    assert facts["HOROVOD_CYCLE_TIME"] == ("1", "ms")
    assert facts["HOROVOD_CACHE_CAPACITY"] == ("1024", "tensors")
    assert facts["HOROVOD_STALL_CHECK_TIME_SECONDS"] == ("60", "s")
    assert facts["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] == ("0", "s")
    assert facts["NCCL_BUFFSIZE"] == (str(4 * 1024 * 1024), "bytes")
    assert facts["NCCL_IB_TIMEOUT"][0] == "20"


BREAKS = {
    "owner": ('owner = "nccl"', 'owner = "nvidia"', "NCCL_DEBUG", "owner"),
    "kind": ('kind = "sysctl"', 'kind = "magic"', "vm.swappiness", "kind"),
    "no-source": ('source = "https://slurm.schedmd.com/scontrol.html"', "", "scontrol update", "source"),
    "no-risk": ('risk = "TRACE is very long"', "", "NCCL_DEBUG", "risk"),
    "extra": ('owner = "slurm"', 'owner = "slurm"\ncolour = "red"', "sbatch --mem", "the fields are"),
    "twice": ('name = "HOROVOD_CYCLE_TIME"', 'name = "HOROVOD_TIMELINE"', "HOROVOD_TIMELINE", "2 times"),
    "misspelling-exists": ('wrong = "NCCL_TIMEOUT"', 'wrong = "NCCL_DEBUG"', "NCCL_DEBUG", "each name once"),
    "points-nowhere": ('right = "NCCL_MIN_CTAS"', 'right = "NCCL_CTAS"', "NCCL_MIN_NCOLS", "NCCL_CTAS"),
    "replaced-by-nothing": (
        'replaced_by = "NCCL_CHECK_MODE"',
        'replaced_by = "NCCL_MODE"',
        "CHECK_POINTERS",
        "NCCL_MODE",
    ),
    "not-toml": ("[kinds.env]", "[kinds.env", "knobs.toml", "valid TOML"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_table_is_refused_with_its_place(name: str) -> None:
    before, after, place, says = BREAKS[name]
    text = KNOBS_FILE.read_text(encoding="utf-8")
    assert before in text
    with pytest.raises(CatalogError) as caught:
        parse_knobs(text.replace(before, after, 1))
    message = str(caught.value)
    assert place in message, message
    assert says in message, message


def test_the_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "knobs.md"
    assert page.read_text(encoding="utf-8") == render_markdown(), "python -m detector.knobs > docs/knobs.md"


def test_the_page_lists_every_setting_and_every_mistake() -> None:
    table, page = load_knobs(), render_markdown()
    assert all(f"| `{name}` |" in page for name in [*table.knobs, *table.misspellings])
