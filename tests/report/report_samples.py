"""Invented reports of every kind, built from parts. No number in here was ever measured."""

from collections.abc import Callable
from typing import Any

from compress.report.schema import Report

HOSTILE = '<script>alert(\'x\')</script>"onload="alert(1)" $\\frac{1}{$ [red]\x1b[31m &amp; </svg></style>'
LONG = "ptq/" + "-".join(["extremely-long-scheme-name-that-nobody-would-type"] * 5)
UNICODE = "ptq/量化-équipé-🚀-μ8"


def figure(value: float | None, *, spread: float = 0.0, n: int | None = 40, note: str | None = None) -> dict[str, Any]:
    ends = {"low": None if not spread else value - spread, "high": None if not spread else value + spread}
    return {"value": value, "n": n, "note": note, **ends}


def gate(metric: str, limit: str, threshold: float, value: float | None, outcome: str) -> dict[str, Any]:
    found = {"value": value, "low": None, "high": None if value is None else value + 0.002}
    needed = 11400 if outcome == "undecided" else None
    note = "paired on 800 samples" if metric == "top1" else None
    judged = {"outcome": outcome, "needed_n": needed, "note": note}
    return {"metric": metric, "limit": limit, "threshold": threshold, **found, **judged}


def candidate(
    name: str, *, top1: float = 0.75, speedup: float = 1.7, outcome: str = "pass", batches: tuple[int, ...] = (1,)
) -> dict[str, Any]:
    return {
        "name": name,
        "stage": "ptq",
        "form": "int8",
        "parent": "model",
        "artefact": "stages/02-ptq/some/model.onnx",
        "sha256": "ab" * 32,
        "metrics": {
            "top1": figure(top1, spread=0.02, n=800),
            "speedup": {**figure(speedup, spread=0.08), "batch": batches[0]},
            "size_ratio": figure(0.31, n=1),
            "size_bytes": figure(1_240_000, n=1),
            "agreement": figure(0.97, spread=0.01, n=800),
            "sqnr_db": figure(27.5, n=800),
            "latency_p50_ms": figure(4.4 / speedup, spread=0.05, n=600),
        },
        "by_batch": [
            {
                "batch": batch,
                "speedup": figure(speedup + 0.01 * batch, spread=0.1),
                "latency_p50_ms": figure(3.1, n=600),
            }
            for batch in batches
        ],
        "gates": [gate("top1", "max_drop", 0.02, 0.77 - top1, outcome), gate("speedup", "min", 1.4, speedup, "pass")],
        "outcome": outcome,
        "audit": {
            "integer_ops": 21,
            "float_ops": 3,
            "boundary_ops": 6,
            "provider_fallbacks": ["Softmax on CPU"],
            "accelerated": True,
            "saturation": {"sqnr_db": 41.5, "saturates": False},
            "by_op": {"QLinearConv": 19, "QLinearMatMul": 2, "Softmax": 3},
            "left_in_float": ["/head/softmax"],
            "note": "",
        },
        "parity": {
            "max_abs": 2.5e-5,
            "agreement": 1.0,
            "batches": [3, 8],
            "tolerance": 0.002,
            "passed": True,
            "note": "",
        },
        "note": "",
        "seconds": 7.5,
    }


def refused(name: str) -> dict[str, Any]:
    bare = {"metrics": {}, "by_batch": [], "gates": [], "audit": None, "parity": None, "artefact": None, "sha256": None}
    return {
        **candidate(name, outcome="fail"),
        **bare,
        "note": "the runtime refused the file: no kernel for this pair of types",
    }


