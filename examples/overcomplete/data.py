"""Whitened patches of natural images: of a van Hateren image where there is one, else of photographs."""

import numpy as np

from examples.image_models.patches import (
    VAN_HATEREN_IMAGE,
    Patches,
    cut_images,
    load_patches,
    load_van_hateren_image,
    whitened,
)

#: The share of the image, from its left edge, that training patches come from; held-out ones come from the rest.
_TRAINED = 0.7


def load_rows(width: int = 8, n_components: int | None = None, n_train: int = 20_000, n_test: int = 1000) -> Patches:
    """Return patches without their means, all components of them by default: W^2 - 1."""
    n_components = width**2 - 1 if n_components is None else n_components
    if not VAN_HATEREN_IMAGE.exists():
        return load_patches(n_components, width, n_train, n_test)
    image, rng = load_van_hateren_image(), np.random.default_rng(2012)
    edge = round(_TRAINED * image.shape[1])
    train = cut_images([image[:, :edge]], n_train, width, rng)
    test = cut_images([image[:, edge:]], n_test, width, rng)
    return whitened(train, test, n_components, f"{width}x{width} patches of the two sides of a van Hateren image")
