"""Steps, read from the wordings of training scripts."""

from __future__ import annotations

import math

import pytest

from features.notices import Notices
from features.parsers.textlog import NO_RANK, NO_TIME, TextLog
from features.parsers.textsteps import NO_BATCH, NO_NUMBER
from features.records import Record, RunInfo, Step

HEAD = "2031-04-05T06:07:08.125000+00:00 INFO [rank=2 host=beta] "
T0 = 1933135628.125


def parse(text: str, file: str = "run.log") -> tuple[list[Record], Notices]:
    """Records and notices of a whole log."""
    notices = Notices()
    parser = TextLog(file, notices)
    return parser.feed(text.encode()) + parser.finish(), notices


def steps(text: str, file: str = "run.log") -> list[Step]:
    return [record for record in parse(text, file)[0] if isinstance(record, Step)]


def texts(notices: Notices) -> list[str]:
    return [notice.text for notice in notices.items()]


RECORDED = (
    "step=7 epoch=1 loss=0.5 grad_norm=1.5 param_norm=9.25 data=0.001 fwd=0.002 bwd=0.003 sync=0.004 opt=0.005 "
    "step_time=0.016 batch=64 samples_per_s=4000.0 rss_mb=440.5"
)


def test_recorded_layout() -> None:
    records, notices = parse(HEAD + RECORDED + "\n")
    assert records == [
        RunInfo(ts=T0, nodes={2: "beta"}, source="run.log:1"),
        Step(
            ts=T0,
            rank=2,
            step=7,
            duration_s=0.016,
            data_s=0.001,
            forward_s=0.002,
            backward_s=0.003,
            sync_s=0.004,
            optimizer_s=0.005,
            epoch=1,
            batch=64,
            loss=0.5,
            grad_norm=1.5,
            param_norm=9.25,
            rss_bytes=440_500_000.0,
            source="run.log:1",
        ),
    ]
    assert notices.items() == []


def test_recorded_layout_within_a_launchers_log() -> None:
    assert steps(f"[2]<stdout>:{HEAD}{RECORDED}\n") == steps(HEAD + RECORDED)


def test_fields_of_the_recorded_layout_in_another_order_mean_the_same() -> None:
    shuffled = " ".join(reversed(RECORDED.split()))
    assert steps(HEAD + shuffled) == steps(HEAD + RECORDED)


@pytest.mark.parametrize(("written", "value"), [("nan", math.nan), ("inf", math.inf), ("-inf", -math.inf)])
def test_losses_that_are_no_finite_numbers_are_values(written: str, value: float) -> None:
    (step,) = steps(HEAD + RECORDED.replace("loss=0.5", f"loss={written}"))
    assert step.loss is not None
    assert step.loss == value or (math.isnan(step.loss) and math.isnan(value))


def test_damaged_step_line_still_gives_what_is_readable() -> None:
    (step,) = steps(HEAD + RECORDED.replace("loss=0.5", "loss=0x"))
    assert (step.step, step.loss, step.duration_s) == (7, None, 0.016)


def one(text: str, **expected: object) -> None:
    """Exactly one step, of these values; whatever is not named is unknown."""
    (step,) = steps(text)
    known = {key: value for key in step.__struct_fields__ if (value := getattr(step, key)) is not None}
    known = {key: value for key, value in known.items() if key not in {"ts", "rank", "source"}}
    assert known == pytest.approx(expected)


def test_keys_and_values_in_other_words() -> None:
    line = "I0905 02:55:56.5 4758 utils.py:9] step = 37, time_taken = 3.25, examples_per_second = 313.1, loss = 8.5"
    one(line, step=37, duration_s=3.25, loss=8.5)
    one(
        "epoch: 2 iteration: 1,234 train_loss: 1.5e-2 batch_time: 250 ms",
        epoch=2,
        step=1234,
        loss=0.015,
        duration_s=0.25,
    )
    one("[step 20]  mlm_loss=1.5  time=0.5, latency=480.5 ms/batch", step=20, loss=1.5, duration_s=0.4805)
    one("iter: 19  total_loss: 1.25  time: 0.35  data_time: 0.01", step=19, loss=1.25, duration_s=0.35, data_s=0.01)
    one("epoch 1 | step 5 | loss 2.5 | grad norm 0.5 | 120 ms", epoch=1, step=5, loss=2.5, grad_norm=0.5)
    one("global_step=5 loss=2 samples_per_sec=100 batch_size=50", step=5, loss=2, batch=50, duration_s=0.5)