def report_dict(
    candidates: list[dict[str, Any]], *, outcome: str = "pass", winner: str | None = None
) -> dict[str, Any]:
    return {
        "schema": "compress.report/1",
        "outcome": outcome,
        "exit_code": {"pass": 0, "fail": 1, "undecided": 1, "stopped": 4}[outcome],
        "winner": winner,
        "reason": f"{winner or 'nothing'} stands at the end of this invented run.",
        "created": "2031-02-03T04:05:06Z",
        "seconds": 75.25,
        "recipe": {
            "name": "invented",
            "digest": "sha256:" + "cd" * 32,
            "path": "recipes/invented.yaml",
            "gates": [
                {"metric": "top1", "limit": "max_drop", "value": 0.02},
                {"metric": "speedup", "limit": "min", "value": 1.4},
            ],
        },
        "env": {
            "versions": {"python": "3.11.0", "torch": "2.13.0", "onnxruntime": "1.31.0"},
            "cpu": {
                "name": "Invented CPU",
                "cores": 6,
                "flags": ["avx2", "avx512_vnni"],
                "int8": "VNNI: exact 8-bit sums",
            },
            "threads": 2,
            "provider_requested": "cpu",
            "provider_used": "CPUExecutionProvider",
            "pressure": {"cpu_some_avg10_before": 0.4, "cpu_some_avg10_after": None, "load1": 1.5},
            "platform": "Linux-6.1",
            "memory_bytes": 33_000_000_000,
        },
        "data": {
            "digest": "sha256:" + "ef" * 32,
            "splits": {"calibration": 128, "select": 800, "confirm": 800},
            "leaks": 0,
        },
        "analysis": {
            "schema": "compress.analysis/1",
            "model": {"params": 1_234_567, "bytes": 4_938_268, "macs": 55_000_000, "flops": 110_000_000},
            "coverage": 0.998,
            "ops": [
                {
                    "id": number,
                    "op": "conv2d",
                    "module": f"stem.{number}",
                    "kind": "contraction",
                    "shapes": [[1, 16, 14, 14], [16, 16, 3, 3]],
                    "macs": 450_000 * (number + 1),
                    "flops": 900_000 * (number + 1),
                    "bytes": {"weight": 9216, "act": 25088},
                    "intensity_flop_per_byte": 26.2,
                    "time_ms": 0.11 * (number + 1),
                    "time_share": 0.02 * (number + 1),
                }
                for number in range(9)
            ],
            "top_ops_runtime": [
                {
                    "op": "FusedConv",
                    "name": f"/stem/{number}/conv",
                    "time_ms": 0.9 / (number + 1),
                    "share": 0.3 / (number + 1),
                }
                for number in range(8)
            ],
        },
        "verdict": None,
        "baselines": [
            {
                "name": "torch-eager",
                "runtime": "torch",
                "metrics": {
                    "top1": figure(0.77, spread=0.02, n=800),
                    "latency_p50_ms": figure(9.25, spread=0.25, n=600),
                },
            },
            {
                "name": "onnxruntime-fp32",
                "runtime": "onnxruntime",
                "metrics": {
                    "latency_p50_ms": figure(4.4, spread=0.1, n=600),
                    "latency_p99_ms": figure(None, n=300, note="P99 not supported by n=300 (needs 459)"),
                    "size_bytes": figure(4_000_000, n=1),
                    "peak_memory_bytes": figure(120_000_000, n=1),
                },
            },
        ],
        "baseline": "onnxruntime-fp32",
        "measurement": {
            "a_a": {"value": 0.998, "low": 0.985, "high": 1.01, "n": 40, "half_width": 0.0125, "clean": True},
            "protocol": "interleaved blocks, median log-ratio",
        },
        "candidates": candidates,
        "confirmation": None
        if winner is None
        else {
            "candidate": winner,
            "split": "confirm",
            "metrics": {"top1": figure(0.74, spread=0.02, n=800)},
            "gates": [gate("top1", "max_drop", 0.02, 0.009, "pass")],
        },
        "ledger": [
            {
                "stage": "ptq",
                "changed": "weights and activations to 8 bits",
                "entered": True,
                "why": "the float model misses speed-up at least 1.4x",
                "gain": "1.7x faster, 0.31x the size",
                "risk": "top1 -0.02",
                "seconds": 52.0,
                "cached": True,
                "kept": winner is not None,
            },
            {
                "stage": "qat",
                "changed": None,
                "entered": False,
                "why": "every gate passed",
                "gain": None,
                "risk": None,
                "seconds": None,
                "cached": False,
                "kept": False,
            },
        ],
        "best_so_far": winner or (candidates[0]["name"] if candidates else None),
        "next": ["compress report runs/invented/2031-02-03T04-05-06", "compress run recipes/invented.yaml"],
    }


def passing() -> dict[str, Any]:
    tried = [
        candidate("ptq/u8s8-channel-reduced"),
        candidate("ptq/u8u8-tensor", top1=0.70, speedup=1.9, outcome="fail"),
    ]
    return report_dict([*tried, refused("ptq/s8s8-channel")], winner="ptq/u8s8-channel-reduced")


