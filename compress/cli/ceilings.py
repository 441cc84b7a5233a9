"""Measured ceilings as a table: every number with its spread, n and marks."""

from collections.abc import Iterator

from compress.device.ceilings import CONTAMINATED_ABOVE, Ceilings, Figure, Rate

Row = tuple[str, Figure, str, float, str]


def ceilings_text(ceilings: Ceilings) -> str:
    """The table, a line on int8, and what the marks mean."""
    rows = [*_rates(ceilings), *_levels(ceilings), *_costs(ceilings)]
    width = max(len(row[0]) for row in rows)
    lines = [_line(row, width) for row in rows]
    unsupported = [f"{name:<{width}}  no kernel: {rate.note}" for name, rate in _unsupported(ceilings)]
    return "\n".join([_title(ceilings), *lines, *unsupported, *_remarks(ceilings)])


def _title(ceilings: Ceilings) -> str:
    threads = f"{ceilings.threads} thread{'' if ceilings.threads == 1 else 's'}"
    return f"ceilings of {ceilings.name}, {threads}, {ceilings.source}"


def _rates(ceilings: Ceilings) -> Iterator[Row]:
    for dtype, rate in ceilings.flop_per_s.items():
        unit = "GOP/s" if dtype.startswith("int") else "GFLOP/s"
        mark = "slower than fp32" if rate.slower_than_fp32 else ""
        for kind, figure in (("gemm", rate.gemm), ("conv", rate.conv)):
            if figure:
                yield f"{dtype} {kind}", figure, unit, 1e-9, mark


def _levels(ceilings: Ceilings) -> Iterator[Row]:
    for level in ceilings.levels:
        size = f" ({level.size_bytes >> 10} KiB)" if level.size_bytes else ""
        for kernel, figure in level.bytes_per_s.items():
            yield f"{level.name}{size} {kernel}", figure, "GB/s", 1e-9, ""


def _costs(ceilings: Ceilings) -> Iterator[Row]:
    for name, figure in ceilings.moves_bytes_per_s.items():
        yield f"move: {name}", figure, "GB/s", 1e-9, ""
    for name, figure in ceilings.dispatch_ns.items():
        yield f"start: torch {name}", figure, "us", 1e-3, ""
    if ceilings.node_ns:
        yield "start: onnxruntime node", ceilings.node_ns, "us", 1e-3, ""


def _line(row: Row, width: int) -> str:
    name, figure, unit, scale, mark = row
    marks = [mark, "unsteady" if figure.unsteady else "", "contaminated" if figure.contaminated else ""]
    spread = f"+{figure.spread:.0%}" if figure.spread is not None else "?"
    noted = f"  [{', '.join(filter(None, marks))}]" if any(marks) else ""
    return f"{name:<{width}}  {figure.value * scale:8.2f} {unit:<7}  {spread:>6} n={figure.n}  {figure.how}{noted}"


def _unsupported(ceilings: Ceilings) -> Iterator[tuple[str, Rate]]:
    return ((dtype, rate) for dtype, rate in ceilings.flop_per_s.items() if not rate.supported)


def _remarks(ceilings: Ceilings) -> list[str]:
    ratio, ridge = ceilings.ratio("int8"), ceilings.ridge("fp32")
    found = [f"int8 : fp32 = {ratio:.2f}"] if ratio else []
    found += [f"fp32 ridge = {ridge:.1f} FLOP per DRAM byte"] if ridge else []
    contention = ceilings.contention
    if contention and contention.wall_over_cpu:
        busy = f"elapsed over busy time {contention.wall_over_cpu:.2f}"
        trust = f"above {CONTAMINATED_ABOVE}: contaminated, measure again" if ceilings.contaminated else "quiet"
        found.append(f"{busy} ({trust}); the spread is that of the slowest repeat over the fastest, which counts")
    return found
