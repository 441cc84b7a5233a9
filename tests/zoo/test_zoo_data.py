import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compress import zoo
from compress.errors import InputError
from compress.zoo import make_data, sources, splits

SPLITS = ("train", "calibration", "select", "confirm")
debian = pytest.mark.skipif(not sources.DEBIAN.is_dir(), reason="needs the apt package dataset-fashion-mnist")


@pytest.fixture(scope="module")
def fashion():
    return zoo.fashion_mnist()


@pytest.fixture(scope="module")
def digits():
    return zoo.digits()


def sizes(data):
    return {name: len(labels) for name, (_, labels) in data.items()}


def hashes(images):
    return [hashlib.sha256(image.tobytes()).hexdigest() for image in images]


def idx(array, kind=8):
    header = bytes([0, 0, kind, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return gzip.compress(header + array.tobytes(), mtime=0)


def write_idx_files(folder, *, train, test):
    for stem, (images, labels) in (("train", train), ("t10k", test)):
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(idx(labels))


def random_set(n, *, seed):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (n, 28, 28), dtype=np.uint8), (np.arange(n) % 10).astype(np.uint8)


def test_the_embedded_fashion_set_has_the_promised_sizes(fashion):
    assert sizes(fashion) == {"train": 9000, "calibration": 1000, "select": 5000, "confirm": 5000}


def test_the_digits_have_the_promised_sizes(digits):
    assert sizes(digits) == {"train": 899, "calibration": 200, "select": 349, "confirm": 349}


@pytest.mark.parametrize(("name", "side"), [("fashion_mnist", 28), ("digits", 8)])
def test_every_split_holds_float32_images_with_a_channel_and_int64_labels(name, side):
    for images, labels in getattr(zoo, name)().values():
        assert images.shape == (len(labels), 1, side, side)
        assert (images.dtype, labels.dtype) == (np.float32, np.int64)
        assert set(labels.tolist()) == set(range(10))


@pytest.mark.parametrize("name", ["fashion_mnist", "digits"])
def test_no_image_stands_in_two_splits_nor_twice_in_one(name):
    seen = [key for images, _ in getattr(zoo, name)().values() for key in hashes(images)]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("split", SPLITS)
def test_every_fashion_split_holds_each_class_equally_often(fashion, split):
    counts = np.bincount(fashion[split][1], minlength=10)
    assert set(counts) == {len(fashion[split][1]) // 10}


@pytest.mark.parametrize("split", SPLITS)
def test_every_digits_split_holds_each_class_in_its_share(digits, split):
    everything = np.concatenate([labels for _, labels in digits.values()])
    labels = digits[split][1]
    share = np.bincount(everything, minlength=10) / len(everything)
    assert np.abs(np.bincount(labels, minlength=10) - share * len(labels)).max() <= 2


def test_the_first_calibration_samples_are_balanced_too(fashion):
    assert np.ptp(np.bincount(fashion["calibration"][1][:512], minlength=10)) <= 1


def test_fashion_pixels_are_normalised_by_the_published_mean_and_deviation(fashion):
    with np.load(sources.DATA / "fashion_mnist.npz", allow_pickle=False) as arrays:
        raw = arrays["train_images"][1000:].astype(np.float64)
    expected = (raw / 255 - 0.2860) / 0.3530
    # float32 rounds each of three steps by at most 6e-8 of values below 2.1
    np.testing.assert_allclose(fashion["train"][0][:, 0], expected, atol=1e-6)
    assert abs(expected.mean()) < 0.02
    assert abs(expected.std() - 1) < 0.02


def test_digits_are_scaled_to_the_unit_interval(digits):
    values = np.concatenate([images.ravel() for images, _ in digits.values()])
    assert (values.min(), values.max()) == (0, 1)
    assert np.array_equal(values * 16, np.round(values * 16))


def test_the_digits_are_those_of_scikit_learn():
    sklearn_datasets = pytest.importorskip("sklearn.datasets")
    bunch = sklearn_datasets.load_digits()
    theirs = {
        (image.astype(np.float32).tobytes(), label) for image, label in zip(bunch.images, bunch.target, strict=True)
    }
    ours = {
        ((image[0] * 16).tobytes(), label)
        for images, labels in zoo.digits().values()
        for image, label in zip(images, labels, strict=True)
    }
    assert ours == theirs


def test_an_unknown_source_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"unknown source 'web'\. Use one of embedded, debian"):
        zoo.fashion_mnist(source="web")


def test_the_missing_debian_files_name_the_package_to_install(tmp_path):
    with pytest.raises(InputError, match="apt-get install dataset-fashion-mnist"):
        sources.fashion_mnist(source="debian", folder=tmp_path / "absent")


def test_a_damaged_debian_file_is_refused_by_name(tmp_path):
    write_idx_files(tmp_path, train=random_set(20, seed=1), test=random_set(20, seed=2))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(b"not gzip")
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte\.gz: cannot be read"):
        sources.fashion_mnist(source="debian", folder=tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(gzip.compress(b""), id="empty"),
        pytest.param(gzip.compress(b"\0\0\x08"), id="no dimensions"),
        pytest.param(gzip.compress(b"\0\0\x08\x01"), id="no sizes"),
        pytest.param(idx(np.zeros(4, np.uint8), kind=13), id="floats"),
        pytest.param(idx(np.zeros(4, np.uint8))[:-9], id="archive cut short"),
        pytest.param(gzip.compress(gzip.decompress(idx(np.zeros(4, np.uint8)))[:-1]), id="one byte short"),
    ],
)
def test_a_file_that_is_no_idx_file_of_bytes_is_refused(tmp_path, content):
    write_idx_files(tmp_path, train=random_set(20, seed=1), test=random_set(20, seed=2))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"train-labels-idx1-ubyte\.gz"):
        sources.fashion_mnist(source="debian", folder=tmp_path)


