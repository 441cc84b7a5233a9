"""The exact text of every kind of mistake: place, fact, remedy."""

from pathlib import Path

import pytest

from compress.errors import RecipeError
from compress.recipe.load import load_recipe


def error_of(path: Path, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


# What stands in the right recipe, what to write instead, and what must be said about it.
PACKAGED = ", ".join(sorted(path.stem for path in (Path(__file__).parents[2] / "recipes").glob("*.yaml")))
EDITS = {
    "a-misspelt-key": (
        "  threads: 2",
        "  thread: 2",
        "x.yaml:8:3: target.thread: unknown key. Did you mean 'threads'?",
    ),
    "a-strange-key": (
        "  threads: 2",
        "  zzz: 2",
        "x.yaml:8:3: target.zzz: unknown key. Allowed here: runtime, provider, threads, batch_sizes.",
    ),
    "a-strange-top-key": (
        "name: mine",
        "name: mine\ngatess: []",
        "x.yaml:3:1: gatess: unknown key. Did you mean 'gates'?",
    ),
    "a-field-name-of-ours": (
        "schema: 1",
        "schema: 1\nschema_: 1",
        "x.yaml:2:1: schema_: unknown key. Did you mean 'schema'?",
    ),
    "a-stage-key": (
        "  - ptq",
        "  - ptq: {metod: auto}",
        "x.yaml:13:11: stages[0].ptq.metod: unknown key. Did you mean 'method'?",
    ),
    "a-stage-field-of-ours": (
        "  - ptq",
        "  - ptq: {from_: model}",
        "x.yaml:13:11: stages[0].ptq.from_: unknown key. Did you mean 'from'?",
    ),
    "kind-is-no-stage-key": (
        "  - ptq",
        "  - ptq: {kind: ptq}",
        "x.yaml:13:11: stages[0].ptq.kind: unknown key. Allowed here: name, from, run, method, exclude, weight_bits.",
    ),
    "a-missing-key": ("name: mine\n", "", "x.yaml:1:1: name: missing. Add name: my-int8."),
    "a-missing-inner-key": (
        "  ref: mymodel:build",
        "  kwargs: {}",
        "x.yaml:3:1: model.ref: missing. Add ref: mymodel:build.",
    ),
    "a-later-schema": (
        "schema: 1",
        "schema: 2",
        "x.yaml:1:1: schema: this version reads schema 1, got 2. Update compress.",
    ),
    "a-true-schema": (
        "schema: 1",
        "schema: true",
        "x.yaml:1:1: schema: this version reads schema 1, got true. Write schema: 1.",
    ),
    "text-for-a-number": (
        "threads: 2",
        "threads: two",
        "x.yaml:8:3: target.threads: expected a whole number, got 'two'.",
    ),
    "quoted-number": (
        "threads: 2",
        "threads: '2'",
        "x.yaml:8:3: target.threads: expected a whole number, got '2'. Remove the quotes.",
    ),
    "fraction-for-a-count": (
        "threads: 2",
        "threads: 2.0",
        "x.yaml:8:3: target.threads: expected a whole number, got 2.0.",
    ),
    "boolean-for-a-count": (
        "threads: 2",
        "threads: on",
        "x.yaml:8:3: target.threads: expected a whole number, got true.",
    ),
    "below-the-least": ("threads: 2", "threads: 0", "x.yaml:8:3: target.threads: must be at least 1, got 0."),
    "not-above": (
        "name: mine",
        "name: mine\nbudget: {minutes: 0}",
        "x.yaml:3:10: budget.minutes: must be above 0, got 0.",
    ),
    "not-below": (
        "max_drop: 0.01",
        "max_relative_drop: 1.0",
        "x.yaml:10:20: gates[0].max_relative_drop: must be below 1, got 1.0.",
    ),
    "nothing-for-a-mapping": (
        'data: {ref: "mymodel:splits"}',
        "data:",
        "x.yaml:5:1: data: expected a mapping, got nothing. Write data: {ref: mymodel:splits}.",
    ),
    "text-for-a-mapping": (
        'data: {ref: "mymodel:splits"}',
        "data: mymodel:splits",
        "x.yaml:5:1: data: expected a mapping, got 'mymodel:splits'. Write data: {ref: mymodel:splits}.",
    ),
    "text-for-a-list": (
        "stages:\n  - ptq",
        "stages: ptq",
        "x.yaml:12:1: stages: expected a list, got 'ptq'. Write [ptq].",
    ),
    "number-for-a-list": (
        "  threads: 2",
        "  batch_sizes: 8",
        "x.yaml:8:3: target.batch_sizes: expected a list, got 8. Write [8].",
    ),
    "number-for-text": ("name: mine", "name: 5", "x.yaml:2:1: name: expected text, got 5. Put it in quotes."),
    "yes-for-text": (
        "name: mine",
        "name: yes",
        "x.yaml:2:1: name: expected text, got true. YAML reads yes, no, on and off as booleans: put it in quotes.",
    ),
    "list-for-text": ("name: mine", "name: [a]", "x.yaml:2:1: name: expected text, got a list."),
    "a-bad-name": (
        "name: mine",
        "name: My Recipe",
        "x.yaml:2:1: name: 'My Recipe' is not a name. Use small letters, digits, - and _, and start with a letter.",
    ),
    "an-empty-list": ("stages:\n  - ptq", "stages: []", "x.yaml:12:1: stages: empty. Add at least one item."),
    "a-long-list": (
        "  threads: 2",
        "  batch_sizes: [1, 2, 3, 4, 5, 6, 7, 8, 9]",
        "x.yaml:8:3: target.batch_sizes: takes at most 8 items, got 9. Remove some.",
    ),
    "an-empty-ref": ("ref: mymodel:build", "ref: ''", "x.yaml:4:3: model.ref: empty. Write e.g. ref: mymodel:build."),
    "a-near-choice": (
        "  threads: 2",
        "  provider: cudaa",
        "x.yaml:8:3: target.provider: expected cpu or cuda or tensorrt, got 'cudaa'. Did you mean 'cuda'?",
    ),
    "a-boolean-choice": (
        "min: 1.5",
        "min: 1.5, undecided: no",
        "x.yaml:11:33: gates[1].undecided: expected fail or accept, got false. Write fail or accept.",
    ),
    "an-export-choice": (
        "name: mine",
        "name: mine\nexport: [onx]",
        "x.yaml:3:10: export[0]: expected onnx, got 'onx'. Did you mean 'onnx'?",
    ),
    "two-limits": (
        "min: 1.5",
        "min: 1.5, max: 2",
        "x.yaml:11:5: gates[1]: a gate takes one of max_drop, max_relative_drop, min, max; got min, max.",
    ),
    "no-limit": (
        ", min: 1.5",
        "",
        "x.yaml:11:5: gates[1]: a gate takes one of max_drop, max_relative_drop, min, max; got none.",
    ),
    "number-as-metric": (
        "metric: top1\ntarget",
        "metric: 5\ntarget",
        "x.yaml:6:1: metric: expected text or a mapping, got 5. Put it in quotes.",
    ),
    "half-a-metric": (
        "metric: top1\ntarget",
        "metric: {ref: 'mymodel:f1'}\ntarget",
        "x.yaml:6:1: metric.direction: missing. Add direction: higher.",
    ),
    # YAML's own surprises
    "exponent-without-point": (
        "max_drop: 0.01",
        "max_drop: 1e-4",
        "x.yaml:10:20: gates[0].max_drop: YAML reads 1e-4 as text, not as a number. "
        "Write 1.0e-4, or quotes around it if text is meant.",
    ),
    "exponent-without-sign": (
        "  ref: mymodel:build",
        "  ref: mymodel:build\n  kwargs: {scale: 1.5e3}",
        "x.yaml:5:12: model.kwargs.scale: YAML reads 1.5e3 as text, not as a number. "
        "Write 1.5e+3, or quotes around it if text is meant.",
    ),
    "not-a-number": (
        "max_drop: 0.01",
        "max_drop: .nan",
        "x.yaml:10:20: gates[0].max_drop: .nan is not a finite number. Write a finite number.",
    ),
    "infinity": (
        "min: 1.5",
        "min: -.inf",
        "x.yaml:11:23: gates[1].min: -.inf is not a finite number. Write a finite number.",
    ),
    "too-large-a-fraction": (
        "min: 1.5",
        "min: 1.0e+999",
        "x.yaml:11:23: gates[1].min: 1.0e+999 is too large a number. Write a smaller one.",
    ),
    "too-large-a-number": (
        "threads: 2",
        "threads: 9223372036854775808",
        "x.yaml:8:3: target.threads: 9223372036854775808 is too large a number. Write a smaller one.",
    ),
    "octal": (
        "threads: 2",
        "threads: 010",
        "x.yaml:8:3: target.threads: 010 is not a plain decimal number. "
        "Write it in decimal, without leading zeros, or in quotes if it is text.",
    ),
    "base-sixty": (
        "name: mine",
        "name: mine\nbudget: {minutes: 1:30}",
        "x.yaml:3:10: budget.minutes: 1:30 is not a plain decimal number. "
        "Write it in decimal, without leading zeros, or in quotes if it is text.",
    ),
    "a-date": (
        "name: mine",
        "name: 2024-01-31",
        "x.yaml:2:1: name: YAML reads 2024-01-31 as a date. Put it in quotes.",
    ),
    "a-duplicate-key": (
        "  threads: 2",
        "  threads: 2\n  threads: 3",
        "x.yaml:9:3: target.threads: duplicate key, first given at 8:3. Remove one.",
    ),
    "a-boolean-key": (
        "  threads: 2",
        "  threads: 2\n  on: 3",
        "x.yaml:9:3: target: the key on is a boolean in YAML, and keys must be text. Put it in quotes.",
    ),
    "a-number-key": (
        "name: mine",
        "name: mine\n7: 3",
        "x.yaml:3:1: the key 7 is a number in YAML, and keys must be text. Put it in quotes.",
    ),
    "a-list-key": ("name: mine", "name: mine\n? [a]\n: 3", "x.yaml:3:3: a key must be text. Name it."),
    "an-anchor": (
        "  threads: 2",
        "  threads: &two 2",
        "x.yaml:8:12: no anchors (&two) in a recipe. Write the value out.",
    ),
    "a-merge-key": (
        "  threads: 2",
        "  <<: {threads: 2}",
        "x.yaml:8:3: target: no merge keys (<<) in a recipe. Write the values out.",
    ),
    "a-python-tag": (
        "name: mine",
        "name: !!python/object/apply:os.system [ls]",
        "x.yaml:2:7: no tags (!!python/object/apply:os.system) in a recipe. Write a plain value.",
    ),
    "a-harmless-tag": (
        "threads: 2",
        "threads: !!int 2",
        "x.yaml:8:12: no tags (!!int) in a recipe. Write a plain value.",
    ),
    "a-surrogate": (
        "name: mine",
        'name: "\\ud800"',
        "x.yaml:2:1: name: the text holds half of a surrogate pair. Write the character itself.",
    ),
    "no-such-character": (
        "name: mine",
        'name: "\\U00110000"',
        "x.yaml:2:10: an escape that names no character. Write the character itself.",
    ),
    "a-control-character": (
        "name: mine",
        "name: mi\x00ne",
        "x.yaml:2:9: the character U+0000 cannot stand in YAML. Remove it.",
    ),
    "a-tab": ("  threads: 2", "\tthreads: 2", "x.yaml:8:1: a tab where YAML wants spaces. Indent with spaces."),
    "an-open-quote": (
        "metric: top1\ntarget",
        'metric: "top1\ntarget',
        "x.yaml:6:9: the quote opened here is never closed. Close it.",
    ),
    "a-quote-closed-by-the-next-one": (
        "name: mine",
        'name: "mine',
        "x.yaml:2:7: the quote opened here runs on to line 5. Close it.",
    ),
    "an-open-bracket": (
        "max_drop: 0.01}",
        "max_drop: 0.01",
        "x.yaml:10:5: the bracket opened here is not closed. Close it or add a comma.",
    ),
    "a-bad-indent": (
        "  threads: 2",
        "  threads: 2\n   batch_sizes: [1]",
        "x.yaml:9:15: a ': ' that does not belong here. Indent it like its neighbours.",
    ),
    "an-outdent": (
        "gates:",
        " gates:",
        "x.yaml:9:2: the indentation does not fit the lines above. Align it with them.",
    ),
    "no-colon": (
        "name: mine",
        "name mine",
        "x.yaml:2:1: neither `key: value` nor a list item. Add the ':' after the key.",
    ),
    "an-at-sign": ("name: mine", "name: @mine", "x.yaml:2:7: text cannot start with this character. Put it in quotes."),
    "two-documents": (
        "name: mine",
        "name: mine\n---\nschema: 1",
        "x.yaml:3:1: a second document starts here. Keep one recipe per file.",
    ),
    # stages
    "an-unknown-stage": ("  - ptq", "  - ptqq", "x.yaml:13:5: stages[0]: unknown stage 'ptqq'. Did you mean 'ptq'?"),
    "an-unknown-stage-with-keys": (
        "  - ptq",
        "  - zzz: {a: 1}",
        "x.yaml:13:5: stages[0]: unknown stage 'zzz'. Known: ptq, qat, prune.",
    ),
    "a-pruned-share-of-nothing": (
        "  - ptq",
        "  - ptq\n  - prune: {keep: 0}",
        "x.yaml:14:13: stages[1].prune.keep: must be above 0, got 0.",
    ),
    "a-pruned-share-of-everything": (
        "  - ptq",
        "  - ptq\n  - prune: {keep: 1}",
        "x.yaml:14:13: stages[1].prune.keep: must be below 1, got 1.",
    ),
    "an-unknown-key-inside-a-stage": (
        "  - ptq",
        "  - ptq\n  - prune: {finetune: {epoch: 3}}",
        "x.yaml:14:24: stages[1].prune.finetune.epoch: unknown key. Did you mean 'epochs'?",
    ),
    "an-unknown-finisher": (
        "  - ptq",
        "  - ptq\n  - prune: {then: [ptk]}",
        "x.yaml:14:20: stages[1].prune.then[0]: no quantization stage is named 'ptk'. Did you mean 'ptq'?",
    ),
    "pruning-from-a-rounded-candidate": (
        "  - ptq",
        "  - ptq\n  - prune: {from: ptq}",
        "x.yaml:14:13: stages[1].prune.from: prune takes a float candidate, but 'ptq' makes int8. "
        "Remove `from`, or name a float one: model.",
    ),
    "a-planned-stage": (
        "  - ptq",
        "  - ptq\n  - distill: {epochs: 3}",
        "x.yaml:14:5: stages[1]: stage 'distill' is not available in this version. "
        "Remove it; available: ptq, qat, prune.",
    ),
    "a-key-of-another-stage": (
        "  - ptq",
        "  - ptq: {epochs: 3}",
        "x.yaml:13:11: stages[0].ptq.epochs: unknown key. Allowed here: name, from, run, method, exclude, weight_bits.",
    ),
    "a-misspelt-key-of-qat": (
        "  - ptq",
        "  - ptq\n  - qat: {epoch: 3}",
        "x.yaml:14:11: stages[1].qat.epoch: unknown key. Did you mean 'epochs'?",
    ),
    "no-epochs": (
        "  - ptq",
        "  - qat: {epochs: 0}",
        "x.yaml:13:11: stages[0].qat.epochs: must be at least 1, got 0.",
    ),
    "five-bits": (
        "  - ptq",
        "  - qat: {weight_bits: 5}",
        "x.yaml:13:11: stages[0].qat.weight_bits: expected 8 or 4 or 3, got 5. Write 8 or 4 or 3.",
    ),
    "narrow-weights-of-a-scheme-without-them": (
        "  - ptq",
        "  - ptq: {method: u8u8-tensor, weight_bits: 4}",
        "x.yaml:13:32: stages[0].ptq.weight_bits: u8u8-tensor keeps weights of 8 bits. "
        "Remove it, or write method: u8s8-channel.",
    ),
    "a-stage-of-two-keys": (
        "  - ptq",
        "  - ptq: {}\n    name: a",
        "x.yaml:13:5: stages[0]: a stage is one name, or one name with its mapping; got 2 keys. "
        "Write ptq, or ptq: {method: auto}.",
    ),
    "a-stage-with-text": (
        "  - ptq",
        "  - ptq: auto",
        "x.yaml:13:5: stages[0].ptq: expected a mapping, got 'auto'. Write ptq, or ptq: {key: value}.",
    ),
    "a-name-taken": (
        "  - ptq",
        "  - ptq\n  - ptq",
        "x.yaml:14:5: stages[1]: the stage name 'ptq' is taken. Give it another, e.g. ptq: {name: ptq-2}.",
    ),
    "from-nowhere": (
        "  - ptq",
        "  - ptq: {from: modell}",
        "x.yaml:13:11: stages[0].ptq.from: no earlier stage is named 'modell'. Did you mean 'model'?",
    ),
    "from-the-wrong-form": (
        "  - ptq",
        "  - ptq\n  - ptq: {name: second, from: ptq}",
        "x.yaml:14:25: stages[1].ptq.from: ptq takes a float candidate, but 'ptq' makes int8. "
        "Remove `from`, or name a float one: model.",
    ),
    # gates and metrics
    "an-unknown-gate-metric": (
        "metric: speedup",
        "metric: speadup",
        "x.yaml:11:6: gates[1].metric: unknown metric 'speadup'. Did you mean 'speedup'?",
    ),
    "a-speed-held-to-max": (
        "min: 1.5",
        "max: 1.5",
        "x.yaml:11:23: gates[1].max: speedup cannot be held to max. It takes min.",
    ),
    "a-latency-held-to-min": (
        "speedup, min: 1.5",
        "latency_p50_ms, min: 3",
        "x.yaml:11:30: gates[1].min: latency_p50_ms cannot be held to min. It takes max.",
    ),
    "a-speed-held-to-a-drop": (
        "min: 1.5",
        "max_drop: 1",
        "x.yaml:11:23: gates[1].max_drop: speedup cannot be held to max_drop. It takes min.",
    ),
    "a-size-held-to-min": (
        "speedup, min: 1.5",
        "size_ratio, min: 0.5",
        "x.yaml:11:26: gates[1].min: size_ratio cannot be held to min. It takes max.",
    ),
    "a-cosine-held-to-max": (
        "speedup, min: 1.5",
        "cosine, max: 0.5",
        "x.yaml:11:22: gates[1].max: cosine cannot be held to max. It takes min.",
    ),
    "a-drop-in-percent": (
        "max_drop: 0.01",
        "max_drop: 2",
        "x.yaml:10:20: gates[0].max_drop: top1 runs from 0 to 1, got 2. One point in a hundred is 0.01.",
    ),
    "a-speed-of-nothing": ("min: 1.5", "min: 0", "x.yaml:11:23: gates[1].min: must be above 0, got 0."),
    "an-unknown-metric": (
        "metric: top1\ntarget",
        "metric: top5\ntarget",
        "x.yaml:6:1: metric: unknown metric 'top5'. Did you mean 'top1'?",
    ),
    # target, references, weights
    "a-planned-provider": (
        "  threads: 2",
        "  provider: cuda",
        "x.yaml:8:3: target.provider: provider 'cuda' is not available in this version. Write cpu.",
    ),
    "a-batch-size-twice": (
        "  threads: 2",
        "  batch_sizes: [1, 8, 1]",
        "x.yaml:8:23: target.batch_sizes[2]: 1 is given twice. Remove one.",
    ),
    "a-planned-reference": (
        "ref: mymodel:build",
        "ref: timm:resnet18",
        "x.yaml:4:3: model.ref: `timm:` references are not available in this version. Use package.module:function.",
    ),
    "a-dot-for-a-colon": (
        "ref: mymodel:build",
        "ref: mymodel.build",
        "x.yaml:4:3: model.ref: 'mymodel.build' is not package.module:function. Did you mean 'mymodel:build'?",
    ),
    "a-file-for-a-module": (
        "ref: mymodel:build",
        "ref: mymodel.py:build",
        "x.yaml:4:3: model.ref: 'mymodel.py' is a file, and a reference names a module. Write 'mymodel:build'.",
    ),
    "a-missing-module": (
        "ref: mymodel:build",
        "ref: mymodell:build",
        "x.yaml:4:3: model.ref: no module named 'mymodell' on the path "
        "(looked in: current folder, the recipe's folder, installed packages). Check the spelling.",
    ),
    "a-missing-function": (
        'ref: "mymodel:splits"',
        'ref: "mymodel:split"',
        "x.yaml:5:8: data.ref: no 'split' in mymodel.py. Did you mean 'splits'?",
    ),
    "remote-code": (
        "  ref: mymodel:build",
        "  ref: mymodel:build\n  kwargs: {deep: [{trust_remote_code: true}]}",
        "x.yaml:5:20: model.kwargs.deep[0].trust_remote_code: trust_remote_code would run code from a download. "
        "Keep the code you trust in a module of your own.",
    ),
    "a-pickle": (
        "  ref: mymodel:build",
        "  ref: mymodel:build\n  weights: net.pt",
        "x.yaml:5:3: model.weights: 'net.pt' is a pickle, and a pickle can run code. "
        "Convert it with safetensors.torch.save_file.",
    ),
    "strange-weights": (
        "  ref: mymodel:build",
        "  ref: mymodel:build\n  weights: net.h5",
        "x.yaml:5:3: model.weights: 'net.h5' does not end in .safetensors. Save it as safetensors.",
    ),
    "missing-weights": (
        "  ref: mymodel:build",
        "  ref: mymodel:build\n  weights: net.safetensors",
        "x.yaml:5:3: model.weights: no file 'net.safetensors'. The path counts from the recipe's folder.",
    ),
}


@pytest.mark.parametrize(("before", "after", "message"), EDITS.values(), ids=EDITS.keys())
def test_a_mistake_is_told_with_its_place_and_its_remedy(recipe_file: Path, before: str, after: str, message: str):
    text = recipe_file.read_text()
    assert text.count(before) == 1
    recipe_file.write_text(text.replace(before, after))
    assert error_of(recipe_file) == message


WHOLE_FILES = {
    "empty": (b"", "x.yaml:1:1: the recipe is empty. Start from one that works: compress cp int8 ."),
    "comments-only": (b"# soon\n", "x.yaml:1:1: the recipe is empty. Start from one that works: compress cp int8 ."),
    "a-list": (b"- ptq\n", "x.yaml:1:1: a recipe is a mapping of keys, got a list. Start with: schema: 1."),
    "a-word": (b"\n ptq\n", "x.yaml:2:2: a recipe is a mapping of keys, got 'ptq'. Start with: schema: 1."),
    "not-utf-8": (b"schema: 1\nname: \xff\n", "x.yaml:2:7: byte 0xff is not UTF-8. Save the file as UTF-8."),
    "an-alias-bomb": (
        b"a: &a [x, x]\nb: &b [*a, *a]\n",
        "x.yaml:1:4: no anchors (&a) in a recipe. Write the value out.\n"
        "x.yaml:2:4: no anchors (&b) in a recipe. Write the value out.\n"
        "x.yaml:2:8: no aliases (*a) in a recipe. Write the value out.\n"
        "x.yaml:2:12: no aliases (*a) in a recipe. Write the value out.",
    ),
    "too-large": (b"#" * (256 * 1024 + 1), "x.yaml: larger than 256 KiB, so not a recipe. Check the path."),
}


@pytest.mark.parametrize(("content", "message"), WHOLE_FILES.values(), ids=WHOLE_FILES.keys())
def test_a_file_that_is_no_recipe_is_told_apart(recipe_file: Path, content: bytes, message: str):
    recipe_file.write_bytes(content)
    assert error_of(recipe_file) == message


@pytest.mark.parametrize("levels", [40, 5000])
def test_deep_nesting_is_refused_in_one_line(recipe_file: Path, levels: int):
    recipe_file.write_text("a: " + "[" * levels + "]" * levels)
    assert error_of(recipe_file) == "x.yaml:1:35: nested more than 32 levels deep. Flatten it."


def test_every_problem_is_told_in_file_order(recipe_file: Path):
    text = recipe_file.read_text()
    for before, after in {
        "threads: 2": "threads: 0",
        "name: mine": "name: 5",
        "- ptq": "- ptqq",
        "0.01": "1e-4",
    }.items():
        text = text.replace(before, after)
    recipe_file.write_text(text)
    assert [line.split(": ")[:2] for line in error_of(recipe_file).splitlines()] == [
        ["x.yaml:2:1", "name"],
        ["x.yaml:8:3", "target.threads"],
        ["x.yaml:10:20", "gates[0].max_drop"],
        ["x.yaml:13:5", "stages[0]"],
    ]


def test_a_missing_file_points_at_the_packaged_recipes(folder: Path):
    assert error_of(Path("int8x.yaml")) == (
        f"int8x.yaml: no such file. Packaged recipes: {PACKAGED}. Copy one with: compress cp int8 ."
    )


def test_a_folder_is_no_recipe(folder: Path):
    (folder / "sub").mkdir()
    assert error_of(Path("sub")) == "sub: this is a folder, not a recipe. Name the .yaml file."


def test_a_syntax_error_in_the_users_module_has_its_own_line(recipe_file: Path):
    Path("mymodel.py").write_text("def build():\n    return (\n")
    assert error_of(recipe_file).splitlines() == [
        "x.yaml:4:3: model.ref: mymodel.py:2:12 is not valid Python: '(' was never closed. Fix the file.",
        "x.yaml:5:8: data.ref: mymodel.py:2:12 is not valid Python: '(' was never closed. Fix the file.",
    ]


OVERRIDES = {
    "a-misspelt-stage-key": (
        "stages.ptq.metod=x",
        "--set stages.ptq.metod: unknown key. Did you mean 'method'?",
    ),
    "a-misspelt-section": ("budgett.minutes=5", "--set budgett.minutes: budgett: unknown key. Did you mean 'budget'?"),
    "a-misspelt-stage": (
        "stages.ptqq.method=x",
        "--set stages.ptqq.method: no stage named 'ptqq'. Did you mean 'ptq'?",
    ),
    "a-misspelt-stage-value": ("stages[0]=ptqq", "--set stages[0]: unknown stage 'ptqq'. Did you mean 'ptq'?"),
    "a-wrong-value": ("target.threads=0", "--set target.threads: must be at least 1, got 0."),
    "an-unmade-section": ("budget.minutes=0", "--set budget.minutes: must be above 0, got 0."),
    "an-inner-value": ("target={threads: 0}", "--set target: target.threads: must be at least 1, got 0."),
    "a-second-limit": (
        "gates[1].max=2",
        "--set gates[1].max: gates[1]: a gate takes one of max_drop, max_relative_drop, min, max; got min, max.",
    ),
    "an-index-too-far": (
        "gates[2].min=1",
        "--set gates[2].min: gates has 2 items, counted from 0. Set the whole list to add one.",
    ),
    "an-index-of-no-list": ("target[0]=1", "--set target[0]: target is a mapping, not a list. Leave the [index] out."),
    "a-key-of-no-mapping": ("name.first=1", "--set name.first: name is 'mine', not a mapping. Set name as a whole."),
    "no-equals": ("target.threads", "--set target.threads: no value. Write --set key.path=value."),
    "no-value": ("target.threads=", "--set target.threads: no value. Write --set key.path=value."),
    "no-key-path": (
        "target..threads=1",
        "--set target..threads: not a key path. Write it like target.threads, gates[0].min or stages.ptq.method.",
    ),
    "broken-yaml": (
        "target.batch_sizes=[1",
        "--set target.batch_sizes: the bracket opened here is not closed. Close it or add a comma.",
    ),
    "a-tag": (
        "name=!!python/name:os.system x",
        "--set name: no tags (!!python/name:os.system) in a recipe. Write a plain value.",
    ),
    "a-contradiction": (
        "target.provider=cuda",
        "--set target.provider: provider 'cuda' is not available in this version. Write cpu.",
    ),
    "a-reference": ("model.ref=mymodel:buildd", "--set model.ref: no 'buildd' in mymodel.py. Did you mean 'build'?"),
}


@pytest.mark.parametrize(("override", "message"), OVERRIDES.values(), ids=OVERRIDES.keys())
def test_a_mistake_in_an_override_stands_at_the_override(recipe_file: Path, override: str, message: str):
    assert error_of(recipe_file, override) == message
