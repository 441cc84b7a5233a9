"""PTQ: steps from cheap to dear, each measured on the target and judged on `select`; the first that passes ends it."""

import difflib
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from compress.candidate import Candidate
from compress.device import facts
from compress.errors import InputError
from compress.gate import sentence
from compress.quantize.schemes import WEIGHT_SCHEMES, scheme_names, schemes_for
from compress.quantize.ways import METHOD_STEPS, WHAT, Step, Way, base_scheme, steps_for, ways_of
from compress.recipe.spec import Ptq
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, StepTaken
from compress.stages.ptq_files import Source, make_file, make_weight_only, prepared
from compress.stages.ptq_mixed import find_mixed
from compress.stages.ptq_steps import leader, mixed_bases, quality_missed, skip_reason
from compress.stages.ptq_try import Tried, try_file
from compress.stages.trial import Trial


@dataclass(frozen=True)
class Climb:
    """One run of the stage: what was tried so far."""

    source: Source
    baseline: Trial
    tried: list[Tried] = field(default_factory=list)

    def try_way_(self, way: Way, remark: str = "") -> None:
        tried = try_file(self.source, way.name, way, partial(make_file, self.source, way), self.baseline)
        note = "; ".join(filter(None, [tried.candidate.note, remark]))
        self._keep_(Tried(way=way, candidate=replace(tried.candidate, note=note)))

    def try_weights_(self, name: str) -> None:
        scheme = next(scheme for scheme in WEIGHT_SCHEMES if scheme.name == name)
        self._keep_(try_file(self.source, name, None, partial(make_weight_only, self.source, scheme), self.baseline))

    def out_of_time(self, name: str) -> bool:
        """Whether the budget is used up, which is said once."""
        context = self.source.context
        if context.out_of_time():
            context.listener.note(f"budget of {context.recipe.budget.minutes:g} minutes used up before {name}")
        return context.out_of_time()

    def passed(self) -> bool:
        return any(one.candidate.outcome == "pass" for one in self.tried)

    def _keep_(self, one: Tried) -> None:
        self.source.context.listener.found(one.candidate)
        self.tried.append(one)


def run(context: Context, spec: Ptq, model: FloatModel, baseline: Trial) -> list[Candidate]:
    """Every candidate of every step taken. A way that breaks is a failed candidate."""
    _check_excluded(spec, model.path)
    climb = Climb(Source(context, spec, model), baseline)
    if spec.method == "auto":
        # The dearer steps round to 8 bits; narrower grids are what `qat` trains for.
        steps = steps_for(linear_heavy=climb.source.linear_heavy)
        for step in steps if spec.weight_bits == 8 else steps[:1]:
            if climb.out_of_time(step) or not _take_(climb, step):
                break
    else:
        _by_hand_(climb, spec.method)
    return [one.candidate for one in climb.tried]


def _take_(climb: Climb, step: Step) -> bool:
    """Take one step, or say why not. Returns whether the next one is worth a look."""
    listener = climb.source.context.listener
    reason = "" if step == "variants" else skip_reason(step, climb.tried) or _nothing_to_do(climb, step)
    name = f"{climb.source.label}/{step}"
    if reason:
        listener.note(f"{name}: not entered, {reason}")
        listener.stepped(StepTaken(name=name, changed=WHAT[step], why=reason, entered=False))
        return True
    why, before, started = _why(climb, step), len(climb.tried), time.monotonic()
    _try_step_(climb, step)
    made = tuple(one.candidate for one in climb.tried[before:])
    seconds = round(time.monotonic() - started, 2)
    listener.stepped(StepTaken(name=name, changed=WHAT[step], why=why, entered=True, made=made, seconds=seconds))
    return not climb.passed()


def _try_step_(climb: Climb, step: Step) -> None:
    if step == "variants":
        share, bits = climb.source.linear_share, climb.source.spec.weight_bits
        schemes = schemes_for(linear_share=share, method="auto", overflows=facts.overflows_here(), weight_bits=bits)
        ways = [Way(scheme=scheme) for scheme in schemes]
    elif step == "mixed":
        _try_mixed_(climb)
        return
    else:
        ways = ways_of(step, _base(climb))
    for way in ways:
        if climb.out_of_time(way.name):
            return
        climb.try_way_(way)


def _try_mixed_(climb: Climb) -> None:
    for base in mixed_bases(climb.tried, overflows=facts.overflows_here()):
        if climb.passed() or climb.out_of_time(f"mixed precision from {base.name}"):
            return
        found = find_mixed(climb.source, base, climb.baseline)
        climb.source.context.listener.note(f"  mixed from {base.name}: {found.note}")
        if found.way is not None:
            climb.try_way_(found.way, found.note)


def _by_hand_(climb: Climb, method: str) -> None:
    """What the recipe names: a scheme, a step from the scheme that fits this CPU, or a weight-only file."""
    if method in scheme_names():
        share, bits = climb.source.linear_share, climb.source.spec.weight_bits
        climb.try_way_(Way(scheme=schemes_for(linear_share=share, method=method, weight_bits=bits)[0]))
        return
    if method not in METHOD_STEPS:
        climb.try_weights_(method)
        return
    base = Way(scheme=base_scheme(saturates=facts.overflows_here()))
    step = METHOD_STEPS[method]
    if step == "mixed":
        climb.try_way_(base)
        if not climb.passed():
            _try_mixed_(climb)
        return
    for way in ways_of(step, base, method):
        climb.try_way_(way)


def _base(climb: Climb) -> Way:
    best = leader(climb.tried)
    if best is None or best.way is None:
        raise AssertionError("a step is entered only with something to start from")
    return best.way


def _why(climb: Climb, step: Step) -> str:
    best = leader(climb.tried)
    if step == "variants" or best is None:
        return "the cheapest step"
    return f"best so far {best.candidate.name} misses {'; '.join(map(sentence, quality_missed(best.candidate)))}"


def _nothing_to_do(climb: Climb, step: Step) -> str:
    """Why preparing the float file changes nothing of this net; empty when it does."""
    if step != "smooth":
        return ""
    facts_of_it = prepared(climb.source, "smooth").facts
    return "" if facts_of_it["changed"] else "; ".join(facts_of_it["remarks"])


def _check_excluded(spec: Ptq, path: Path) -> None:
    """Raise InputError when `exclude` names a node that is not in the exported file."""
    import onnx

    names = [node.name for node in onnx.load(path).graph.node]
    for name in spec.exclude:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            remedy = f"Did you mean '{close[0]}'?" if close else f"Nodes are {', '.join(names[:6])}, ..."
            raise InputError(f"stages.{spec.label}.exclude", f"no node '{name}' in the exported model", remedy)