def test_json_lines() -> None:
    line = '{"step": 3, "train/loss": 0.25, "step_time_ms": 125, "rank": 4, "timestamp": 1933135628125}\n'
    (step,) = steps(line)
    assert (step.ts, step.rank, step.step, step.loss, step.duration_s) == (T0, 4, 3, 0.25, 0.125)


def test_json_line_whose_time_is_a_duration() -> None:
    (step,) = steps('{"step": 3, "loss": 0.25, "time": 0.5}')
    assert step.duration_s == 0.5


def test_mean_rates_are_undone() -> None:
    """tf_cnn_benchmarks prints the mean rate since the first step: here ten steps take 0.1 s, the next ten 0.3 s."""
    text = (
        "Batch size:  128 global\n             32 per device\nStep\tImg/sec\ttotal_loss\n"
        "10\timages/sec: 320.0 +/- 1.0 (jitter = 2.0)\t7.5\n20\timages/sec: 160.0 +/- 1.0 (jitter = 2.0)\tnan\n"
    )
    first, second = steps(text)
    assert (first.step, first.batch, first.loss) == (10, 32, 7.5)
    assert first.duration_s == pytest.approx(0.1)
    assert second.duration_s == pytest.approx(0.3)
    assert second.loss is not None
    assert math.isnan(second.loss)


def test_rate_without_batch_size_counts_samples() -> None:
    records, notices = parse("10\timages/sec: 200.0 +/- 1.0 (jitter = 2.0)\t7.5\n")
    assert [record.duration_s for record in records if isinstance(record, Step)] == [pytest.approx(0.005)]
    assert NO_BATCH in texts(notices)


def test_synthetic_benchmark() -> None:
    first, second = steps("Batch size: 32\nIter #0: 64.0 img/sec per GPU\nIter #1: 16.0 img/sec per GPU\n")
    assert [(s.step, s.duration_s) for s in (first, second)] == [(0, 0.5), (1, 2.0)]


def test_imagenet_and_mmcv_layouts() -> None:
    one(
        "Epoch: [2][ 15/100]\tTime  0.500 ( 0.600)\tData  0.125 ( 0.2)\tLoss 6.5e+00 (7.0)\tAcc@1 1",
        step=215,
        epoch=2,
        duration_s=0.5,
        data_s=0.125,
        loss=6.5,
    )
    one("Epoch(train) [2][15/100] lr: 1e-3 time: 0.5 data_time: 0.125 loss: 6.5", step=215, epoch=2, loss=6.5,
        duration_s=0.5, data_s=0.125)  # fmt: skip


def test_open_clip_layout() -> None:
    """The number of the step follows from the samples seen and the samples of one step (rate times duration)."""
    line = "Train Epoch: 1 [  8192/81920 (10%)] Loss: 2.5 (3.0) Data (t): 0.125 Batch (t): 0.500, 4096.0/s, 512.0/s/gpu"
    one(line, step=44, epoch=1, data_s=0.125, duration_s=0.5, loss=2.5)


def test_examples_without_step_numbers_are_numbered_in_order() -> None:
    records, notices = parse("".join(f"Train Epoch: 1 [{n}/60000 (0%)]\tLoss: 2.5\n" for n in (0, 640, 1280)))
    assert [record.step for record in records if isinstance(record, Step)] == [0, 1, 2]
    assert NO_NUMBER in texts(notices)


def test_keras_bars_give_durations_of_an_epoch() -> None:
    text = "Epoch 1/9\n4/4 [====] - 8s 2s/step - loss: 1.5 - acc: 0.1\nEpoch 2/9\n4/4 [====] - 16s 4s/step - loss: 1.25\n"
    assert [(s.step, s.epoch, s.duration_s, s.loss) for s in steps(text)] == [(8, 1, 2.0, 1.5), (12, 2, 4.0, 1.25)]


def test_bar_that_grows_within_one_line() -> None:
    text = "Epoch 1/9\n\r1/4 [>...] - ETA: 3s - 1s/step - loss: 2.0\r2/4 [=>..] - ETA: 2s - 2s/step - loss: 1.5\n"
    assert [(s.step, s.duration_s) for s in steps(text)] == [(5, 1.0), (6, 3.0)]


def test_progress_bars() -> None:
    one(" 16%|#5    | 40/250 [3:02:19<16:33:47,  2.50s/it, loss=0.75]", step=40, duration_s=2.5, loss=0.75)
    one("Train Epoch  #3: 82% 10/20 [00:05<00:05, 4.00it/s]", step=70, epoch=3, duration_s=0.25)
    assert steps("Validation: 50%|##  | 5/10 [00:05<00:05, 1.0it/s]") == []
    assert steps("Downloading shards: 50%|##  | 5/10 [00:05<00:05, 1.0it/s]") == []


