"""Patches of natural images, prepared as in Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, section 4.

Log intensity, the patch's mean removed, projected on the leading principal components and whitened.  All statistics
come from the training photographs; held-out patches come from other photographs.

The photographs ship with scikit-learn and scikit-image, so nothing is downloaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TRAINING = ("china", "coffee", "chelsea", "rocket")
HELD_OUT = ("flower", "camera", "astronaut")
WITH_SCIKIT_LEARN = ("china", "flower")
#: Beside a checkout of this repository, if at all: prepared patches, and the image.
VAN_HATEREN = Path(__file__).resolve().parents[3] / "shared" / "cases" / "vanhateren_patches36.npz"
VAN_HATEREN_IMAGE = VAN_HATEREN.with_name("vanhateren_image.tiff")


@dataclass(frozen=True)
class Patches:
    """Whitened patches, train (N, M) and held-out (R, M), and where they come from."""

    train: np.ndarray
    test: np.ndarray
    source: str
    whitening: "Whitening | None" = None  # None where it is not known


@dataclass(frozen=True)
class Whitening:
    """What the training patches teach: their mean pixel by pixel (W^2,), and the whitening matrix (M, W^2)."""

    mean: np.ndarray
    matrix: np.ndarray

    def __call__(self, patches: np.ndarray) -> np.ndarray:
        return (patches - self.mean) @ self.matrix.T

    def to_pixels(self, directions: np.ndarray) -> np.ndarray:
        """Return the patches (n, W^2) that whitened directions (n, M) stand for."""
        return directions @ np.linalg.pinv(self.matrix).T


def load_photograph(name: str) -> np.ndarray:
    """Return the grey values of a photograph (height, width), 0 to 255."""
    try:
        if name in WITH_SCIKIT_LEARN:
            from sklearn.datasets import load_sample_image

            image = load_sample_image(f"{name}.jpg")
        else:
            import skimage.data

            image = getattr(skimage.data, name)()
    except ImportError as error:
        raise ImportError(
            f"The photograph {name!r} needs scikit-learn, scikit-image and Pillow: "
            "python -m pip install scikit-learn scikit-image pillow"
        ) from error
    return image.astype(float) if image.ndim == 2 else image @ np.array([0.2125, 0.7154, 0.0721])


def load_van_hateren_image() -> np.ndarray:
    """Return the intensities of a van Hateren image (height, width), integers; it needs Pillow."""
    from PIL import Image

    with Image.open(VAN_HATEREN_IMAGE) as file:
        return np.asarray(file, dtype=float)


def cut(names: Sequence[str], n: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Cut n patches (n, W^2) of log intensity without their means, equally many from each photograph."""
    return cut_images([load_photograph(name) for name in names], n, width, rng)


def cut_images(images: Sequence[np.ndarray], n: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Cut n patches (n, W^2) of log intensity without their means, equally many from each image of integers."""
    parts = []
    for i, image in enumerate(images):
        # Grey values are integers.  Spread over the unit that each stands for, they have a density: without that the
        # likelihood of a flat piece of sky would be unbounded.
        image = np.log1p(image + rng.uniform(size=image.shape))
        windows = np.lib.stride_tricks.sliding_window_view(image, (width, width))
        share = n // len(images) + (i < n % len(images))
        rows, columns = (rng.integers(size, size=share) for size in windows.shape[:2])
        parts.append(windows[rows, columns].reshape(share, -1))
    patches = np.concatenate(parts)
    return rng.permutation(patches - patches.mean(axis=1, keepdims=True))


def learn_whitening(patches: np.ndarray, n_components: int) -> Whitening:
    """Project on the leading principal components, each scaled to variance one."""
    mean = patches.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov(patches, rowvar=False))
    leading = np.argsort(-variances)[:n_components]
    return Whitening(mean, (directions[:, leading] / np.sqrt(variances[leading])).T)


def load_patches(
    n_components: int = 36,
    width: int = 16,
    n_train: int = 10_000,
    n_test: int = 100,
    training: Sequence[str] = TRAINING,
    held_out: Sequence[str] = HELD_OUT,
    seed: int = 2012,
) -> Patches:
    """Prepare patches of photographs; no photograph may be in both sets."""
    if both := set(training) & set(held_out):
        raise ValueError(f"Hold out other photographs than those trained on; both sets have {sorted(both)}.")
    streams = np.random.default_rng(seed).spawn(2)
    train, test = cut(training, n_train, width, streams[0]), cut(held_out, n_test, width, streams[1])
    source = f"{width}x{width} patches; trained on {', '.join(training)}; held out {', '.join(held_out)}"
    return whitened(train, test, n_components, source)


def whitened(train: np.ndarray, test: np.ndarray, n_components: int, source: str) -> Patches:
    """Whiten both sets as the training patches say."""
    whiten = learn_whitening(train, n_components)
    return Patches(whiten(train), whiten(test), source, whiten)


def load_van_hateren(n_test: int = 100, n_components: int = 36) -> Patches:
    """Load prepared 16x16 patches of a van Hateren image, at most 36 components; both sets are of the same image."""
    if not VAN_HATEREN.exists():
        raise FileNotFoundError(f"No van Hateren patches at {VAN_HATEREN}; load_patches() needs no file.")
    with np.load(VAN_HATEREN) as file:
        train, test = file["train"].astype(float), file["test"].astype(float)
    source = f"16x16 patches of one van Hateren image, {n_components} components"
    return Patches(train[:, :n_components], test[:n_test, :n_components], source)