def test_labels_that_do_not_match_the_images_are_refused(tmp_path):
    images, labels = random_set(20, seed=1)
    write_idx_files(tmp_path, train=(images, labels[:-1]), test=random_set(20, seed=2))
    with pytest.raises(InputError, match="20 images but 19 labels"):
        sources.fashion_mnist(source="debian", folder=tmp_path)


def test_duplicates_are_dropped_from_train_and_kept_once_in_test(tmp_path):
    (train_images, train_labels), (test_images, test_labels) = random_set(1500, seed=1), random_set(40, seed=2)
    train_images[0] = test_images[0]
    train_images[11] = train_images[1]
    test_images[13] = test_images[3]
    write_idx_files(tmp_path, train=(train_images, train_labels), test=(test_images, test_labels))
    data = sources.fashion_mnist(source="debian", folder=tmp_path)
    assert sizes(data) == {"train": 498, "calibration": 1000, "select": 19, "confirm": 20}
    seen = [key for images, _ in data.values() for key in hashes(images)]
    assert len(seen) == len(set(seen))


@debian
def test_the_debian_source_only_adds_training_images(fashion):
    full = zoo.fashion_mnist(source="debian")
    assert sizes(full) == {"train": 59000, "calibration": 1000, "select": 5000, "confirm": 5000}
    for split in ("calibration", "select", "confirm"):
        assert np.array_equal(full[split][0], fashion[split][0])
        assert np.array_equal(full[split][1], fashion[split][1])
    assert np.array_equal(full["train"][0][:9000], fashion["train"][0])


def test_making_the_data_twice_gives_the_same_bytes(tmp_path, monkeypatch):
    write_idx_files(tmp_path, train=random_set(50, seed=1), test=random_set(20, seed=2))
    monkeypatch.setattr(sources, "DATA", tmp_path / "made")
    made = []
    for _ in range(2):
        assert make_data.main([str(tmp_path)]) == 0
        made.append((tmp_path / "made" / "fashion_mnist.npz").read_bytes())
    assert made[0] == made[1]


def test_making_the_data_without_its_source_says_what_to_install(tmp_path, capsys):
    assert make_data.main([str(tmp_path / "absent")]) == 2
    assert "apt-get install dataset-fashion-mnist" in capsys.readouterr().err


def test_the_shipped_archives_stay_small():
    assert (sources.DATA / "fashion_mnist.npz").stat().st_size <= 9_500_000
    assert (sources.DATA / "digits.npz").stat().st_size <= 60_000


def test_importing_the_zoo_needs_neither_torch_nor_numpy():
    code = "import sys, compress.zoo; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    root = Path(__file__).parents[2]
    answer = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.data())
def test_any_slice_of_the_stratified_order_holds_each_class_in_its_share(classes, data):
    labels = np.array(classes)
    images = np.arange(len(labels), dtype=np.int64)[:, None]
    order = splits.stratified_order(images, labels)
    start = data.draw(st.integers(0, len(labels)))
    stop = data.draw(st.integers(start, len(labels)))
    assert sorted(order.tolist()) == list(range(len(labels)))
    share = np.bincount(labels, minlength=4) / len(labels)
    held = np.bincount(labels[order[start:stop]], minlength=4)
    assert np.abs(held - share * (stop - start)).max() <= 4


@given(st.permutations(range(30)))
def test_the_stratified_order_does_not_depend_on_the_order_of_the_file(permutation):
    images = np.arange(30, dtype=np.int64)[:, None]
    labels = np.arange(30) % 3
    shuffled = np.array(permutation)
    expected = images[splits.stratified_order(images, labels)]
    again = images[shuffled][splits.stratified_order(images[shuffled], labels[shuffled])]
    assert np.array_equal(again, expected)


def test_another_seed_gives_another_order():
    images, labels = np.arange(100)[:, None], np.arange(100) % 10
    first, second = (splits.stratified_order(images, labels, seed=seed) for seed in (0, 1))
    assert not np.array_equal(first, second)