def test_bar_drawn_twice_is_one_step() -> None:
    bar = " 16%|#5    | 40/250 [00:10<01:00,  2.50s/it]"
    assert len(steps(f"{bar}\r{bar}\n{bar}\n")) == 1


def test_message_glued_to_a_bar_is_read_too() -> None:
    records, _ = parse(" 16%|#5 | 40/250 [00:10<01:00,  2.50s/it]WARNING:x:Received 1 death signal, shutting down\n")
    assert [type(record).__name__ for record in records] == ["Step", "Log"]


def test_trainer_dictionaries_take_the_number_of_the_bar() -> None:
    bar = "  4%|#  | 10/250 [00:10<01:00,  2.50s/it]\n"
    text = bar + "{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 5e-05, 'epoch': 0.4}\n"
    assert [(s.step, s.loss, s.grad_norm) for s in steps(text)] == [(10, None, None), (10, 1.25, 0.5)]


def test_megatron_and_deepspeed() -> None:
    one(
        " iteration       10/  500 | consumed samples: 2560 | elapsed time per iteration (ms): 1250.0 | "
        "global batch size:   256 | lm loss: 1.05E+01 | loss scale: 1.0 | grad norm: 0.5 |",
        step=10,
        duration_s=1.25,
        batch=256,
        loss=10.5,
        grad_norm=0.5,
    )
    one("steps: 10 loss: 2.5 iter time (s): 1.25 samples/sec: 51.9", step=10, loss=2.5, duration_s=1.25)
    (step,) = steps("[2031-04-05 06:07:08,125] [INFO] [logging.py:96:log_dist] [Rank 3] step=10, skipped=6, lr=[1e-05]")
    assert (step.rank, step.step, step.ts) == (3, 10, T0)


def test_nanogpt_estimator_mxnet_fairseq() -> None:
    one("iter 100: loss 2.5, time 125.00ms, mfu 1.0%", step=100, loss=2.5, duration_s=0.125)
    one("Epoch[0] Batch [20-40]\tSpeed: 1200.0 samples/sec\taccuracy=0.1", step=40, epoch=0)
    one("| epoch 002:     10 / 100 loss=3.5, nll_loss=2, wps=1", step=210, epoch=2, loss=3.5)
    text = "INFO:tensorflow:loss = 3.0, step = 100 (9.0 sec)\nINFO:tensorflow:loss = 2.0, step = 300 (10.0 sec)\n"
    assert [(s.step, s.duration_s) for s in steps(text)] == [(100, None), (300, 0.05)]


def test_numbers_that_start_again_go_on() -> None:
    """Without an epoch in the line, a number that falls to 0 or 1 begins the next one."""
    text = "".join(f"step={n} loss=1\n" for n in (0, 1, 2, 0, 1, 2, 0))
    assert [s.step for s in steps(text)] == [0, 1, 2, 3, 4, 5, 6]
    resumed = "".join(f"step={n} loss=1\n" for n in (90, 100, 50, 60))  # from a checkpoint: no new epoch
    assert [s.step for s in steps(resumed)] == [90, 100, 50, 60]


def test_steps_without_time_go_on_from_each_other() -> None:
    records, notices = parse("step=1 loss=1 step_time=0.5\nstep=2 loss=1 step_time=0.5\nstep=4 loss=1 step_time=0.25\n")
    assert [record.ts for record in records] == [0.5, 1.0, 1.5]
    assert NO_TIME in texts(notices)


def test_steps_before_the_first_time_are_placed_before_it() -> None:
    text = "step=1 loss=1 step_time=0.5\nstep=2 loss=1 step_time=0.25\n2031-04-05T06:07:08.125Z hello\nstep=3 loss=1\n"
    records, notices = parse(text)
    assert [record.ts for record in records] == [T0 - 0.25, T0, T0]
    assert NO_TIME not in texts(notices)


def test_rank_comes_from_line_then_tag_then_file_then_zero() -> None:
    line = "step=1 loss=1\n"
    assert steps(line, "logs/rank.5/stdout")[0].rank == 5
    assert steps(line, "case.rank12.log")[0].rank == 12
    assert steps(f"[3]<stdout>:{line}", "rank.5/stdout")[0].rank == 3
    assert steps(f"[rank4]: {line}")[0].rank == 4
    assert steps(f"Rank 4 | {line}")[0].rank == 4
    assert steps(f"[2031-04-05T06:07:08Z] r6 {line}")[0].rank == 6
    records, notices = parse(line, "franklin3.log")
    assert isinstance(records[0], Step)
    assert records[0].rank == 0
    assert NO_RANK in texts(notices)
