from dataclasses import replace

import numpy as np
import pytest
import torch

from compress import zoo
from compress.zoo import heads, nets, train

PLAN = train.ENTRIES["digits_cnn"].plan


@pytest.fixture(scope="module")
def digits():
    return zoo.digits()


def one_epoch(digits, *, seed=0):
    plan = replace(PLAN, epochs=1, seed=seed)
    return train.trained(zoo.digits_cnn, digits["train"], plan).state_dict()


def same(first, second):
    return all(torch.equal(first[key], second[key]) for key in first)


def test_training_twice_gives_identical_weights_and_another_seed_does_not(digits):
    first, second, other = one_epoch(digits), one_epoch(digits), one_epoch(digits, seed=1)
    assert same(first, second)
    assert not same(first, other)


def test_training_leaves_the_random_state_of_the_caller_alone(digits):
    before = torch.get_rng_state()
    one_epoch(digits)
    assert torch.equal(torch.get_rng_state(), before)


def test_training_teaches_the_net_something(digits):
    net = train.trained(zoo.digits_cnn, digits["train"], replace(PLAN, epochs=3))
    untrained = train.score(zoo.digits_cnn(pretrained=False), digits["select"])
    assert train.score(net, digits["select"]).top1 > max(0.5, untrained.top1)


def test_every_net_of_the_zoo_can_be_trained_again():
    shipped = {path.stem for path in nets.WEIGHTS.glob("*.safetensors")}
    assert shipped == {*train.ENTRIES, *heads.ENTRIES} == {path.stem for path in nets.WEIGHTS.glob("*.json")}
    assert all(entry.factory.__name__ == name for name, entry in train.ENTRIES.items())


def test_an_image_moved_by_nothing_stays_as_it_is():
    images = torch.rand(4, 1, 6, 5)
    still = replace(PLAN, shift_pixels=0, mirror=False)
    assert torch.equal(train.augmented(images, still, torch.Generator().manual_seed(0)), images)


def test_an_augmented_image_is_one_of_its_shifts_or_their_mirrors():
    images = torch.rand(40, 1, 6, 5)
    moved = train.augmented(images, replace(PLAN, shift_pixels=1, mirror=True), torch.Generator().manual_seed(0))
    padded = np.pad(images.numpy()[:, 0], ((0, 0), (1, 1), (1, 1)), mode="edge")
    ways = set()
    for before, after in zip(padded, moved.numpy()[:, 0], strict=True):
        shifts = {(top, left): before[top : top + 6, left : left + 5] for top in range(3) for left in range(3)}
        expected = {(*way, 1): image for way, image in shifts.items()}
        expected |= {(*way, -1): image[:, ::-1] for way, image in shifts.items()}
        matches = [way for way, image in expected.items() if np.array_equal(image, after)]
        assert len(matches) == 1
        ways.update(matches)
    assert len(ways) > 9


def test_the_score_counts_right_answers_over_uneven_batches(digits):
    images, labels = digits["select"]
    net = zoo.digits_cnn()
    with torch.inference_mode():
        expected = int((net(torch.from_numpy(images)).argmax(1).numpy() == labels).sum())
    assert train.score(net, (images, labels), batch=100) == train.Score(correct=expected, n=349)


def test_shipped_files_appear_whole_and_leave_nothing_beside_them(tmp_path):
    net = zoo.digits_cnn()
    train.ship(net, {"seed": 0}, folder=tmp_path / "weights", name="net")
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["net.json", "net.safetensors"]
    again = zoo.digits_cnn(pretrained=False)
    again.load_state_dict(nets.load_file(tmp_path / "weights" / "net.safetensors"))
    assert same(again.state_dict(), net.state_dict())


def test_a_failed_write_keeps_the_old_weights(tmp_path):
    train.ship(zoo.digits_cnn(), {"seed": 0}, folder=tmp_path, name="net")
    before = (tmp_path / "net.json").read_bytes()
    with pytest.raises(TypeError):
        train.ship(zoo.digits_cnn(), {"seed": object()}, folder=tmp_path, name="net")
    assert (tmp_path / "net.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.json", "net.safetensors"]


@pytest.mark.parametrize("switch", [["--epochs", "0"], ["--threads", "-1"], ["--epochs", "many"]])
def test_a_count_that_is_not_positive_is_refused_before_any_work(switch, capsys):
    with pytest.raises(SystemExit) as stopped:
        train.main(["digits_cnn", *switch])
    assert stopped.value.code == 2
    assert switch[0] in capsys.readouterr().err
