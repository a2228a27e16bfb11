"""How frameworks word a training step: one row each, the named groups are what the line tells."""

from __future__ import annotations

import re
from typing import NamedTuple


class StepWording(NamedTuple):
    """`needle` is a plain part of every line that `pattern` fits.

    Groups besides the fields of Step: `epoch`, `total` (steps in an epoch), `samples` and `all_samples` (position in
    the epoch), `rate` (samples a second), `mean_rate` and `mean_s` (means since the beginning, per step), `took`
    (seconds since the line before), `speed` with `speed_unit` (of a progress bar, whose title stands before), `rank`.
    `pairs`: key=value words in the line fill what the groups leave open.
    """

    needle: str
    pattern: re.Pattern[str]
    pairs: bool = False


_N = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|NaN|inf|Infinity)"
_CLOCK = r"[\d:?]+"


def _row(needle: str, pattern: str, pairs: bool = False) -> StepWording:
    return StepWording(needle, re.compile(pattern), pairs)


STEP_WORDINGS: tuple[StepWording, ...] = (
    # tf_cnn_benchmarks: the rate is the mean since the first step
    _row(
        "images/sec: ",
        rf"(?:^|\s)(?P<step>\d+)\s+images/sec: (?P<mean_rate>{_N})"
        rf"(?: \+/- {_N} \(jitter = {_N}\))?(?:\s+(?P<loss>{_N}))?",
    ),
    # Horovod's synthetic benchmarks
    _row("img/sec per", rf"Iter #(?P<step>\d+): (?P<rate>{_N}) img/sec per"),
    # torchvision and the many scripts made from its ImageNet example; mmcv and mmengine
    _row(
        "][",
        rf"Epoch(?:\(train\))?:? +\[(?P<epoch>\d+)\]\[ *(?P<step>\d+)/(?P<total>\d+)\]"
        rf"(?:.*?\bTime +(?P<duration_s>{_N}))?(?:.*?\bData +(?P<data_s>{_N}))?(?:.*?\bLoss +(?P<loss>{_N}))?",
        pairs=True,
    ),
    # open_clip
    _row(
        "Batch (t):",
        rf"Train Epoch: (?P<epoch>\d+) \[ *(?P<samples>\d+)/(?P<all_samples>\d+) \(.*?\](?:.*?\bLoss: (?P<loss>{_N}))?"
        rf".*?Data \(t\): (?P<data_s>{_N}) Batch \(t\): (?P<duration_s>{_N})(?:, (?P<rate>{_N})(?:/s)?)?",
    ),
    # PyTorch's and Horovod's MNIST examples
    _row(
        "Train Epoch: ",
        rf"Train Epoch: (?P<epoch>\d+) \[ *(?P<samples>\d+)/(?P<all_samples>\d+) \(.*?\]\s+Loss: (?P<loss>{_N})",
    ),
    # Keras: the time a step is the mean of the epoch
    _row(
        "/step",
        rf"^ *(?P<step>\d+)/(?P<total>\d+) (?:\[[=>. ]*\]|[━╸ ]+) -? ?(?:{_CLOCK} |\d+m?s |ETA: \S+ - )*"
        rf"(?P<mean_s>{_N})(?P<unit>us|ms|s)/step(?:.*?\bloss: (?P<loss>{_N}))?",
    ),
    # tqdm, also within Lightning and the Hugging Face trainer
    _row(
        "<",
        rf"\d+%(?:\|[^|]*\|)? *(?P<step>\d+)/(?P<total>\d+) \[{_CLOCK}<{_CLOCK}, +"
        rf"(?P<speed>{_N})(?P<speed_unit>s/it|it/s)(?:.*?\bloss=(?P<loss>{_N}))?",
        pairs=True,
    ),
    # Megatron-LM
    _row(
        "elapsed time per iteration",
        rf"iteration +(?P<step>\d+)/ *\d+ \|.*?elapsed time per iteration \(ms\): (?P<ms>{_N})"
        rf"(?:.*?global batch size: +(?P<batch>\d+))?(?:.*?lm loss: (?P<loss>{_N}))?"
        rf"(?:.*?grad norm: (?P<grad_norm>{_N}))?",
    ),
    # DeepSpeed
    _row("skipped=", r"\[Rank (?P<rank>\d+)\] step=(?P<step>\d+), skipped=\d+"),
    _row("CurrSamplesPerSec", rf"global_step=(?P<step>\d+), .*CurrSamplesPerSec=(?P<rate>{_N})"),
    _row("iter time (s)", rf"steps: (?P<step>\d+) loss: (?P<loss>{_N}) iter time \(s\): (?P<duration_s>{_N})"),
    # nanoGPT
    _row("iter ", rf"^iter (?P<step>\d+): loss (?P<loss>{_N}), time (?P<ms>{_N})ms"),
    # TensorFlow's estimators
    _row(" sec)", rf"loss = (?P<loss>{_N}), step = (?P<step>\d+) \((?P<took>{_N}) sec\)"),
    # MXNet
    _row("samples/sec", rf"Epoch\[(?P<epoch>\d+)\] Batch \[(?:\d+-)?(?P<step>\d+)\]\s+Speed: (?P<rate>{_N}) samples/sec"),
    # fairseq
    _row(" / ", rf"epoch (?P<epoch>\d+): +(?P<step>\d+) / (?P<total>\d+) loss=(?P<loss>{_N})", pairs=True),
    # the dictionaries that the Hugging Face trainer prints
    _row("'loss':", rf"^\{{'loss': '?(?P<loss>{_N})", pairs=True),
)

# Progress bars with such titles count something other than training steps.
NO_TRAINING = re.compile(
    r"(?i)\b(val|valid\w*|test\w*|eval\w*|predict\w*|sanity|download\w*|load\w*|map|token\w*|generat\w*)\b"
)
EPOCH_HEAD = re.compile(r"^Epoch:? (\d+)(?:/\d+)?\s*$")
TITLE_EPOCH = re.compile(r"(?i)epoch\D{0,6}(\d+)")
BATCH_LINE = re.compile(r"^(?:Batch size: +(\d+)\s*$| +(\d+)(?:\.0)? per device)")