def failing() -> dict[str, Any]:
    return report_dict([candidate("ptq/u8u8-tensor", top1=0.6, outcome="fail")], outcome="fail")


def undecided() -> dict[str, Any]:
    return report_dict([candidate("ptq/u8s8-channel", outcome="undecided")], outcome="undecided")


def stopped() -> dict[str, Any]:
    verdict = {
        "class": "movement",
        "share": 0.61,
        "confidence": "measured on this machine",
        "evidence": ["copies take 61 %"],
    }
    record = report_dict([], outcome="stopped")
    return {**record, "verdict": verdict, "ledger": [], "measurement": None, "best_so_far": None}


def empty() -> dict[str, Any]:
    return report_dict([], outcome="fail")


def twelve() -> dict[str, Any]:
    names = [
        f"ptq/{pair}-{grain}"
        for pair in ("u8s8", "u8u8", "s8s8")
        for grain in ("tensor", "channel", "reduced", "mixed")
    ]
    tried = [
        candidate(
            name,
            top1=0.76 - 0.004 * (number % 5),
            speedup=1.5 + 0.02 * number,
            outcome=("pass", "fail", "undecided")[number % 3],
        )
        for number, name in enumerate(names)
    ]
    return report_dict(tried, winner=names[3])


def two_batches() -> dict[str, Any]:
    tried = [candidate("ptq/u8s8-channel", batches=(1, 16)), candidate("ptq/u8u8-tensor", speedup=1.2, batches=(1, 16))]
    return report_dict(tried, winner="ptq/u8s8-channel")


def long_names() -> dict[str, Any]:
    return report_dict([candidate(LONG), candidate(LONG + "-2", top1=0.74)], winner=LONG)


def unicode_names() -> dict[str, Any]:
    return report_dict([candidate(UNICODE)], winner=UNICODE)


def hostile() -> dict[str, Any]:
    record = report_dict([candidate(HOSTILE), refused(HOSTILE + "2")], winner=HOSTILE)
    record["reason"] = record["recipe"]["name"] = record["baseline"] = HOSTILE
    record["baselines"][1]["name"] = record["baselines"][1]["runtime"] = HOSTILE
    record["next"] = [HOSTILE]
    record["env"]["versions"] = {HOSTILE: HOSTILE}
    record["verdict"] = {"class": HOSTILE, HOSTILE: [HOSTILE]}
    record["analysis"]["top_ops_runtime"][0] = {"op": HOSTILE, "name": HOSTILE, "share": 0.9, "time_ms": 1.0}
    record["candidates"][1]["note"] = HOSTILE
    record["ledger"][0]["why"] = HOSTILE
    return record


def unmeasured() -> dict[str, Any]:
    bare = candidate("ptq/bare")
    nothing = figure(None, n=None)
    bare["metrics"] = dict.fromkeys(bare["metrics"], nothing)
    bare["by_batch"] = [{"batch": 1, "speedup": nothing, "latency_p50_ms": None}]
    bare["gates"] = [gate("top1", "max_drop", 0.02, None, "undecided")]
    bare["audit"] = dict.fromkeys(("integer_ops", "float_ops", "boundary_ops"))
    bare["parity"] = {"max_abs": None, "passed": None}
    nameless = candidate("ptq/no-intervals")
    nameless["metrics"] = {name: {"value": each["value"]} for name, each in nameless["metrics"].items()}
    record = report_dict([bare, nameless], outcome="undecided")
    gone = ("data", "analysis", "measurement", "verdict", "confirmation", "baseline", "best_so_far", "seconds")
    return {**record, **dict.fromkeys(gone), "env": {}, "baselines": [], "ledger": [], "next": []}


SAMPLES: dict[str, Callable[[], dict[str, Any]]] = {
    "passing": passing,
    "failing": failing,
    "undecided": undecided,
    "stopped": stopped,
    "empty": empty,
    "twelve": twelve,
    "two_batches": two_batches,
    "long_names": long_names,
    "unicode": unicode_names,
    "hostile": hostile,
    "unmeasured": unmeasured,
}


def sample(name: str) -> Report:
    return Report.model_validate(SAMPLES[name]())
