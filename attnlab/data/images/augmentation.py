"""Changes of images in training: a random crop of the padded image and a turn from left to right
(He et al. 2016, section 4.2), and another place for what an image shows on an empty ground (Mnih et
al. 2014, section 4.1, where such images are made anew for every update).

Axis letters: B images, H height, W width, C channels.
"""

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.errors import UserError


def augmented(
    key: jax.Array, images: jax.Array, crop: int, flip: bool, anywhere: bool = False
) -> jax.Array:
    """Returns images [B,H,W,C], each by the random key cropped after padding with `crop` zeros on
    all sides, mirrored with probability 1/2 if `flip`, and, if `anywhere`, shifted so that no pixel
    that is not 0 is lost.

    Args:
      key: of a step.
      images: of any dtype.
      crop: p: the image gets an edge of p zeros on each side, and one of H x W is cut out of it
        anywhere; 0 for none.
      flip: whether each image is turned left to right with probability 1/2.
      anywhere: whether all that is not 0 is put as one piece anywhere within the image, every place
        as likely; nothing of it is cut off.
    """
    crop_key, flip_key = jax.random.split(key)
    if crop:
        edge = (crop, crop)
        padded = jnp.pad(images, ((0, 0), edge, edge, (0, 0)))
        corners = jax.random.randint(crop_key, (len(images), 2), 0, 2 * crop + 1)

        def cut(image: jax.Array, corner: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice(image, (corner[0], corner[1], 0), images.shape[1:])

        images = jax.vmap(cut)(padded, corners)
    if flip:
        turned = jax.random.bernoulli(flip_key, 0.5, (len(images), 1, 1, 1))
        images = jnp.where(turned, images[:, :, ::-1], images)
    if anywhere:
        for axis in (1, 2):
            images = _shift_along(jax.random.fold_in(key, axis), images, axis)
    return images


def check_anywhere(images: np.ndarray) -> None:
    """Raises `UserError` if the augmentation `anywhere` could move no image [N,H,W,C], because the
    content of each reaches all four edges.
    """
    filled = (images != 0).any(axis=3)
    rows, columns = filled.any(axis=2), filled.any(axis=1)
    if all((axis[:, 0] & axis[:, -1]).all() for axis in (rows, columns)):
        raise UserError(
            "config.augmentation.anywhere=true moves what is not 0 in an image, but all images reach"
            " to all of their edges; leave it false, or make the ground 0"
        )


def _shift_along(key: jax.Array, images: jax.Array, axis: int) -> jax.Array:
    """Shifts each image [B,H,W,C] along `axis` by a random amount that keeps all its nonzero pixels
    inside.
    """
    length = images.shape[axis]
    filled = (images != 0).any(axis=(3 - axis, 3))
    leading, trailing = filled.argmax(axis=1), filled[:, ::-1].argmax(axis=1)
    shift = jax.random.randint(key, leading.shape, -leading, trailing + 1)
    source = (jnp.arange(length) - shift[:, None]) % length
    return jnp.take_along_axis(images, jnp.expand_dims(source, (3 - axis, 3)), axis=axis)
