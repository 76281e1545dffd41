"""Systems that read images alone, beyond what their oracles hold: statistics of batches, and maps."""

import jax
import numpy as np

from attnlab.layers.norms import STATISTICS
from tests.systems.image_classifiers import SPECS, make, parameters, shown
from tests.systems.image_systems import DETECTORS, OF_PIXELS, check_padding


def test_statistics_are_those_of_the_images_and_not_of_padding() -> None:
    """In training, those of what a convolution gives over all pixels; rows of padding change neither
    them nor logits.
    """
    check_padding(SPECS["cnn"])
    system, read = make(SPECS["cnn"]), shown(SPECS["cnn"])
    params = parameters(system, read)
    run = jax.jit(lambda params: system.apply({"params": params}, read, mutable=[STATISTICS])[1])
    seen = run(params)
    kernel = params["convolution_0_0"]["kernel"]
    edged = np.pad(read, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(edged, (3, 3), axis=(1, 2))
    y = np.einsum("bijcuv,uvcf->bijf", windows, kernel).reshape(-1, kernel.shape[-1])
    ((_, actual),) = seen[STATISTICS]["normalisation_0_0"]["seen"]
    np.testing.assert_allclose(actual["mean"], y.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(actual["variance"], y.var(axis=0, ddof=1), rtol=1e-4)


def test_statistics_are_of_batches_where_a_norm_is() -> None:
    """Of a backbone, or at the pixels that a segmenter gives a class."""
    plain = {"backbone": {**SPECS["cnn"], "normalisation": "layer_norm"}}
    segmenter = {**OF_PIXELS["segmenter"], "normalisation": "layer_norm"}
    for spec, over_batch in (
        (SPECS["cnn"], True),
        ({**SPECS["cnn"], "normalisation": "layer_norm"}, False),
        (DETECTORS["detr"], True),
        ({**DETECTORS["detr"], **plain}, False),
        (segmenter, True),
        ({**segmenter, **plain}, False),
        ({**segmenter, **plain, "normalisation": "batch_norm"}, True),
        ({**segmenter, **plain, "normalisation": "batch_norm", "width": 0}, False),
    ):
        assert make(spec).over_batch == over_batch
